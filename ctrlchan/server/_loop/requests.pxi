# The request queue: connections whose request a handler thread shall take, in the order of arrival.
#
# At most ``capacity`` requests are in it. Further ones are held: they move up when a request is taken, and are
# dropped when their connection is closed before. Each connection has one request at most, so both are lists
# through the connections, and need no memory.

cdef void link_request(RequestList* requests, Connection* c) noexcept nogil:
    c.queue_next, c.queue_previous = NULL, requests.last
    if requests.last != NULL:
        requests.last.queue_next = c
    else:
        requests.first = c
    requests.last = c
    requests.count += 1


cdef void unlink_request(RequestList* requests, Connection* c) noexcept nogil:
    if c.queue_previous != NULL:
        c.queue_previous.queue_next = c.queue_next
    else:
        requests.first = c.queue_next
    if c.queue_next != NULL:
        c.queue_next.queue_previous = c.queue_previous
    else:
        requests.last = c.queue_previous
    requests.count -= 1


cdef bint queue_request(RequestQueue* queue, Connection* c) noexcept nogil:
    """Queue the request of ``c`` for a handler thread. Return False when the queue is closed."""
    lock(&queue.mutex)
    cdef bint is_open = not queue.closed
    if is_open:
        c.held = queue.waiting.count >= queue.capacity
        link_request(&queue.held if c.held else &queue.waiting, c)
        if not c.held:
            signal(&queue.changed)
    unlock(&queue.mutex)
    return is_open


cdef bint drop_held(RequestQueue* queue, Connection* c) noexcept nogil:
    """Remove the request of ``c`` that is held and that no handler has seen. Return whether there was one."""
    lock(&queue.mutex)
    cdef bint held = c.held
    if held:
        unlink_request(&queue.held, c)
        c.held = False
    unlock(&queue.mutex)
    return held


cdef Connection* take_request(RequestQueue* queue, int64_t wait_ns) noexcept nogil:
    """Return the connection of the oldest request; NULL when none came in time or the queue is closed."""
    cdef Connection* taken
    cdef Connection* next_held
    cdef int64_t deadline = monotonic_ns() + wait_ns
    lock(&queue.mutex)
    queue.idle += 1
    while queue.waiting.first == NULL and not queue.closed and wait_ns > 0 and queue.wakes == 0:
        wait(&queue.changed, &queue.mutex, wait_ns)
        wait_ns = deadline - monotonic_ns()
    queue.idle -= 1
    if queue.wakes > 0:
        queue.wakes -= 1
    taken = queue.waiting.first
    if taken != NULL:
        unlink_request(&queue.waiting, taken)
        next_held = queue.held.first
        if next_held != NULL:
            unlink_request(&queue.held, next_held)
            next_held.held = False
            link_request(&queue.waiting, next_held)
            signal(&queue.changed)
    unlock(&queue.mutex)
    return taken


cdef void wake_idle(RequestQueue* queue) noexcept nogil:
    """Let all threads that wait for a request return, with a request that has come meanwhile or without one."""
    lock(&queue.mutex)
    queue.wakes = queue.idle
    broadcast(&queue.changed)
    unlock(&queue.mutex)


cdef void close_queue(RequestQueue* queue) noexcept nogil:
    """Wake all threads that wait. Requests that are in the queue can still be taken."""
    lock(&queue.mutex)
    queue.closed = True
    broadcast(&queue.changed)
    unlock(&queue.mutex)


cdef bint is_closed(RequestQueue* queue) noexcept nogil:
    lock(&queue.mutex)
    cdef bint closed = queue.closed
    unlock(&queue.mutex)
    return closed


cdef int64_t count_requests(RequestQueue* queue, const RequestList* requests) noexcept nogil:
    """Return the number of waiting or of held requests."""
    lock(&queue.mutex)
    cdef int64_t size = requests.count
    unlock(&queue.mutex)
    return size
