# Who may send requests: a peer that authenticates himself, a session that ends or is renewed, a peer that is refused.
#
# The SASL exchange itself is Python's, on handler threads. Here is what bounds it: the size of a frame, the memory of all
# peers that are not authenticated, and the time that each of them has.

cdef void begin_session(Connection* c) noexcept nogil:
    """Begin with an open connection, as its listener wants: it can receive frames from here on."""
    cdef Processor* p = c.processor
    c.stage = AUTHENTICATING if p.network.listeners[c.listener].authenticates else OPEN
    c.session_end_ns = 0
    c.renewed_ns = p.now - RENEWAL_PAUSE_NS
    if c.stage != OPEN:
        limit_authentication(c)
    elif p.network.listeners[c.listener].names_all:
        c.is_unknown = True


cdef void limit_authentication(Connection* c) noexcept nogil:
    """Let the connection be closed when its peer is not authenticated in time."""
    cdef Processor* p = c.processor
    start_timer(&p.wheel, &c.timer, p.now // 1000000 + p.network.authentication_ms + 1)


cdef int64_t largest_frame(Connection* c) noexcept nogil:
    cdef Network* network = c.processor.network
    return network.max_request_bytes if c.stage == OPEN else network.max_unauthenticated_bytes


cdef bint session_goes_on(Connection* c) noexcept nogil:
    """Return whether the request at ``begin`` may be handled: its session lasts, or the request begins to renew it.

    A request to renew it that comes too early is handled as any other. Source: ``SocketServer.processCompletedReceives``.
    """
    cdef Processor* p = c.processor
    if (
        c.request_size >= 2
        and get_i16(c.data + c.begin + SIZE_BYTES) == SASL_HANDSHAKE
        and p.now - c.renewed_ns >= RENEWAL_PAUSE_NS
    ):
        c.renewed_ns, c.stage = p.now, RENEWING
        limit_authentication(c)
        return True
    if p.now > c.session_end_ns:
        count(&p.counters.sessions_expired, 1)
        return False
    return True


cdef void open_session(Connection* c) noexcept nogil:
    """The peer is authenticated: its requests go their normal way until the session ends."""
    cdef Processor* p = c.processor
    cdef bint is_renewed = c.stage == RENEWING
    stop_timer(&p.wheel, &c.timer)
    stop_counting(c)
    c.stage, c.session_end_ns = OPEN, c.next_session_end_ns
    count(&p.counters.renewed if is_renewed else &p.counters.authenticated, 1)
    if not is_renewed:
        count(&p.counters.cannot_renew, not c.can_renew)


cdef void count_refused(Connection* c) noexcept nogil:
    """Count a peer that fails to authenticate himself."""
    cdef Processor* p = c.processor
    if c.stage != OPEN:
        count(&p.counters.renewals_failed if c.stage == RENEWING else &p.counters.authentications_failed, 1)


cdef void refuse(Connection* c, Answer* answer) noexcept nogil:
    """Let the answer wait for the end of the pause; then it is sent, and the connection is closed.

    Nothing is received meanwhile, and no thread waits. Source: ``Selector.maybeDelayCloseOnAuthenticationFailure``.
    """
    cdef Processor* p = c.processor
    count_refused(c)
    stop_timer(&p.wheel, &c.timer)
    forget_received(c)
    join_answers(&c.out, answer)
    if p.network.refusal_ms <= 0 or p.phase != RUNNING:
        end_connection(c)
        return
    c.state = CLOSING
    start_timer(&p.wheel, &c.timer, p.now // 1000000 + p.network.refusal_ms + 1)
    set_interest(c, 0)


cdef void end_timer(Connection* c) noexcept nogil:
    """Do what is due when the time of a connection has passed."""
    cdef Processor* p = c.processor
    if c.state == HANDSHAKING:
        count(&p.counters.failed_handshakes, 1)
        report_of(c, HANDSHAKE_TOO_SLOW, HANDSHAKE_MS)
        close_connection(c)
    elif c.state == CLOSING:
        end_connection(c)
    elif c.state == MUTED:
        unmute(c)
    elif c.stage != OPEN:
        count(&p.counters.not_authenticated, 1)
        report(p.network, NOT_AUTHENTICATED, p.network.authentication_ms, &c.peer)
        close_connection(c)
    else:
        count(&p.counters.expired, not c.is_delayed)
        resume(c, EXPIRED)


# -- the memory of peers that are not authenticated


cdef void stop_counting(Connection* c) noexcept nogil:
    c.processor.unauthenticated_bytes -= c.counted_bytes
    c.counted_bytes = 0


cdef void count_received(Connection* c) noexcept nogil:
    """Count the receive memory that the connection keeps, if it is large and the peer is not authenticated."""
    if c.stage != OPEN:
        stop_counting(c)
        c.counted_bytes = (c.capacity if c.capacity > SMALL_BYTES else 0) + c.records_size
        c.processor.unauthenticated_bytes += c.counted_bytes


cdef bint too_much_is_kept(Connection* c) noexcept nogil:
    """Close the connection if it is one of too many large ones without authentication. Return whether it was."""
    cdef Processor* p = c.processor
    if not c.counted_bytes or p.unauthenticated_bytes <= UNAUTHENTICATED_BYTES:
        return False
    report(p.network, UNAUTHENTICATED_MEMORY, UNAUTHENTICATED_BYTES, &c.peer)
    close_connection(c)
    return True
