# TLS before the first request, whatever does it (``tls.pxi``, ``python_tls.pxi``), and what bounds it.
#
# A connection of a TLS listener begins in the state HANDSHAKING, without memory for TLS: that comes with the peer's
# first byte, which is looked at: so the log can say that a peer does not speak TLS at all. A handshake has a time limit,
# and a processor has at most MAX_HANDSHAKES of them: one more closes the oldest.


cdef void begin_tls(Connection* c) noexcept nogil:
    """Wait for the first byte of the handshake, for a limited time."""
    cdef Processor* p = c.processor
    c.state, c.stage = HANDSHAKING, OPEN
    start_timer(&p.wheel, &c.timer, p.now // 1000000 + HANDSHAKE_MS + 1)


cdef bint speaks_tls(Connection* c) noexcept nogil:
    """Return whether the first byte of a handshake is there. A connection that begins with another one is closed."""
    cdef uint8_t first[SIZE_BYTES]
    cdef int64_t size
    memset(first, 0, SIZE_BYTES)
    size = look_at_bytes(c.fd, first, SIZE_BYTES)
    if size < 0 and (errno == EAGAIN or errno == EWOULDBLOCK or errno == EINTR):
        return False
    if size <= 0:
        # The peer has gone without a word, as probes of load balancers do.
        close_connection(c)
        return False
    if first[0] != HANDSHAKE_RECORD:
        count(&c.processor.counters.failed_handshakes, 1)
        report_of(c, NOT_TLS, get_i32(first))
        close_connection(c)
        return False
    return True


cdef void link_handshake(Connection* c) noexcept nogil:
    """Make the connection the last one of those that shake hands, and close the first of too many."""
    cdef Processor* p = c.processor
    if p.handshakes == MAX_HANDSHAKES:
        count(&p.counters.failed_handshakes, 1)
        report_of(p.first_handshake, TOO_MANY_HANDSHAKES, MAX_HANDSHAKES)
        close_connection(p.first_handshake)
    c.next_handshake, c.previous_handshake = NULL, p.last_handshake
    if p.last_handshake != NULL:
        p.last_handshake.next_handshake = c
    else:
        p.first_handshake = c
    p.last_handshake = c
    p.handshakes += 1


cdef void unlink_handshake(Connection* c) noexcept nogil:
    cdef Processor* p = c.processor
    if c.previous_handshake != NULL:
        c.previous_handshake.next_handshake = c.next_handshake
    else:
        p.first_handshake = c.next_handshake
    if c.next_handshake != NULL:
        c.next_handshake.previous_handshake = c.previous_handshake
    else:
        p.last_handshake = c.previous_handshake
    p.handshakes -= 1


cdef void fail_handshake(Connection* c, int64_t reason) noexcept nogil:
    """Close a connection whose handshake has failed. ``reason``: for ``why_tls_failed``."""
    count(&c.processor.counters.failed_handshakes, 1)
    report_of(c, HANDSHAKE_FAILED, reason)
    close_connection(c)


cdef void begin_requests(Connection* c) noexcept nogil:
    """The handshake has ended: requests may come."""
    cdef Processor* p = c.processor
    stop_timer(&p.wheel, &c.timer)
    unlink_handshake(c)
    c.state = IDLE
    count(&p.counters.handshakes, 1)
    c.spare_records, c.spare_second = SPARE_RECORDS, p.now // 1000000000
    touch(c)
    begin_session(c)


cdef bint allow_record(Connection* c) noexcept nogil:
    """Count a record without data. Return False, and note a flood, when the peer has sent too many."""
    cdef int64_t second = c.processor.now // 1000000000
    c.spare_records = min(SPARE_RECORDS, c.spare_records + second - c.spare_second)
    c.spare_second = second
    if c.spare_records > 0:
        c.spare_records = c.spare_records - 1
        return True
    c.is_flooding = True
    return False


# -- the name in the peer's certificate


cdef uint8_t* room_for_subject(Connection* c, int size) noexcept nogil:
    """Return room for the name, which a handler thread reads before the first request is handled; NULL without memory."""
    c.is_unknown = True
    c.subject = <uint8_t*>malloc(size) if size > 0 else NULL
    if c.subject != NULL:
        c.subject_size = size
    return c.subject


cdef void forget_subject(Connection* c) noexcept nogil:
    free(c.subject)
    c.subject = NULL
    c.subject_size = 0
    c.is_unknown = False


# -- what the poller watches


cdef int wanted_events(Connection* c, bint unsent, int events) noexcept nogil:
    """Return for what the poller shall watch: where TLS needs the other direction, for that."""
    if unsent and c.write_needs_read:
        return (events & ~WRITABLE) | READABLE
    if not unsent and c.read_needs_write and c.state == IDLE:
        # Bytes that come meanwhile stay in the socket.
        return (events & ~READABLE) | WRITABLE
    return events
