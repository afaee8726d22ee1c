# The memory of requests that were received and are not handled (queued.max.request.bytes): all connections of a server take
# theirs from one pool. Kafka's SimpleMemoryPool, which is not strict: a request gets all that it needs while one byte is left.
#
# A connection takes the memory of a frame when it knows its size, and gives it back when the request is answered, parked, or
# waits for others (``TakenRequest.return_memory``): what lets a parked request end may be another one. While the pool is empty,
# connections without memory are not read. What came with the size of their frame, at most a receive buffer, stays.
#
# The pool has no lock. A processor that has such connections says so (``needs_memory``) before it looks at the pool again;
# who gives memory back adds it before looking for such processors. So one of both sees the other.


cdef bint take_memory(MemoryPool* pool, int64_t size) noexcept nogil:
    """Take ``size`` bytes, if the pool is not empty. Return whether they were taken."""
    cdef int64_t available = load_number(&pool.available)
    while available > 0:
        if exchange_if(&pool.available, available, available - size):
            return True
        available = load_number(&pool.available)
    return False


cdef bint reserve_memory(Connection* c, int64_t size) noexcept nogil:
    """Take the memory of the frame at ``begin``. Return False if there is none: the connection waits for it.

    Frames of peers that are not authenticated have a limit of their own (``UNAUTHENTICATED_BYTES``).
    """
    cdef Network* network = c.processor.network
    cdef MemoryPool* pool = &network.memory
    if pool.size == 0 or c.stage != OPEN or load_number(&c.reserved) > 0:
        return True
    # With the size before it, so that an empty frame needs memory, too
    size += SIZE_BYTES
    if not take_memory(pool, size):
        wait_for_memory(c)
        if not take_memory(pool, size):
            exchange_if(&pool.empty_since, 0, monotonic_ns_of(network.clock))
            return False
    stop_waiting(c)
    store_number(&c.reserved, size)
    return True


cdef bint may_receive(Connection* c) noexcept nogil:
    """Return whether there is memory for the frame at ``begin``, if its size is known. A wrong size is for ``next_frame``."""
    cdef int32_t size
    if c.processor.network.memory.size == 0 or c.end - c.begin < SIZE_BYTES:
        return True
    size = get_i32(c.data + c.begin)
    return size < 0 or size > largest_frame(c) or reserve_memory(c, size)


cdef void give_memory_back(Connection* c) noexcept nogil:
    """Return the memory of the request to the pool, and wake the processors that wait for some. May be called again."""
    cdef Network* network = c.processor.network
    cdef MemoryPool* pool = &network.memory
    cdef int64_t since, size
    cdef int i
    if pool.size == 0:
        return
    size = load_number(&c.reserved)
    # A processor and a handler thread may do it at the same time.
    if size == 0 or not exchange_if(&c.reserved, size, 0):
        return
    if add_and_get(&pool.available, size) <= 0:
        return
    since = load_number(&pool.empty_since)
    if since and exchange_if(&pool.empty_since, since, 0):
        count_shared(&pool.empty_ns, monotonic_ns_of(network.clock) - since)
    for i in range(load_number(&network.processor_count)):
        if load_number(&network.processors[i].needs_memory):
            ring(&network.processors[i])


# -- connections of a processor that wait for memory, in the order in which they began


cdef void wait_for_memory(Connection* c) noexcept nogil:
    cdef Processor* p = c.processor
    if not c.waits_for_memory:
        c.waits_for_memory = True
        c.next_waiting, c.previous_waiting = NULL, p.last_waiting
        if p.last_waiting != NULL:
            p.last_waiting.next_waiting = c
        else:
            p.first_waiting = c
        p.last_waiting = c
    store_number(&p.needs_memory, True)


cdef void stop_waiting(Connection* c) noexcept nogil:
    cdef Processor* p = c.processor
    if not c.waits_for_memory:
        return
    c.waits_for_memory = False
    if c.previous_waiting != NULL:
        c.previous_waiting.next_waiting = c.next_waiting
    else:
        p.first_waiting = c.next_waiting
    if c.next_waiting != NULL:
        c.next_waiting.previous_waiting = c.previous_waiting
    else:
        p.last_waiting = c.previous_waiting
    if p.first_waiting == NULL:
        store_number(&p.needs_memory, False)


cdef void hand_out_memory(Processor* p) noexcept nogil:
    """Go on with connections that wait for memory, each once, while there is some."""
    cdef Connection* last = p.last_waiting
    cdef Connection* c = NULL
    while c != last and p.first_waiting != NULL and load_number(&p.network.memory.available) > 0:
        c = p.first_waiting
        # It waits again, behind the others, if another one was faster.
        stop_waiting(c)
        go_on(c)
