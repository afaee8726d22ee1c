# Answers that handler threads send themselves, in plaintext: a client does not wait for the thread of its processor.
#
# While a request is queued its processor neither reads nor sends, if earlier answers are sent; all that it may do is
# close the connection. So the descriptor has two users meanwhile. The one that leaves it last closes it (``Sharing``).

cdef enum:
    # An answer that took less than one part in so many of the time that a connection may be idle is no new activity.
    IDLE_PARTS = 16


cdef void share_descriptor(Connection* c) noexcept nogil:
    """Let the handler thread that takes the request send its answer, if all of the connection's others are sent."""
    cdef bint shares = c.transport == &PLAINTEXT and c.stage == OPEN and c.out.size == 0 and c.out.range_count == 0
    if shares:
        forget_sent(c)
    c.shared_fd = c.fd
    store_number(&c.sharing, SHARED if shares else UNSHARED)
    # Until it is woken the processor keeps the memory of the request, does not see what is behind it, and reads no more
    # than it does now.
    c.wakes = not c.interest & READABLE or c.end - c.begin != SIZE_BYTES + c.request_size
    c.wakes = c.wakes or c.capacity > SMALL_BYTES or c.request_state != NULL


cdef bint take_descriptor(Connection* c) noexcept nogil:
    """Return whether the processor closes the descriptor. If not, the handler thread does, which sends with it."""
    return exchange_if(&c.sharing, SHARED, UNSHARED) or not exchange_if(&c.sharing, IN_USE, LEFT)


cdef int64_t send_directly(Connection* c, const Answer* answer) noexcept nogil:
    """Send what the kernel takes of an answer, on a handler thread. Return how many bytes that were.

    The processor sends the others, and sees the error if there was one.
    """
    cdef Network* network = c.processor.network
    cdef const PollerFunctions* poller = network.poller
    cdef int64_t sent
    if answer.range_count or counted(&network.measures_time) or not exchange_if(&c.sharing, SHARED, IN_USE):
        return 0
    sent = max(0, poller.send(poller, c.shared_fd, answer.data, answer.size, False))
    if not exchange_if(&c.sharing, IN_USE, UNSHARED):
        poller.close_connection(poller, c.shared_fd)
    count_shared(&c.processor.counters.bytes_of_handlers, sent)
    return sent


cdef bint answers_late(const Connection* c, int64_t now) noexcept nogil:
    """Return whether an answer that is given now is activity of the connection that its processor must note."""
    cdef const Network* network = c.processor.network
    return network.idle_ns >= 0 and now - c.arrived_ns > network.idle_ns // IDLE_PARTS


cdef bint wake_when_answered(Connection* c) noexcept nogil:
    """Have the answer to the queued request wake the processor. Return False if there is one already."""
    cdef Processor* p = c.processor
    lock(&p.mutex)
    cdef bint is_answered = c.has_result
    if not is_answered:
        c.wakes = True
    unlock(&p.mutex)
    return not is_answered
