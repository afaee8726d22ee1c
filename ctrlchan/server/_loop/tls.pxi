# TLS of a libssl: another Transport. All of it runs without the GIL.
#
# OpenSSL may want to write when it is asked to read (an answer to KeyUpdate), and the reverse: ``read_needs_write`` and
# ``write_needs_read`` say so, and ``wanted_events`` turns the poller's interest around. It may have bytes that the poller
# does not see: ``has_more``.
#
# A call of OpenSSL reads records until one has data. A peer could keep it busy for ever with records that have none:
# ``count_record`` stops that.


cdef int64_t failure_number(SSL* ssl) noexcept nogil:
    """Return the reason of a failure for ``why_tls_failed``: OpenSSL's last error, and why a certificate is not trusted."""
    cdef const OpenSsl* openssl = openssl_functions()
    cdef unsigned long error = openssl.ERR_peek_error()
    return (<int64_t>openssl.SSL_get_verify_result(ssl) << 32) | <int64_t><uint32_t>error


cdef inline void forget_errors(const OpenSsl* openssl) noexcept nogil:
    """Empty OpenSSL's queue of errors of this thread: SSL_get_error takes an old error for that of the last call.

    To look first is right for the speed: OpenSSL empties all 16 places of an empty queue, too.
    """
    if openssl.ERR_peek_error() != 0:
        openssl.ERR_clear_error()


# -- the handshake


cdef bint open_tls(Connection* c) noexcept nogil:
    """Make OpenSSL's part of the connection when its first byte is there. Return whether the handshake may go on."""
    cdef Processor* p = c.processor
    cdef const OpenSsl* openssl = openssl_functions()
    cdef Listener* listener = &p.network.listeners[c.listener]
    if not speaks_tls(c):
        return False
    lock(&p.network.tls_mutex)
    c.ssl = openssl.SSL_new(listener.tls)
    unlock(&p.network.tls_mutex)
    if c.ssl != NULL and openssl.SSL_set_fd(c.ssl, c.fd) != 1:
        # It is not among the handshakes yet, from which ``end_tls`` would remove it.
        openssl.SSL_free(c.ssl)
        c.ssl = NULL
    if c.ssl == NULL:
        report(p.network, NO_MEMORY, 0, &c.peer)
        close_connection(c)
        return False
    openssl.SSL_set_accept_state(c.ssl)
    link_handshake(c)
    return True


cdef void shake_hands_tls(Connection* c) noexcept nogil:
    """Go on with the handshake as far as the socket allows."""
    cdef const OpenSsl* openssl = openssl_functions()
    cdef int result, error
    if c.ssl == NULL and not open_tls(c):
        return
    openssl.ERR_clear_error()
    result = openssl.SSL_do_handshake(c.ssl)
    if result == 1:
        end_handshake(c)
        return
    error = openssl.SSL_get_error(c.ssl, result)
    if error == SSL_ERROR_WANT_READ:
        set_interest(c, READABLE)
    elif error == SSL_ERROR_WANT_WRITE:
        set_interest(c, WRITABLE)
    else:
        c.is_broken = True
        fail_handshake(c, failure_number(c.ssl) if error == SSL_ERROR_SSL else 0)


cdef void end_handshake(Connection* c) noexcept nogil:
    """Begin with requests. Bytes of the first ones may have come with the end of the handshake."""
    cdef const OpenSsl* openssl = openssl_functions()
    begin_requests(c)
    if not keep_subject(c):
        report(c.processor.network, NO_MEMORY, 0, &c.peer)
        close_connection(c)
        return
    c.kernel_sends = (
        openssl.SSL_sendfile != NULL
        and openssl.BIO_ctrl(openssl.SSL_get_wbio(c.ssl), BIO_CTRL_GET_KTLS_SEND, 0, NULL) > 0
    )
    openssl.SSL_set_msg_callback(c.ssl, count_record)
    openssl.SSL_ctrl(c.ssl, SSL_CTRL_SET_MSG_CALLBACK_ARG, 0, c)
    set_interest(c, READABLE)
    if c.fd >= 0 and has_more_tls(c):
        receive(c)


cdef void count_record(
    int is_sent, int version, int part, const void* data, size_t size, SSL* ssl, void* context
) noexcept nogil:
    """Let OpenSSL stop reading when the peer has sent too many records without data. OpenSSL calls this."""
    cdef Connection* c = <Connection*>context
    # A record of TLS 1.3 looks as if it had data; what it is, its last byte says.
    if is_sent or size == 0 or part != SSL3_RT_HEADER and part != SSL3_RT_INNER_CONTENT_TYPE:
        return
    if (<const uint8_t*>data)[0] == DATA_RECORD:
        return
    if not allow_record(c):
        # As if the peer had said goodbye: OpenSSL looks at this for each record, and reads none after it.
        openssl_functions().SSL_set_shutdown(ssl, SSL_RECEIVED_SHUTDOWN)


cdef bint keep_subject(Connection* c) noexcept nogil:
    """Keep the name in the peer's certificate, if it has shown one. Return False without memory."""
    cdef const OpenSsl* openssl = openssl_functions()
    cdef X509* certificate = openssl.SSL_get1_peer_certificate(c.ssl)
    cdef X509_NAME* name
    cdef uint8_t* place
    cdef int size
    if certificate == NULL or not c.processor.network.listeners[c.listener].names_peers:
        if certificate != NULL:
            openssl.X509_free(certificate)
        return True
    name = openssl.X509_get_subject_name(certificate)
    size = openssl.i2d_X509_NAME(name, NULL)
    place = room_for_subject(c, size)
    if place != NULL:
        openssl.i2d_X509_NAME(name, &place)
    openssl.X509_free(certificate)
    return c.subject != NULL


cdef void end_tls(Connection* c) noexcept nogil:
    """Say goodbye (close_notify), and give OpenSSL's part of the connection back. The socket is still open."""
    cdef const OpenSsl* openssl = openssl_functions()
    if c.ssl == NULL:
        return
    if c.state == HANDSHAKING:
        unlink_handshake(c)
    elif not c.is_broken and c.retry_bytes == 0:
        openssl.ERR_clear_error()
        openssl.SSL_shutdown(c.ssl)
    openssl.SSL_free(c.ssl)
    c.ssl = NULL


# -- bytes


cdef int64_t failed(Connection* c, int result, bint* needs_other, int other) noexcept nogil:
    """Return what a Transport returns after OpenSSL has moved no byte; 0: the peer has said goodbye or is gone."""
    cdef const OpenSsl* openssl = openssl_functions()
    # Before any other call
    cdef int cause = errno
    cdef int error = openssl.SSL_get_error(c.ssl, result)
    if c.is_flooding:
        c.is_broken = c.has_ended = True
        report_of(c, TOO_MANY_RECORDS, SPARE_RECORDS)
        set_errno(ECONNRESET)
        return -1
    needs_other[0] = error == other
    if error == SSL_ERROR_WANT_READ or error == SSL_ERROR_WANT_WRITE:
        c.is_drained = c.is_drained or error == SSL_ERROR_WANT_READ
        set_errno(EAGAIN)
        return -1
    c.has_ended = True
    if error == SSL_ERROR_ZERO_RETURN:
        return 0
    c.is_broken = True
    if error == SSL_ERROR_SSL and not is_end_of_file(openssl.ERR_peek_error()):
        report_of(c, TLS_FAILED, failure_number(c.ssl))
    set_errno(cause if error == SSL_ERROR_SYSCALL and cause != EAGAIN and cause != EINTR and cause else ECONNRESET)
    return -1


cdef bint is_end_of_file(unsigned long error) noexcept nogil:
    """Return whether an error says that the peer has closed the socket without close_notify, as many do."""
    # OpenSSL 3: SSL_R_UNEXPECTED_EOF_WHILE_READING. Older ones report no error.
    return error & 0x7FFFFF == UNEXPECTED_EOF


cdef int64_t receive_tls(Connection* c, void* room, int64_t size) noexcept nogil:
    cdef const OpenSsl* openssl = openssl_functions()
    cdef int result
    if c.has_ended:
        return 0
    forget_errors(openssl)
    set_errno(0)
    result = openssl.SSL_read(c.ssl, room, <int>min(size, INT32_MAX))
    if result > 0:
        c.read_needs_write = c.is_drained = False
        return result
    return failed(c, result, &c.read_needs_write, SSL_ERROR_WANT_WRITE)


cdef int64_t send_tls(Connection* c, const void* data, int64_t size, bint more) noexcept nogil:
    """Send some of the bytes. After EAGAIN the next call has the same bytes, and maybe more; they may have moved."""
    cdef const OpenSsl* openssl = openssl_functions()
    cdef int result
    if c.is_broken:
        set_errno(ECONNRESET)
        return -1
    size = min(size, INT32_MAX)
    forget_errors(openssl)
    set_errno(0)
    result = openssl.SSL_write(c.ssl, data, <int>size)
    if result > 0:
        c.write_needs_read, c.retry_bytes = False, 0
        return result
    # What OpenSSL has encrypted already is the beginning of these bytes.
    c.retry_bytes = size
    if failed(c, result, &c.write_needs_read, SSL_ERROR_WANT_READ) == 0:
        set_errno(ECONNRESET)
    return -1


cdef int64_t send_range_tls(Connection* c, const FileRange* part, int64_t size) noexcept nogil:
    """Send bytes of a file: the kernel encrypts them, or they are read in pieces of a receive buffer."""
    cdef const OpenSsl* openssl = openssl_functions()
    cdef Processor* p = c.processor
    cdef uint8_t* piece
    cdef int64_t result, rest
    cdef int64_t sent = 0
    if c.kernel_sends and not c.is_broken:
        forget_errors(openssl)
        set_errno(0)
        result = openssl.SSL_sendfile(c.ssl, part.fd, part.position, size, 0)
        if result >= 0:
            return result
        return failed(c, <int>result, &c.write_needs_read, SSL_ERROR_WANT_READ)
    piece = take_buffer(p)
    if piece == NULL:
        set_errno(ENOMEM)
        return -1
    # OpenSSL has encrypted a part of the last piece: the next one must not be shorter.
    size = min(max(size, c.retry_bytes), part.size, BUFFER_BYTES)
    result = read_file(part.fd, piece, size, part.position)
    rest = result
    while rest > 0:
        result = send_tls(c, piece + sent, rest, False)
        if result <= 0:
            break
        sent += result
        rest -= result
    give_back(p, piece, BUFFER_BYTES)
    return sent if sent > 0 else result


cdef bint has_more_tls(Connection* c) noexcept nogil:
    """Return whether OpenSSL has received what it has not given out, or has seen the end: no poller reports that."""
    return c.ssl != NULL and (c.has_ended or not c.is_drained and openssl_functions().SSL_has_pending(c.ssl))


cdef Transport TLS
TLS.begin = begin_tls
TLS.end = end_tls
TLS.receive = receive_tls
TLS.send = send_tls
TLS.send_range = send_range_tls
TLS.has_more = has_more_tls
TLS.shake_hands = shake_hands_tls
