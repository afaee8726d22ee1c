# One connection, on the thread of its processor: bytes in, requests, answers, bytes out.
#
# Memory for received bytes is one of: nothing (an idle connection), a copy of at most SMALL_BYTES, a receive
# buffer of the processor's pool, or memory of one frame that is larger than a receive buffer. The last grows
# with what has arrived, and never holds a byte behind its frame. The capacity tells which one it is.

# -- plaintext: how bytes of a connection are moved. Another Transport is TLS (``tls.pxi``), a third one TLS of Python's ssl
# (``python_tls.pxi``).


cdef void end_plain(Connection* c) noexcept nogil:
    pass


cdef bint has_more_plain(Connection* c) noexcept nogil:
    return False


cdef int64_t receive_plain(Connection* c, void* room, int64_t size) noexcept nogil:
    cdef const PollerFunctions* poller = c.processor.network.poller
    return poller.receive(poller, c.fd, room, size)


cdef int64_t send_plain(Connection* c, const void* data, int64_t size, bint more) noexcept nogil:
    cdef const PollerFunctions* poller = c.processor.network.poller
    return poller.send(poller, c.fd, data, size, more)


cdef int64_t send_range_plain(Connection* c, const FileRange* part, int64_t size) noexcept nogil:
    cdef const PollerFunctions* poller = c.processor.network.poller
    return poller.send_file(poller, c.fd, part.fd, part.position, size)


cdef Transport PLAINTEXT
PLAINTEXT.begin = begin_session
PLAINTEXT.end = end_plain
PLAINTEXT.receive = receive_plain
PLAINTEXT.send = send_plain
PLAINTEXT.send_range = send_range_plain
PLAINTEXT.has_more = has_more_plain
PLAINTEXT.shake_hands = NULL


# -- memory


cdef uint8_t* take_buffer(Processor* p) noexcept nogil:
    """Return a buffer of BUFFER_BYTES, or NULL."""
    if p.pool_count:
        p.pool_count -= 1
        return p.pool[p.pool_count]
    return <uint8_t*>malloc(BUFFER_BYTES)


cdef void give_back(Processor* p, uint8_t* data, int64_t capacity) noexcept nogil:
    """Free memory; a buffer goes back into the pool. The pool gives the last returned buffer first."""
    if capacity == BUFFER_BYTES and p.pool_count < POOL:
        p.pool[p.pool_count] = data
        p.pool_count += 1
    else:
        free(data)


cdef void forget_received(Connection* c) noexcept nogil:
    stop_counting(c)
    if c.data != NULL:
        give_back(c.processor, c.data, c.capacity)
    c.data = NULL
    c.capacity = c.begin = c.end = 0


cdef void forget_sent(Connection* c) noexcept nogil:
    """Release what is left of the answers, and their memory."""
    release_ranges(&c.out, 0)
    if c.out.data != NULL:
        give_back(c.processor, c.out.data, c.out.capacity)
    c.out.data = NULL
    c.out.size = c.out.capacity = c.out.range_bytes = 0
    c.sent, c.next_range = 0, 0
    c.out.failed = False


cdef void drop_unneeded(Connection* c) noexcept nogil:
    """Forget the bytes of a parked request that its handler does not need, if no other request is behind them.

    Nothing is received while a request is parked.
    """
    cdef int64_t whole = SIZE_BYTES + c.request_size
    if c.kept_bytes and not c.dropped_bytes and c.end - c.begin == whole and c.kept_bytes < c.request_size:
        c.dropped_bytes = c.request_size - c.kept_bytes
        c.end = c.begin + SIZE_BYTES + c.kept_bytes


cdef void settle(Connection* c) noexcept nogil:
    """Give back as much memory as possible, before other connections are served."""
    cdef int64_t rest
    cdef uint8_t* small
    if c.state == WAITING:
        drop_unneeded(c)
    rest = c.end - c.begin
    if rest == 0:
        forget_received(c)
    elif rest <= SMALL_BYTES and c.capacity >= BUFFER_BYTES:
        small = <uint8_t*>malloc(rest)
        if small != NULL:
            memcpy(small, c.data + c.begin, rest)
            forget_received(c)
            c.data, c.capacity, c.end = small, rest, rest
    count_received(c)


# -- life


cdef void touch(Connection* c) noexcept nogil:
    """Note activity: the connection becomes the last one that is closed for being idle."""
    cdef Processor* p = c.processor
    c.last_active = p.now
    if p.latest == c:
        return
    unlink_active(c)
    link_active(c)


cdef void link_active(Connection* c) noexcept nogil:
    cdef Processor* p = c.processor
    c.later, c.earlier = NULL, p.latest
    if p.latest != NULL:
        p.latest.later = c
    else:
        p.earliest = c
    p.latest = c


cdef void unlink_active(Connection* c) noexcept nogil:
    cdef Processor* p = c.processor
    if c.earlier != NULL:
        c.earlier.later = c.later
    else:
        p.earliest = c.later
    if c.later != NULL:
        c.later.earlier = c.earlier
    else:
        p.latest = c.earlier


cdef void open_connection(Connection* c, int fd) noexcept nogil:
    cdef Processor* p = c.processor
    cdef const PollerFunctions* poller = p.network.poller
    if p.phase != RUNNING or poller.add(poller, p.poller, fd, READABLE, c) < 0:
        poller.close_connection(poller, fd)
        release_connection(p.network, c.listener, &c.peer)
        free_slot(c)
        return
    c.fd, c.interest, c.state, c.last_active = fd, READABLE, IDLE, p.now
    c.identity = c.user = 0
    c.network_ns = 0
    c.holds_back = False
    c.read_needs_write = c.write_needs_read = c.is_drained = c.is_broken = c.has_ended = c.is_flooding = c.has_more = False
    c.retry_bytes = 0
    link_active(c)
    count(&p.counters.connections, 1)
    count(&p.counters.opened, 1)
    c.transport.begin(c)


cdef void close_connection(Connection* c) noexcept nogil:
    """Close the socket. The slot is free again when no handler works on a request of the connection."""
    cdef Processor* p = c.processor
    cdef const PollerFunctions* poller = p.network.poller
    if c.fd < 0:
        return
    c.transport.end(c)
    poller.remove(poller, p.poller, c.fd)
    if c.state != QUEUED or take_descriptor(c):
        poller.close_connection(poller, c.fd)
    c.fd = -1
    unlink_active(c)
    forget_sent(c)
    count(&p.counters.connections, -1)
    release_connection(p.network, c.listener, &c.peer)
    stop_timer(&p.wheel, &c.timer)
    stop_counting(c)
    stop_waiting(c)
    forget_answers(c)
    if c.state == WAITING or c.state == MUTED or c.state == CLOSING or c.state == HANDSHAKING:
        c.state = IDLE
    elif c.state == QUEUED and drop_held(queue_of(c), c):
        c.state = IDLE
    if c.state == IDLE:
        abandon_state(c)
        forget_sent(c)
        free_slot(c)


cdef void abandon_state(Connection* c) noexcept nogil:
    """Let the hot handler release what it keeps for the request, which it does not answer."""
    cdef HotRequest request
    cdef int64_t size = c.out.size
    if c.request_state != NULL:
        describe_request(c, ABANDONED, &request)
        c.processor.network.hot(c.processor.network.hot_context, &request, &c.out)
        c.request_state = NULL
        c.out.size = size


cdef void end_connection(Connection* c) noexcept nogil:
    """Send what the kernel takes of earlier answers, then close."""
    if not c.out.failed:
        flush(c)
    close_connection(c)


# -- the time of transfers, where it is measured


cdef inline int64_t begin_transfer(Processor* p) noexcept nogil:
    return monotonic_ns_of(p.network.clock) if counted(&p.network.measures_time) else 0


cdef inline void end_transfer(Connection* c, int64_t began) noexcept nogil:
    if began:
        c.network_ns += monotonic_ns_of(c.processor.network.clock) - began


# -- bytes in


cdef int next_frame(Connection* c) noexcept nogil:
    """Return 1 and set ``request_size`` when a whole frame is there, 0 when it is not, -1 for a wrong size.

    0 also when there is no memory for the frame.
    """
    cdef int32_t size
    if c.end - c.begin < SIZE_BYTES:
        return 0
    size = get_i32(c.data + c.begin)
    if size < 0 or size > largest_frame(c):
        report(c.processor.network, WRONG_SIZE, size, &c.peer)
        count_refused(c)
        return -1
    c.request_size = size
    return reserve_memory(c, size) and c.end - c.begin - SIZE_BYTES >= size


cdef int64_t make_room(Connection* c) noexcept nogil:
    """Return how many bytes can be received behind ``end``, or -1 without memory.

    The frame at ``begin`` is incomplete, and its size was checked.
    """
    cdef int64_t rest = c.end - c.begin
    cdef int64_t capacity
    cdef uint8_t* data
    if c.capacity < BUFFER_BYTES:
        data = take_buffer(c.processor)
        if data == NULL:
            return -1
        if rest:
            memcpy(data, c.data + c.begin, rest)
        free(c.data)
        c.data, c.capacity = data, BUFFER_BYTES
    elif c.begin:
        memmove(c.data, c.data + c.begin, rest)
    c.begin, c.end = 0, rest
    if rest == c.capacity:
        capacity = min(SIZE_BYTES + <int64_t>get_i32(c.data), GROWTH * rest)
        data = <uint8_t*>realloc(c.data, capacity)
        if data == NULL:
            return -1
        c.data, c.capacity = data, capacity
    return c.capacity - c.end


cdef void receive(Connection* c) noexcept nogil:
    """Read until a whole frame is there or the socket is empty, then handle all whole frames."""
    cdef Processor* p = c.processor
    cdef int64_t room, size, began
    cdef int i
    for i in range(READS if c.ssl == NULL else READS_OF_TLS):
        if not may_receive(c):
            break
        room = make_room(c)
        if room < 0:
            report(p.network, NO_MEMORY, 0, &c.peer)
            close_connection(c)
            return
        began = begin_transfer(p)
        size = c.transport.receive(c, c.data + c.end, room)
        end_transfer(c, began)
        if size < 0 and errno == EINTR:
            continue
        if size < 0 and (errno == EAGAIN or errno == EWOULDBLOCK):
            break
        if size <= 0 and c.ssl != NULL and next_frame_known(c):
            # First the requests that came before the end of the connection.
            break
        if size <= 0:
            close_connection(c)
            return
        c.end += size
        count(&p.counters.bytes_in, size)
        touch(c)
        if not wants_more(c, size, room):
            break
    advance(c)


cdef bint wants_more(Connection* c, int64_t received, int64_t room) noexcept nogil:
    """Return whether to read on after so many bytes: no frame is whole, or more are here that can be answered together."""
    # A wrong size is for ``advance``.
    if not next_frame_known(c):
        return c.ssl != NULL or received == room
    # TLS gives out one record at a time, and a full one is seldom the last.
    return c.ssl != NULL and c.end < c.capacity and (received == FULL_RECORD or has_more_tls(c))


cdef bint next_frame_known(Connection* c) noexcept nogil:
    """Return whether ``advance`` can do something: a frame is whole, or its size is wrong."""
    cdef int64_t rest = c.end - c.begin
    cdef int32_t size
    if rest < SIZE_BYTES:
        return False
    size = get_i32(c.data + c.begin)
    return size < 0 or size > largest_frame(c) or rest - SIZE_BYTES >= size


# -- requests


cdef void describe_request(Connection* c, Reason reason, HotRequest* request) noexcept nogil:
    request.data = c.data + c.begin + SIZE_BYTES
    request.size = c.request_size
    request.token = (<uint64_t>c.generation << 32) | (<uint64_t>c.processor.index << SLOT_BITS) | c.slot
    request.reason, request.listener, request.wait_ms = reason, c.listener, 0
    request.state, request.arrived_ns = c.request_state, c.arrived_ns
    request.identity, request.user, request.answer = c.identity, c.user, c.go_on_answer
    request.throttle_time_ms = request.mute_ms = 0
    request.kept_bytes = c.kept_bytes
    request.connection, request.leaves_work = c.number, False
    request.began_ns, request.spent_ns, request.network_ns = 0, c.spent_ns, c.network_ns


cdef void end_request(Connection* c) noexcept nogil:
    give_memory_back(c)
    c.begin += SIZE_BYTES + c.request_size - c.dropped_bytes
    c.kept_bytes = c.dropped_bytes = 0
    c.request_state = NULL
    c.state = IDLE


cdef void mute(Connection* c, int32_t ms) noexcept nogil:
    """Handle no further request of the connection for so many milliseconds. Its answers are sent meanwhile.

    A peer that does not wait by itself waits here: its bytes stay in the socket (KIP-219).
    """
    cdef Processor* p = c.processor
    # Until the peer is authenticated the timer has another purpose.
    if ms > 0 and p.phase == RUNNING and c.stage == OPEN:
        c.state = MUTED
        # One more, because the current millisecond has begun.
        start_timer(&p.wheel, &c.timer, monotonic_ns_of(p.network.clock) // 1000000 + ms + 1)


cdef void unmute(Connection* c) noexcept nogil:
    c.state = IDLE
    advance(c)


cdef Result call_handler(Connection* c, Reason reason, int32_t* wait_ms) noexcept nogil:
    """Call the hot handler. Only with DONE has the answer grown; an answer that cannot be sent is CLOSE."""
    cdef Processor* p = c.processor
    cdef HotRequest request
    cdef Result result
    cdef int64_t begin, range_bytes
    cdef int32_t range_count
    # A handler thread finds the name of a peer with a certificate before its first request is handled.
    if p.network.hot == NULL or c.is_unknown:
        return QUEUE
    if c.out.data == NULL:
        c.out.data = take_buffer(p)
        c.out.capacity = BUFFER_BYTES if c.out.data != NULL else 0
    begin, range_count, range_bytes = c.out.size, c.out.range_count, c.out.range_bytes
    append_room(&c.out, SIZE_BYTES)
    describe_request(c, reason, &request)
    request.began_ns = monotonic_ns_of(p.network.clock)
    end_queue_time(c, request.began_ns)
    result = p.network.hot(p.network.hot_context, &request, &c.out)
    p.ended_ns = monotonic_ns_of(p.network.clock)
    c.spent_ns += p.ended_ns - request.began_ns
    c.request_state, c.kept_bytes = request.state, request.kept_bytes
    c.mute_ms, c.network_ns = request.mute_ms, request.network_ns
    wait_ms[0] = request.wait_ms
    if request.leaves_work:
        p.leaves_work = True
    if result == DONE:
        if finish_answer(&c.out, begin, range_bytes):
            return DONE
        report(p.network, ANSWER_FAILED, 0, &c.peer)
        result = CLOSE
    release_ranges(&c.out, range_count)
    c.out.size, c.out.failed = begin, False
    return result


cdef void handle(Connection* c, Reason reason) noexcept nogil:
    """Let the hot handler work on the request at ``begin``. Its connection may be closed afterwards."""
    cdef Processor* p = c.processor
    cdef int32_t wait_ms = 0
    cdef bint is_first = reason == ARRIVED or reason == DELAY_ENDED or reason == ASKED
    cdef Result result = call_handler(c, reason, &wait_ms)
    if result == PARKED and is_first and (wait_ms <= 0 or p.phase != RUNNING):
        reason = EXPIRED
        result = call_handler(c, EXPIRED, &wait_ms)
    if result == PARKED and reason != EXPIRED or result == DELAYED and reason == ARRIVED:
        if is_first:
            c.state, c.is_delayed = WAITING, result == DELAYED
            if result == PARKED:
                # What it waits for may be another request.
                give_memory_back(c)
            # One more, because the current millisecond has begun.
            start_timer(&p.wheel, &c.timer, p.now // 1000000 + wait_ms + 1)
        return
    if c.state == WAITING:
        stop_timer(&p.wheel, &c.timer)
        c.state = IDLE
    if result == DONE:
        note_answer(c, p.ended_ns, p.ended_ns)
    elif result == NO_ANSWER:
        count_request(c, p.ended_ns, p.ended_ns)
    if result == DONE or result == NO_ANSWER:
        end_request(c)
        mute(c, c.mute_ms)
    elif result == QUEUE:
        if is_first:
            # It still waits for the one that handles it; one that was parked has its time.
            c.queue_ns = -1
        leave_to_python(c)
    else:
        end_connection(c)


cdef void leave_to_python(Connection* c) noexcept nogil:
    """Queue the request for a handler thread, which may read it at once: nothing moves it from here on."""
    settle(c)
    if too_much_is_kept(c):
        return
    c.state = QUEUED
    share_descriptor(c)
    if not queue_request(queue_of(c), c):
        c.state = IDLE
        end_connection(c)


cdef void advance(Connection* c) noexcept nogil:
    """Handle whole frames, in order, until one must be waited for; send the answers."""
    cdef Processor* p = c.processor
    cdef int left = REQUESTS_PER_TURN
    cdef int found
    cdef bint sent = True
    while c.state == IDLE and p.phase == RUNNING:
        if c.out.range_count or c.out.size >= ANSWERS_TOGETHER:
            sent = flush(c)
            if not sent:
                break
        found = next_frame(c)
        if found == 0:
            break
        if found < 0:
            end_connection(c)
            return
        if left == 0:
            make_ready(c)
            break
        left -= 1
        c.generation += 1
        c.arrived_ns = p.now
        count(&p.counters.requests, 1)
        if c.session_end_ns and c.stage == OPEN and not session_goes_on(c):
            end_connection(c)
            return
        begin_times(c)
        if c.stage == OPEN:
            handle(c, ARRIVED)
        else:
            leave_to_python(c)
        if c.fd < 0:
            return
    if sent:
        sent = flush(c)
    if c.fd < 0:
        return
    if sent and c.state == IDLE and p.phase != RUNNING:
        close_connection(c)
        return
    if c.state != QUEUED:
        settle(c)
        if too_much_is_kept(c):
            return
    if sent and c.state == IDLE and not c.waits_for_memory and c.transport.has_more(c):
        make_ready(c)
    watch(c)


cdef void go_on(Connection* c) noexcept nogil:
    """Go on with a ready connection: handle its whole frames, or take bytes that the poller does not report."""
    if not next_frame_known(c) and c.out.size == 0 and c.transport.has_more(c):
        receive(c)
    else:
        advance(c)


cdef void make_ready(Connection* c) noexcept nogil:
    """Go on with this connection after all others had their turn."""
    if not c.is_ready:
        c.is_ready = True
        c.next_ready = c.processor.ready
        c.processor.ready = c


# -- bytes out


cdef bint flush(Connection* c) noexcept nogil:
    """Send. Return True when everything is sent; False when the peer must read first, or is gone."""
    cdef Processor* p = c.processor
    cdef const PollerFunctions* poller = p.network.poller
    cdef Answer* out = &c.out
    cdef FileRange* part
    cdef int64_t until, size, began, left = BYTES_PER_TURN
    while True:
        part = &out.ranges[c.next_range] if c.next_range < out.range_count else NULL
        until = part.at if part != NULL else out.size
        if part != NULL and not c.holds_back:
            c.holds_back = True
            poller.hold_back(poller, c.fd, True)
        began = 0
        if c.sent < until:
            began = begin_transfer(p)
            size = c.transport.send(c, out.data + c.sent, until - c.sent, part != NULL)
        elif part == NULL:
            if c.holds_back:
                c.holds_back = False
                poller.hold_back(poller, c.fd, False)
            forget_sent(c)
            count_sent(c)
            return True
        elif part.size == 0:
            if part.release != NULL:
                part.release(part.owner)
                part.release = NULL
            c.next_range += 1
            continue
        elif left <= 0:
            return False
        else:
            began = begin_transfer(p)
            size = c.transport.send_range(c, part, min(part.size, left))
        end_transfer(c, began)
        if size < 0 and errno == EINTR:
            continue
        if size < 0 and (errno == EAGAIN or errno == EWOULDBLOCK):
            return False
        if size <= 0:
            # Nothing to send at a file's end: the file has become shorter.
            if size == 0:
                report(p.network, FILE_TOO_SHORT, part.size if part != NULL else 0, &c.peer)
            close_connection(c)
            return False
        if c.sent < until:
            c.sent += size
        else:
            part.position += size
            part.size -= size
            out.range_bytes -= size
            left -= size
        count(&p.counters.bytes_out, size)
        touch(c)
        if c.retry_bytes:
            # TLS: OpenSSL has encrypted bytes that the socket did not take.
            return False


cdef void watch(Connection* c) noexcept nogil:
    """Tell the poller what the connection waits for: for nothing if that is memory.

    Reading stays on while a request is in progress: it is turned off when more bytes arrive (``serve``). So a
    peer that waits for its answers costs no system call here.
    """
    cdef bint unsent = c.out.size > 0 or c.out.range_count > 0
    cdef int events = c.interest & READABLE
    if c.waits_for_memory and not unsent:
        set_interest(c, 0)
        return
    if c.state == IDLE and not unsent:
        events = READABLE
    if unsent:
        events |= WRITABLE
    set_interest(c, wanted_events(c, unsent, events))


cdef void set_interest(Connection* c, int events) noexcept nogil:
    cdef const PollerFunctions* poller = c.processor.network.poller
    if events != c.interest:
        if poller.change(poller, c.processor.poller, c.fd, c.interest, events, c) < 0:
            close_connection(c)
        else:
            c.interest = events


cdef void serve(Connection* c, int events) noexcept nogil:
    """Do what the poller has reported."""
    if c.fd < 0:
        return
    if c.state == HANDSHAKING:
        c.transport.shake_hands(c)
        return
    if events & READABLE:
        c.is_drained = False
    if events & WRITABLE and c.interest & WRITABLE or c.write_needs_read and events & READABLE:
        if flush(c):
            if c.read_needs_write and c.state == IDLE:
                receive(c)
            else:
                advance(c)
        if c.fd < 0 or not events & BROKEN:
            return
    if events & READABLE and c.state == IDLE and c.out.size == 0 and not c.is_ready:
        # A broken connection may have sent requests before: its end comes when they are read.
        receive(c)
    elif events & BROKEN:
        close_connection(c)
    elif events & READABLE and not c.is_ready and (c.state != QUEUED or wake_when_answered(c)):
        set_interest(c, c.interest & ~READABLE)
