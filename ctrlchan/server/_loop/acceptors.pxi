# The thread of an acceptor: takes connections of its listeners and gives them to its processors in turn.

cdef bint take_peer(Listener* listener, int64_t* pause_ms) noexcept nogil:
    """Take the next connection that waits. Return False if there is none; ``pause_ms`` is set when accepting must pause."""
    cdef Network* network = listener.acceptor.network
    cdef const PollerFunctions* poller = network.poller
    cdef int fd, error
    while True:
        fd = poller.accept(poller, listener.fd, &listener.peer)
        if fd >= 0:
            break
        error = errno
        if error == EINTR or error == ECONNABORTED:
            continue
        if error != EAGAIN and error != EWOULDBLOCK:
            # No descriptor is free (EMFILE, ENFILE), or no memory: the connection waits in the backlog.
            report(network, ACCEPT_FAILED, error, NULL)
            count(&listener.accept_errors, 1)
            pause_ms[0] = ACCEPT_PAUSE_MS
        return False
    listener.waiting_fd = fd
    listener.throttled_until = now_ms(network) + record_arrival(network.quotas, listener.index)
    return True


cdef void begin_blocked(Listener* listener) noexcept nogil:
    if counted(&listener.blocked_ns) >= 0:
        count(&listener.blocked_ns, -monotonic_ns_of(listener.acceptor.network.clock))


cdef void end_blocked(Listener* listener) noexcept nogil:
    if counted(&listener.blocked_ns) < 0:
        count(&listener.blocked_ns, monotonic_ns_of(listener.acceptor.network.clock))


cdef void reject_connection(Listener* listener) noexcept nogil:
    """Close the connection that waits."""
    listener.acceptor.network.poller.close_connection(listener.acceptor.network.poller, listener.waiting_fd)
    listener.waiting_fd = -1


cdef void close_later(Listener* listener, int64_t wait_ms) noexcept nogil:
    """Close the connection that waits, when so many milliseconds have passed."""
    cdef Acceptor* a = listener.acceptor
    cdef ThrottledConnection* throttled = NULL
    count(&listener.ip_throttled, 1)
    if a.throttled.count < MOST_THROTTLED:
        throttled = <ThrottledConnection*>calloc(1, sizeof(ThrottledConnection))
    if throttled == NULL:
        reject_connection(listener)
        return
    throttled.fd, listener.waiting_fd = listener.waiting_fd, -1
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


cdef void give_to_processor(Listener* listener) noexcept nogil:
    """Give the connection that waits to the next of the processors."""
    cdef Acceptor* a = listener.acceptor
    cdef Network* network = a.network
    cdef Processor* p
    network.poller.configure(network.poller, listener.waiting_fd, network.send_buffer)
    a.next_processor = (a.next_processor + 1) % load_number(&a.processor_count)
    p = &network.processors[a.processors[a.next_processor]]
    if give_connection(p, listener.waiting_fd, listener.index, listener.transport, &listener.peer):
        listener.waiting_fd = -1
    else:
        report(network, NO_MEMORY, 0, &listener.peer)
        release_connection(network, listener.index, &listener.peer)
        reject_connection(listener)
    if counted(&network.quotas.excess):
        wake_processors(network)


cdef void accept_all(Listener* listener, int64_t* pause_ms) noexcept nogil:
    """Accept until no connection waits. ``pause_ms`` is set when accepting must pause."""
    cdef Network* network = listener.acceptor.network
    cdef int64_t value = 0
    cdef Admission admission
    while listener.waiting_fd >= 0 or take_peer(listener, pause_ms):
        if now_ms(network) < listener.throttled_until:
            begin_blocked(listener)
            pause_ms[0] = listener.throttled_until - now_ms(network)
            return
        admission = admit(network.quotas, listener.index, listener.peer.ip, &value)
        if admission == NO_SLOT:
            begin_blocked(listener)
            pause_ms[0] = -1
            return
        end_blocked(listener)
        if admission == IP_THROTTLED:
            close_later(listener, value)
        elif admission == TOO_MANY_OF_IP:
            report(network, TOO_MANY_CONNECTIONS_OF_IP, value, &listener.peer)
            count(&listener.rejected, 1)
            reject_connection(listener)
        else:
            give_to_processor(listener)


cdef int64_t prepare_accept(Acceptor* a) noexcept nogil:
    """Accept what waits, and return for how many milliseconds the poller may wait for more; -1: for ever."""
    cdef const PollerFunctions* poller = a.network.poller
    cdef Listener* listener
    cdef int64_t pause_ms, wait_ms = -1
    cdef int i, slot = 0, wanted
    close_throttled(a, now_ms(a.network))
    for i in range(a.listener_count):
        listener = &a.listeners[i]
        if not listener.is_ready:
            continue
        # 0: wait for connections; more: pause so long; -1: pause until a connection is closed.
        pause_ms = 0
        accept_all(listener, &pause_ms)
        listener.is_ready = pause_ms != 0
        wanted = READABLE if pause_ms == 0 else 0
        if wanted != listener.interest:
            if poller.change(poller, a.poller, listener.fd, listener.interest, wanted, listener) == 0:
                listener.interest = wanted
        if pause_ms > 0:
            wait_ms = earlier_of(wait_ms, pause_ms)
    pause_ms = next_slot(&a.throttled, &slot)
    if pause_ms >= 0:
        wait_ms = earlier_of(wait_ms, max(<int64_t>0, pause_ms - now_ms(a.network)))
    return wait_ms


cdef inline int64_t earlier_of(int64_t wait_ms, int64_t other_ms) noexcept nogil:
    """Return the shorter of two times to wait. The first may be -1, which is for ever."""
    return other_ms if wait_ms < 0 else min(wait_ms, other_ms)


cdef void wait_for_peers(Acceptor* a, int64_t wait_ms) noexcept nogil:
    cdef const PollerFunctions* poller = a.network.poller
    cdef Ready ready[READY_AT_ONCE]
    cdef int i, events = poller.wait(poller, a.poller, ready, READY_AT_ONCE, wait_ms)
    for i in range(events):
        if ready[i].owner == NULL:
            poller.clear(poller, a.waker)
        else:
            (<Listener*>ready[i].owner).is_ready = True


cdef void* run_acceptor(void* argument) noexcept nogil:
    cdef Acceptor* a = <Acceptor*>argument
    name_thread("kafka-acceptor")
    while not counted(&a.network.stopping):
        wait_for_peers(a, prepare_accept(a))
    return NULL
