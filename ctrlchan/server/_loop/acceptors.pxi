# The thread of an acceptor: takes connections of one listener and gives them to its processors in turn.

cdef void accept_all(Acceptor* a, int64_t* pause_ms) noexcept nogil:
    """Accept until no connection waits. ``pause_ms`` is set when accepting must pause."""
    cdef Network* network = a.network
    cdef Processor* p
    cdef Peer peer
    cdef int64_t limit
    cdef int fd, error
    while reserve_connection(network):
        fd = accept_peer(a.listener_fd, &peer)
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
            close(fd)
            release_connection(network, NULL)
            continue
        configure_connection(fd, network.send_buffer)
        p = &network.processors[a.first_processor + a.next_processor]
        a.next_processor = (a.next_processor + 1) % a.processor_count
        if not give_connection(p, fd, a.index, &PLAINTEXT, &peer):
            report(network, NO_MEMORY, 0, &peer)
            release_connection(network, peer.ip)
            close(fd)
    pause_ms[0] = -1


cdef void* run_acceptor(void* argument) noexcept nogil:
    cdef Acceptor* a = <Acceptor*>argument
    cdef Ready ready[READY_AT_ONCE]
    cdef int64_t pause_ms
    cdef int interest = READABLE, wanted, i, events
    name_thread("kafka-acceptor")
    while not counted(&a.network.stopping):
        # 0: wait for connections; more: pause so long; -1: pause until a connection is closed.
        pause_ms = 0
        accept_all(a, &pause_ms)
        wanted = READABLE if pause_ms == 0 else 0
        if wanted != interest:
            if poller_change(a.poller, a.listener_fd, interest, wanted, a) == 0:
                interest = wanted
        events = poller_wait(a.poller, ready, READY_AT_ONCE, pause_ms if pause_ms > 0 else -1)
        for i in range(events):
            if ready[i].owner == NULL:
                waker_clear(a.waker)
    return NULL
