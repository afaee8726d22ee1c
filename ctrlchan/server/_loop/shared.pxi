# What all threads of a server share: events for the log, and the end of connections that have a limit.

cdef Event* next_event(Events* events) noexcept nogil:
    """Return room for an event, or NULL when the log is too slow: the event is counted. Requires the mutex."""
    require(&events.mutex)
    if events.count == EVENTS:
        events.left_out += 1
        return NULL
    events.count += 1
    return &events.ring[(events.first + events.count - 1) % EVENTS]


cdef void report(Network* network, EventKind kind, int64_t value, const Peer* peer) noexcept nogil:
    """Queue an event for the log: a thread of Python writes it."""
    report_at(network, kind, value, peer, -1)


cdef void report_of(Connection* c, EventKind kind, int64_t value) noexcept nogil:
    """Queue an event of a connection, with its listener."""
    report_at(c.processor.network, kind, value, &c.peer, c.listener)


cdef void report_at(Network* network, EventKind kind, int64_t value, const Peer* peer, int listener) noexcept nogil:
    cdef Event* event
    lock(&network.events.mutex)
    event = next_event(&network.events)
    if event != NULL:
        event.kind, event.value, event.listener = kind, value, listener
        if peer != NULL:
            event.peer = peer[0]
        else:
            memset(&event.peer, 0, sizeof(Peer))
        signal(&network.events.changed)
    unlock(&network.events.mutex)


cdef inline int64_t now_ms(const Network* network) noexcept nogil:
    return monotonic_ns_of(network.clock) // 1000000


cdef void wake_acceptors(Network* network) noexcept nogil:
    cdef int i
    for i in range(network.acceptor_count):
        network.poller.ring(network.poller, network.acceptors[i].waker)


cdef void wake_processors(Network* network) noexcept nogil:
    cdef int64_t i
    for i in range(load_number(&network.processor_count)):
        ring(&network.processors[i])


cdef void release_connection(Network* network, int listener, const Peer* peer) noexcept nogil:
    """Count a closed connection, and wake acceptors that wait for it."""
    if give_back_slot(network.quotas, listener, peer.ip):
        wake_acceptors(network)
