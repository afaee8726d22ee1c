# The thread of a processor, and what other threads leave in its mailbox: new connections, answers, completions.

cdef Connection* allocate_slot(Processor* p) noexcept nogil:
    """Return a connection that is not in use, or NULL. Requires the processor's mutex."""
    cdef Connection* c
    cdef Connection* chunk
    cdef uint32_t i
    require(&p.mutex)
    c = p.free_slots
    if c == NULL:
        if p.chunk_count == CHUNKS:
            return NULL
        chunk = <Connection*>calloc(SLOTS_PER_CHUNK, sizeof(Connection))
        if chunk == NULL:
            return NULL
        p.chunks[p.chunk_count] = chunk
        for i in range(SLOTS_PER_CHUNK):
            chunk[i].processor, chunk[i].fd, chunk[i].new_fd = p, -1, -1
            chunk[i].slot = p.chunk_count * SLOTS_PER_CHUNK + i
            chunk[i].next_free = chunk + i + 1 if i + 1 < SLOTS_PER_CHUNK else NULL
        p.chunk_count += 1
        c = chunk
    p.free_slots = c.next_free
    return c


cdef void free_slot(Connection* c) noexcept nogil:
    cdef Processor* p = c.processor
    give_memory_back(c)
    forget_received(c)
    forget_sent(c)
    forget_subject(c)
    c.request_state = NULL
    c.is_delayed = False
    lock(&p.mutex)
    c.next_free = p.free_slots
    p.free_slots = c
    unlock(&p.mutex)


cdef bint put_in_mailbox(Connection* c, bint may_sleep=False) noexcept nogil:
    """Let the processor look at ``c``. Return whether it must be woken. Requires the processor's mutex."""
    cdef Processor* p = c.processor
    cdef bint wake
    require(&p.mutex)
    wake = p.sleeping and not may_sleep
    if not c.has_mail:
        c.has_mail = True
        c.next_mail = NULL
        if p.last_mail != NULL:
            p.last_mail.next_mail = c
        else:
            p.first_mail = c
        p.last_mail = c
    if not may_sleep:
        p.sleeping = False
    return wake


cdef void ring(Processor* p) noexcept nogil:
    """Wake the processor, which waits or is about to."""
    p.network.poller.ring(p.network.poller, p.waker)


cdef bint give_connection(Processor* p, int fd, int listener, const Transport* transport, const Peer* peer) noexcept nogil:
    """Hand an accepted socket to the processor. Return False without memory."""
    cdef Connection* c
    cdef bint wake = False
    lock(&p.mutex)
    c = allocate_slot(p)
    if c != NULL:
        c.new_fd, c.listener, c.transport, c.peer = fd, listener, transport, peer[0]
        c.number = add_and_get(&p.network.accepted, 1)
        wake = put_in_mailbox(c)
    unlock(&p.mutex)
    if wake:
        ring(p)
    return c != NULL


cdef void give_answer(Connection* c, Result result, Answer* answer, int32_t mute_ms) noexcept nogil:
    """End the queued request of ``c`` with a result of handler threads, or have the hot handler go on with it (AGAIN).

    The answer is sent here if that can be. Its memory becomes the processor's. The next request waits for ``mute_ms``.
    """
    cdef Processor* p = c.processor
    cdef int64_t now, ready_ns = monotonic_ns_of(p.network.clock)
    end_local_time(c, ready_ns)
    cdef int64_t sent = send_directly(c, answer) if result == DONE else 0
    cdef bint is_sent = sent > 0 and sent == answer.size
    cdef bint is_late = False
    if sent > 0 or result == NO_ANSWER:
        now = monotonic_ns_of(p.network.clock) if sent > 0 else ready_ns
        is_late = sent > 0 and answers_late(c, now)
        if is_sent or result == NO_ANSWER:
            count_request(c, ready_ns, now)
    if result != AGAIN:
        # Not by the processor, which may not hear of the answer for long. From the mailbox on the next request may be received.
        give_memory_back(c)
    lock(&p.mutex)
    c.has_result, c.result, c.answer_mute_ms, c.answer_sent, c.is_late = True, result, mute_ms, sent, is_late
    c.ready_ns = ready_ns
    if answer != NULL:
        c.answer = answer[0]
    # Of an answer that is sent the processor hears with the next event of the connection.
    cdef bint may_sleep = is_sent and mute_ms == 0 and not is_late and not c.wakes
    may_sleep = may_sleep and p.wanted_phase == RUNNING
    cdef bint wake = put_in_mailbox(c, may_sleep)
    unlock(&p.mutex)
    if wake:
        ring(p)


@cython.overflowcheck(False)
cdef void complete(Network* network, uint64_t token) noexcept nogil:
    cdef uint32_t index = (token >> SLOT_BITS) & 255
    cdef uint32_t slot = token & (((<uint64_t>1) << SLOT_BITS) - 1)
    cdef uint32_t generation = token >> 32
    cdef Processor* p
    cdef Connection* c
    cdef bint wake = False
    if index >= load_number(&network.processor_count):
        return
    p = &network.processors[index]
    lock(&p.mutex)
    if slot // SLOTS_PER_CHUNK < p.chunk_count:
        c = &p.chunks[slot // SLOTS_PER_CHUNK][slot % SLOTS_PER_CHUNK]
        # A late token does not replace the one of a newer request.
        if not c.is_completed or <int32_t>(generation - c.completed) > 0:
            c.is_completed, c.completed = True, generation
            wake = put_in_mailbox(c)
    unlock(&p.mutex)
    if wake:
        ring(p)


cdef void measure_time(Network* network) noexcept nogil:
    count_shared(&network.measures_time, 1)


cdef void open_mail(Connection* c) noexcept nogil:
    """Do the work that other threads have left for this connection."""
    cdef Processor* p = c.processor
    cdef Answer answer
    lock(&p.mutex)
    cdef int fd = c.new_fd
    cdef bint has_result = c.has_result, is_completed = c.is_completed
    cdef Result result = c.result
    cdef int32_t mute_ms = c.answer_mute_ms
    cdef int64_t sent = c.answer_sent
    cdef bint is_late = c.is_late
    cdef uint32_t completed = c.completed
    answer = c.answer
    memset(&c.answer, 0, sizeof(Answer))
    c.new_fd = -1
    c.has_mail = c.has_result = c.is_completed = False
    unlock(&p.mutex)
    if fd >= 0:
        open_connection(c, fd)
    if has_result:
        if is_late and c.fd >= 0:
            touch(c)
        take_answer(c, result, &answer, sent, mute_ms)
    elif is_completed and c.fd >= 0 and c.state == WAITING and c.generation == completed:
        resume(c, COMPLETED)


cdef void take_answer(Connection* c, Result result, Answer* answer, int64_t sent, int32_t mute_ms) noexcept nogil:
    """End the queued request of ``c`` as its handler has said, or go on with it."""
    cdef Processor* p = c.processor
    if c.fd < 0:
        free_answer(answer)
        abandon_state(c)
        forget_sent(c)
        c.state = IDLE
        free_slot(c)
        return
    if result == AGAIN:
        c.state = IDLE
        # Without a state no handler has seen the request.
        handle(c, ASKED if c.request_state != NULL else ARRIVED)
        if c.fd >= 0:
            advance(c)
        return
    abandon_state(c)
    if result == DONE and not (sent > 0 and sent == answer.size):
        note_answer(c, c.ready_ns, max(p.now, c.ready_ns))
    end_request(c)
    if result == REFUSE:
        refuse(c, answer)
        return
    if result == AUTHENTICATED:
        open_session(c)
        result = DONE
    if sent > 0 and sent == answer.size:
        free_answer(answer)
    elif result == DONE and c.out.size == 0:
        # Earlier answers are sent: this one needs no copy.
        forget_sent(c)
        free(c.out.ranges)
        c.out, c.sent = answer[0], sent
    elif result == DONE:
        join_answers(&c.out, answer)
    if result == CLOSE or c.out.failed:
        end_connection(c)
    else:
        mute(c, mute_ms)
        advance(c)


cdef void resume(Connection* c, Reason reason) noexcept nogil:
    """Call the handler again for a parked or delayed request. The end of a delay is no other reason."""
    if c.is_delayed:
        c.is_delayed, reason = False, DELAY_ENDED
    handle(c, reason)
    if c.fd < 0:
        return
    if c.state != WAITING:
        advance(c)
    elif c.out.size == 0:
        forget_sent(c)


cdef int64_t sleep_ms(Processor* p) noexcept nogil:
    """Return for how long the poller may wait: until the next timer or idle connection; -1: for ever."""
    cdef int slot = 0
    cdef int64_t until = next_slot(&p.wheel, &slot)
    cdef int64_t idle
    if p.network.idle_ns >= 0 and p.earliest != NULL:
        idle = (p.earliest.last_active + p.network.idle_ns) // 1000000 + 1
        until = idle if until < 0 else min(until, idle)
    return -1 if until < 0 else max(0, until - monotonic_ns_of(p.network.clock) // 1000000)


cdef void expire(Processor* p) noexcept nogil:
    """Do what is due: for requests, connections and peers whose timer has ended, and for idle connections."""
    cdef Timer* timer
    while True:
        timer = expired_timer(&p.wheel, p.now // 1000000)
        if timer == NULL:
            break
        # The timer is the first field of its connection.
        end_timer(<Connection*>timer)
    while p.network.idle_ns >= 0 and p.earliest != NULL and p.now - p.earliest.last_active > p.network.idle_ns:
        count(&p.counters.idle_closed, 1)
        report(p.network, IDLE_FOR_TOO_LONG, p.network.idle_ns // 1000000, &p.earliest.peer)
        close_connection(p.earliest)


cdef void change_phase(Processor* p, Phase phase) noexcept nogil:
    """Draining: parked requests expire, and connections close when they have nothing to finish. Ending: all close."""
    cdef Connection* c = p.earliest
    cdef Connection* later
    p.phase = phase
    while c != NULL:
        later = c.later
        if c.state == MUTED:
            stop_timer(&p.wheel, &c.timer)
            c.state = IDLE
        if phase == ENDING:
            close_connection(c)
        elif c.state == WAITING:
            resume(c, EXPIRED)
        elif c.state == CLOSING:
            end_connection(c)
        elif c.state == IDLE and c.out.size == 0 or c.state == HANDSHAKING or c.state == QUEUED and drop_and_forget(c):
            close_connection(c)
        c = later


cdef bint drop_and_forget(Connection* c) noexcept nogil:
    """Remove a request that no handler has seen from the request queue. Return whether there was one."""
    cdef bint held = drop_held(queue_of(c), c)
    if held:
        c.state = IDLE
    return held


cdef bint runs(const Processor* p) noexcept nogil:
    return p.phase != ENDING and not (p.phase == DRAINING and p.earliest == NULL)


cdef void prepare_wait(Processor* p) noexcept nogil:
    """Find for how long the poller may wait. From here on other threads wake the processor."""
    p.wait_ms = 0 if p.ready != NULL else sleep_ms(p)
    lock(&p.mutex)
    p.sleeping = p.wait_ms != 0 and p.first_mail == NULL and p.wanted_phase == p.phase
    if not p.sleeping:
        p.wait_ms = 0
    unlock(&p.mutex)


cdef void take_turn(Processor* p) noexcept nogil:
    """Wait as ``prepare_wait`` has said, then do all that is due: ready connections, mail, timers, a new phase."""
    cdef const PollerFunctions* poller = p.network.poller
    cdef Ready ready[READY_AT_ONCE]
    cdef Connection* mail
    cdef Connection* c
    cdef Phase phase
    cdef int i, events
    count(&p.counters.idle_ns, -monotonic_ns_of(p.network.clock))
    events = poller.wait(poller, p.poller, ready, READY_AT_ONCE, p.wait_ms)
    p.now = monotonic_ns_of(p.network.clock)
    count(&p.counters.idle_ns, p.now)
    lock(&p.mutex)
    p.sleeping = False
    mail = p.first_mail
    p.first_mail = p.last_mail = NULL
    phase = p.wanted_phase
    unlock(&p.mutex)
    # Mail first: a connection whose answer is sent may have its next request among the events.
    while mail != NULL:
        c = mail
        # Read before the connection may enter the next mailbox.
        mail = c.next_mail
        open_mail(c)
    for i in range(events):
        if ready[i].owner == NULL:
            poller.clear(poller, p.waker)
        else:
            serve(<Connection*>ready[i].owner, ready[i].events)
    leave_work(p)
    expire(p)
    c = p.ready
    p.ready = NULL
    while c != NULL:
        mail = c.next_ready
        c.is_ready = False
        if c.fd >= 0 and c.state == IDLE:
            go_on(c)
        c = mail
    if p.first_waiting != NULL:
        hand_out_memory(p)
    leave_work(p)
    if phase != p.phase:
        change_phase(p, phase)
    if p.earliest != NULL and claim_excess(p.network.quotas, p.earliest.listener):
        close_excess(p)


cdef void leave_work(Processor* p) noexcept nogil:
    """Have a handler thread do what the requests that were answered have left."""
    if p.leaves_work:
        p.leaves_work = False
        queue_work(&p.network.queues[DATA_PLANE])


cdef void close_excess(Processor* p) noexcept nogil:
    """Close the least recently used connection: the server has too many. Other processors close the next ones."""
    count(&p.counters.excess_closed, 1)
    report_of(p.earliest, TOO_MANY_CONNECTIONS, 0)
    close_connection(p.earliest)
    end_claim(p.network.quotas)
    if counted(&p.network.quotas.excess):
        # The next turn is due at once.
        ring(p)


cdef void end_processor(Processor* p) noexcept nogil:
    """Close all connections, and tell who waits for the end."""
    change_phase(p, ENDING)
    lock(&p.mutex)
    p.ended = True
    broadcast(&p.changed)
    unlock(&p.mutex)


cdef void* run_processor(void* argument) noexcept nogil:
    cdef Processor* p = <Processor*>argument
    name_thread("kafka-processor")
    p.now = monotonic_ns_of(p.network.clock)
    while runs(p):
        prepare_wait(p)
        take_turn(p)
    end_processor(p)
    return NULL


cdef void want_phase(Processor* p, Phase phase) noexcept nogil:
    lock(&p.mutex)
    p.wanted_phase = phase
    p.sleeping = False
    unlock(&p.mutex)
    ring(p)


cdef bint wait_for_end(Processor* p, int64_t deadline) noexcept nogil:
    """Return whether the processor's thread ended before ``deadline`` (monotonic nanoseconds)."""
    cdef int64_t left
    lock(&p.mutex)
    left = deadline - monotonic_ns()
    while not p.ended and left > 0:
        wait(&p.changed, &p.mutex, left)
        left = deadline - monotonic_ns()
    cdef bint ended = p.ended
    unlock(&p.mutex)
    return ended
