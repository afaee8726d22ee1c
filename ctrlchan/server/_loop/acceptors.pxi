# The thread of an acceptor: takes connections of one listener and gives them to its processors in turn.

cdef bint take_peer(Acceptor* a, int64_t* pause_ms) noexcept nogil:
    """Take the next connection that waits. Return False if there is none; ``pause_ms`` is set when accepting must pause."""
    cdef Network* network = a.network
    cdef const PollerFunctions* poller = network.poller
    cdef int fd, error
    while True:
        fd = poller.accept(poller, a.listener_fd, &a.peer)
        if fd >= 0:
            break
        error = errno
        if error == EINTR or error == ECONNABORTED:
            continue
        if error != EAGAIN and error != EWOULDBLOCK:
            # No descriptor is free (EMFILE, ENFILE), or no memory: the connection waits in the backlog.
            report(network, ACCEPT_FAILED, error, NULL)
            count(&a.accept_errors, 1)
            pause_ms[0] = ACCEPT_PAUSE_MS
        return False
    a.fd = fd
    a.throttled_until = now_ms(network) + record_arrival(network.quotas, a.index)
    return True


cdef void begin_blocked(Acceptor* a) noexcept nogil:
    if counted(&a.blocked_ns) >= 0:
        count(&a.blocked_ns, -monotonic_ns_of(a.network.clock))


cdef void end_blocked(Acceptor* a) noexcept nogil:
    if counted(&a.blocked_ns) < 0:
        count(&a.blocked_ns, monotonic_ns_of(a.network.clock))


cdef void reject_connection(Acceptor* a) noexcept nogil:
    """Close the connection that the acceptor has."""
    a.network.poller.close_connection(a.network.poller, a.fd)
    a.fd = -1


cdef void close_later(Acceptor* a, int64_t wait_ms) noexcept nogil:
    """Close the connection that the acceptor has, when so many milliseconds have passed."""
    cdef ThrottledConnection* throttled = NULL
    count(&a.ip_throttled, 1)
    if a.throttled.count < MOST_THROTTLED:
        throttled = <ThrottledConnection*>calloc(1, sizeof(ThrottledConnection))
    if throttled == NULL:
        reject_connection(a)
        return
    throttled.fd, a.fd = a.fd, -1
    # Kafka closes it when the time is over, not when it ends.
    start_timer(&a.throttled, &throttled.timer, now_ms(a.network) + wait_ms + 1)


cdef void close_throttled(Acceptor* a, int64_t until_ms) noexcept nogil:
    """Close those connections of throttled addresses whose time is over."""
    cdef const PollerFunctions* poller = a.network.poller
    cdef Timer* timer
    while True:
        timer = expired_timer(&a.throttled, until_ms)
        if timer == NULL:
            return
        # The timer is the first field of its connection.
        poller.close_connection(poller, (<ThrottledConnection*>timer).fd)
        free(timer)


cdef void give_to_processor(Acceptor* a) noexcept nogil:
    """Give the connection that the acceptor has to the next of its processors."""
    cdef Network* network = a.network
    cdef Processor* p
    network.poller.configure(network.poller, a.fd, network.send_buffer)
    a.next_processor = (a.next_processor + 1) % load_number(&a.processor_count)
    p = &network.processors[a.processors[a.next_processor]]
    if give_connection(p, a.fd, a.index, a.transport, &a.peer):
        a.fd = -1
    else:
        report(network, NO_MEMORY, 0, &a.peer)
        release_connection(network, a.index, &a.peer)
        reject_connection(a)
    if counted(&network.quotas.excess):
        wake_processors(network)


cdef void accept_all(Acceptor* a, int64_t* pause_ms) noexcept nogil:
    """Accept until no connection waits. ``pause_ms`` is set when accepting must pause."""
    cdef Network* network = a.network
    cdef int64_t value = 0
    cdef Admission admission
    while a.fd >= 0 or take_peer(a, pause_ms):
        if now_ms(network) < a.throttled_until:
            begin_blocked(a)
            pause_ms[0] = a.throttled_until - now_ms(network)
            return
        admission = admit(network.quotas, a.index, a.peer.ip, &value)
        if admission == NO_SLOT:
            begin_blocked(a)
            pause_ms[0] = -1
            return
        end_blocked(a)
        if admission == IP_THROTTLED:
            close_later(a, value)
        elif admission == TOO_MANY_OF_IP:
            report(network, TOO_MANY_CONNECTIONS_OF_IP, value, &a.peer)
            count(&a.rejected, 1)
            reject_connection(a)
        else:
            give_to_processor(a)


cdef int64_t prepare_accept(Acceptor* a) noexcept nogil:
    """Accept what waits, and return for how many milliseconds the poller may wait for more; -1: for ever."""
    cdef const PollerFunctions* poller = a.network.poller
    # 0: wait for connections; more: pause so long; -1: pause until a connection is closed.
    cdef int64_t pause_ms = 0
    cdef int64_t closes_at
    cdef int slot, wanted
    close_throttled(a, now_ms(a.network))
    accept_all(a, &pause_ms)
    wanted = READABLE if pause_ms == 0 else 0
    if wanted != a.interest:
        if poller.change(poller, a.poller, a.listener_fd, a.interest, wanted, a) == 0:
            a.interest = wanted
    if pause_ms <= 0:
        pause_ms = -1
    closes_at = next_slot(&a.throttled, &slot)
    if closes_at >= 0:
        closes_at = max(<int64_t>0, closes_at - now_ms(a.network))
        pause_ms = closes_at if pause_ms < 0 else min(pause_ms, closes_at)
    return pause_ms


cdef void wait_for_peers(Acceptor* a, int64_t wait_ms) noexcept nogil:
    cdef const PollerFunctions* poller = a.network.poller
    cdef Ready ready[READY_AT_ONCE]
    cdef int i, events = poller.wait(poller, a.poller, ready, READY_AT_ONCE, wait_ms)
    for i in range(events):
        if ready[i].owner == NULL:
            poller.clear(poller, a.waker)


cdef void* run_acceptor(void* argument) noexcept nogil:
    cdef Acceptor* a = <Acceptor*>argument
    name_thread("kafka-acceptor")
    while not counted(&a.network.stopping):
        wait_for_peers(a, prepare_accept(a))
    return NULL
