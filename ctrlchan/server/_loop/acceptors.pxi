# The thread of an acceptor: takes connections of one listener and gives them to its processors in turn.

cdef void accept_all(Acceptor* a, int64_t* pause_ms) noexcept nogil:
    """Accept until no connection waits. ``pause_ms`` is set when accepting must pause."""
    cdef Network* network = a.network
    cdef const PollerFunctions* poller = network.poller
    cdef Processor* p
    cdef Peer peer
    cdef int64_t limit
    cdef int fd, error
    while reserve_connection(network):
        fd = poller.accept(poller, a.listener_fd, &peer)
        if fd < 0:
            error = errno
            release_connection(network, NULL)
            if error == EINTR or error == ECONNABORTED:
                continue
            if error != EAGAIN and error != EWOULDBLOCK:
                # No descriptor is free (EMFILE, ENFILE), or no memory: the connection waits in the backlog.
                report(network, ACCEPT_FAILED, error, NULL)
                count(&a.accept_errors, 1)
                pause_ms[0] = ACCEPT_PAUSE_MS
            return
        limit = admit(network, peer.ip)
        if limit >= 0:
            report(network, TOO_MANY_OF_IP, limit, &peer)
            count(&a.rejected, 1)
            poller.close_connection(poller, fd)
            release_connection(network, NULL)
            continue
        poller.configure(poller, fd, network.send_buffer)
        a.next_processor = (a.next_processor + 1) % load_number(&a.processor_count)
        p = &network.processors[a.processors[a.next_processor]]
        if not give_connection(p, fd, a.index, a.transport, &peer):
            report(network, NO_MEMORY, 0, &peer)
            release_connection(network, peer.ip)
            poller.close_connection(poller, fd)
    pause_ms[0] = -1


cdef int64_t prepare_accept(Acceptor* a) noexcept nogil:
    """Accept what waits, and return for how many milliseconds the poller may wait for more; -1: for ever."""
    cdef const PollerFunctions* poller = a.network.poller
    # 0: wait for connections; more: pause so long; -1: pause until a connection is closed.
    cdef int64_t pause_ms = 0
    cdef int wanted
    accept_all(a, &pause_ms)
    wanted = READABLE if pause_ms == 0 else 0
    if wanted != a.interest:
        if poller.change(poller, a.poller, a.listener_fd, a.interest, wanted, a) == 0:
            a.interest = wanted
    return pause_ms if pause_ms > 0 else -1


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
