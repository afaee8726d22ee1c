# What all threads of a server share: limits on connections, and events for the log. Each has its own mutex.

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


@cython.overflowcheck(False)
cdef int32_t hash_of(const uint8_t* ip) noexcept nogil:
    cdef uint32_t value = 2166136261
    cdef int i
    for i in range(16):
        value = (value ^ ip[i]) * <uint32_t>16777619
    return <int32_t>((value ^ (value >> 16)) % IP_BUCKETS)


cdef bint reserve_connection(Network* network) noexcept nogil:
    """Count a connection before it is accepted. Return False, and wake the acceptors later, when there are too many."""
    cdef Quotas* quotas = &network.quotas
    lock(&quotas.mutex)
    cdef bint is_free = quotas.total < quotas.max_connections
    if is_free:
        quotas.total += 1
    else:
        quotas.acceptors_wait = True
    unlock(&quotas.mutex)
    return is_free


cdef void release_connection(Network* network, const uint8_t* ip) noexcept nogil:
    """Count a closed connection, and wake acceptors that wait for it. ``ip``: NULL before ``admit``."""
    cdef Quotas* quotas = &network.quotas
    cdef IpCount** place
    cdef IpCount* entry
    cdef bint wake
    cdef int i
    lock(&quotas.mutex)
    quotas.total -= 1
    if ip != NULL:
        place = place_of(quotas, ip)
        entry = place[0]
        if entry != NULL:
            entry.count -= 1
            if entry.count == 0:
                place[0] = entry.next
                free(entry)
    wake = quotas.acceptors_wait
    quotas.acceptors_wait = False
    unlock(&quotas.mutex)
    if wake:
        for i in range(network.acceptor_count):
            network.poller.ring(network.poller, network.acceptors[i].waker)


cdef IpCount** place_of(Quotas* quotas, const uint8_t* ip) noexcept nogil:
    """Return where the entry of an address stands, or where it would be appended. Requires the mutex."""
    cdef IpCount** place
    require(&quotas.mutex)
    place = &quotas.buckets[hash_of(ip)]
    while place[0] != NULL and memcmp(place[0].ip, ip, 16) != 0:
        place = &place[0].next
    return place


cdef int64_t admit(Network* network, const uint8_t* ip) noexcept nogil:
    """Count a connection for its address. Return -1, or the limit of the address when that is reached already."""
    cdef Quotas* quotas = &network.quotas
    cdef int64_t limit, refused = -1
    cdef int i
    cdef IpCount** place
    lock(&quotas.mutex)
    limit = quotas.max_per_ip
    for i in range(quotas.override_count):
        if memcmp(quotas.overrides[i].ip, ip, 16) == 0:
            limit = quotas.overrides[i].count
    place = place_of(quotas, ip)
    if (place[0].count if place[0] != NULL else 0) >= limit:
        refused = limit
    else:
        if place[0] == NULL:
            place[0] = <IpCount*>calloc(1, sizeof(IpCount))
            if place[0] != NULL:
                memcpy(place[0].ip, ip, 16)
        # Without memory for its entry the connection counts for the server alone.
        if place[0] != NULL:
            place[0].count += 1
    unlock(&quotas.mutex)
    return refused


cdef void set_limits(
    Network* network, int64_t max_connections, int64_t max_per_ip, IpCount* overrides, int override_count
) noexcept nogil:
    """Replace the limits, whose addresses become the server's memory, and wake acceptors that wait."""
    cdef Quotas* quotas = &network.quotas
    cdef IpCount* replaced
    cdef int i
    lock(&quotas.mutex)
    quotas.max_connections, quotas.max_per_ip = max_connections, max_per_ip
    replaced, quotas.overrides = quotas.overrides, overrides
    quotas.override_count = override_count
    quotas.acceptors_wait = False
    unlock(&quotas.mutex)
    free(replaced)
    for i in range(network.acceptor_count):
        network.poller.ring(network.poller, network.acceptors[i].waker)
