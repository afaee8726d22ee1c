# A request queue: connections whose request a handler thread shall take, in the order of arrival. With a listener of the
# controller there are two, each with handler threads of its own (KIP-291).
#
# At most ``capacity`` requests are in it. Further ones are held: they move up when a request is taken, and are
# dropped when their connection is closed before. Each connection has one request at most, so both are lists
# through the connections, and need no memory.
#
# Handler threads take turns, because only one of them can run Python: eight that all want the GIL need three times the
# processor time of one. The thread that has taken a request has the turn until it comes back for the next one. One that
# takes longer, as it waits for something, loses the turn: an idle thread watches it while requests wait.
#
# Work that answered requests have left is in the data plane's queue, and comes before the next request. There is one kind:
# whoever takes it does all.

cdef enum:
    # How long a handler thread keeps the turn while requests wait
    TURN_NS = 2000000

cdef inline RequestQueue* queue_of(const Connection* c) noexcept nogil:
    """Return the queue of the connection's listener."""
    cdef Network* network = c.processor.network
    return &network.queues[network.listeners[c.listener].plane]


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
            note_waiting(queue)
            if queue.turn == NULL or not queue.is_watched:
                wake_one(queue)
    unlock(&queue.mutex)
    return is_open


cdef void queue_work(RequestQueue* queue) noexcept nogil:
    """Have a handler thread do the work that is left."""
    lock(&queue.mutex)
    queue.has_work = True
    if queue.turn == NULL or not queue.is_watched:
        wake_one(queue)
    unlock(&queue.mutex)


cdef bint take_work(RequestQueue* queue) noexcept nogil:
    """Return whether work is left. The calling thread does it."""
    lock(&queue.mutex)
    cdef bint has_work = queue.has_work
    queue.has_work = False
    unlock(&queue.mutex)
    return has_work


cdef inline bint has_something(const RequestQueue* queue) noexcept nogil:
    return queue.has_work or queue.waiting.first != NULL


cdef bint drop_held(RequestQueue* queue, Connection* c) noexcept nogil:
    """Remove the request of ``c`` that is held and that no handler has seen. Return whether there was one."""
    lock(&queue.mutex)
    cdef bint held = c.held
    if held:
        unlink_request(&queue.held, c)
        c.held = False
    unlock(&queue.mutex)
    return held


cdef void note_waiting(RequestQueue* queue) noexcept nogil:
    """Count the time without waiting requests. Called after each change of ``waiting``."""
    if queue.waiting.count == 0:
        queue.empty_since = monotonic_ns()
    elif queue.empty_since:
        queue.empty_ns += monotonic_ns() - queue.empty_since
        queue.empty_since = 0


cdef void wake_one(RequestQueue* queue) noexcept nogil:
    """Wake the thread that ran last, whose memory is in the caches, or another one if it does not wait."""
    signal(&queue.next_changed if queue.has_next else &queue.changed)


cdef int64_t time_until_turn(const RequestQueue* queue) noexcept nogil:
    """Return for how many nanoseconds another thread keeps the turn; 0 or less: the turn is free."""
    return queue.turn_began + TURN_NS - monotonic_ns() if queue.turn != NULL else 0


cdef void wait_for_request(RequestQueue* queue, int64_t wait_ns) noexcept nogil:
    """Wait until there may be something to take. One of the threads that wait while requests do watches the turn."""
    if has_something(queue) and not queue.is_watched:
        queue.is_watched = True
        wait(&queue.changed, &queue.mutex, min(wait_ns, time_until_turn(queue)))
        queue.is_watched = False
    elif not queue.has_next:
        queue.has_next = True
        wait(&queue.next_changed, &queue.mutex, wait_ns)
        queue.has_next = False
    else:
        wait(&queue.changed, &queue.mutex, wait_ns)


cdef Connection* take_request(RequestQueue* queue, int64_t wait_ns) noexcept nogil:
    """Return the connection of the oldest request; NULL when none came in time, work is left, or the queue is closed.

    The calling thread has the turn from here on; without time to wait it gets it at once.
    """
    cdef Connection* taken
    cdef Connection* next_held
    cdef int64_t deadline = monotonic_ns() + wait_ns
    lock(&queue.mutex)
    if queue.turn == this_thread():
        queue.turn = NULL
    queue.idle += 1
    while wait_ns > 0 and queue.wakes == 0:
        if time_until_turn(queue) <= 0 if has_something(queue) else queue.closed:
            break
        wait_for_request(queue, wait_ns)
        wait_ns = deadline - monotonic_ns()
    queue.idle -= 1
    if queue.wakes > 0:
        queue.wakes -= 1
    taken = NULL if queue.has_work else queue.waiting.first
    if taken != NULL or queue.has_work:
        queue.turn, queue.turn_began = this_thread(), monotonic_ns()
    if taken != NULL:
        unlink_request(&queue.waiting, taken)
        next_held = queue.held.first
        if next_held != NULL:
            unlink_request(&queue.held, next_held)
            next_held.held = False
            link_request(&queue.waiting, next_held)
        note_waiting(queue)
    if has_something(queue) and not queue.is_watched:
        wake_one(queue)
    unlock(&queue.mutex)
    return taken


cdef int64_t time_without_requests(RequestQueue* queue) noexcept nogil:
    """Return for how many nanoseconds no request has waited since the start."""
    lock(&queue.mutex)
    cdef int64_t time = queue.empty_ns + (monotonic_ns() - queue.empty_since if queue.empty_since else 0)
    unlock(&queue.mutex)
    return time


cdef void wake_idle(RequestQueue* queue) noexcept nogil:
    """Let all threads that wait for a request return, with a request that has come meanwhile or without one."""
    lock(&queue.mutex)
    queue.wakes = queue.idle
    broadcast(&queue.changed)
    broadcast(&queue.next_changed)
    unlock(&queue.mutex)


cdef void close_queue(RequestQueue* queue) noexcept nogil:
    """Wake all threads that wait. Requests that are in the queue can still be taken."""
    lock(&queue.mutex)
    queue.closed = True
    broadcast(&queue.changed)
    broadcast(&queue.next_changed)
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
