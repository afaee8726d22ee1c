# TLS of Python's ssl, where no libssl can be loaded: another Transport. Here are the bytes of a connection, in memory
# that belongs to it; a TlsSession (``python_tls.py``) decrypts and encrypts them.
#
# A session is called with the GIL, for which a processor waits: it holds no mutex then. Sockets and files are read and
# written without the GIL. What a function with the GIL finds is reported when the GIL is given back.
#
# A session gets whole records, one after the other. So it keeps no more than one record, and one without data is seen:
# ``allow_record``. What it gives out is sent before it gets more records or data; while a peer does not read that, no more
# is received of it (``read_needs_write``).

cdef extern from "Python.h" nogil:
    int PyBUF_READ, PyBUF_WRITE

cdef extern from "Python.h":
    object PyMemoryView_FromMemory(char* data, Py_ssize_t size, int flags)

cdef enum:
    # What is before the content of a record; its last two bytes are the size of that.
    RECORD_HEAD = 5
    # No record is larger: that of TLS 1.2 may have 2 KiB beside its data.
    MOST_OF_RECORD = 18437
    # Data that is encrypted together: three records, which fit into a buffer.
    SEALED_TOGETHER = 49152

cdef enum Outcome:
    # Of a handshake
    UNFINISHED = 0
    FINISHED
    FAILED


# -- the end of the interpreter
#
# A thread that wants the GIL of an interpreter that has ended may crash. So its end is announced: from then on no
# connection of this Transport moves bytes, and what runs is waited for.

# Threads that have the GIL here, or wait for it
cdef int64_t python_calls = 0
cdef int64_t python_ends = 0


cdef bint enter_python(Connection* c) noexcept nogil:
    """Return whether the GIL may be taken; ``leave_python`` must follow. If not, the connection is of no use any more."""
    add_and_get(&python_calls, 1)
    if load_number(&python_ends):
        leave_python()
        c.is_broken = c.has_ended = True
        return False
    return True


cdef void leave_python() noexcept nogil:
    add_and_get(&python_calls, -1)


def end_python_tls():
    """Let no processor take the GIL any more for TLS of Python's ssl, and wait until none has it."""
    cdef int64_t until = monotonic_ns() + 5000000000
    with nogil:
        store_number(&python_ends, 1)
        while load_number(&python_calls) > 0 and monotonic_ns() < until:
            usleep(1000)


# What is registered first is called last: others may stop their servers before.
atexit.register(end_python_tls)

# -- bytes


cdef int64_t whole_record(const uint8_t* data, int64_t size) noexcept nogil:
    """Return the size of the record that begins the bytes; 0: it is not there as a whole.

    Of a record that is too large it is all that is there: TLS says what is wrong with it.
    """
    cdef int64_t whole
    if size < RECORD_HEAD:
        return 0
    whole = RECORD_HEAD + <uint16_t>get_i16(data + 3)
    if whole > MOST_OF_RECORD:
        return size
    return whole if whole <= size else 0


cdef uint8_t* receive_records(Connection* c, int64_t* size) noexcept nogil:
    """Return a buffer with what is not decrypted, and what the socket has; ``keep_records`` must follow.

    ``size``: of that. NULL with errno: there is nothing new.
    """
    cdef const PollerFunctions* poller = c.processor.network.poller
    cdef uint8_t* buffer = take_buffer(c.processor)
    cdef int64_t received
    cdef int cause
    if buffer == NULL:
        set_errno(ENOMEM)
        return NULL
    size[0] = c.records_size
    if c.records_size:
        memcpy(buffer, c.records, c.records_size)
    if not c.has_more:
        received = poller.receive(poller, c.fd, buffer + size[0], BUFFER_BYTES - size[0])
        cause = errno if received < 0 else ECONNRESET
        if received <= 0:
            c.has_ended = c.has_ended or received == 0
            give_back(c.processor, buffer, BUFFER_BYTES)
            set_errno(cause)
            return NULL
        size[0] = size[0] + received
    return buffer


cdef void keep_records(Connection* c, uint8_t* buffer, int64_t taken, int64_t size) noexcept nogil:
    """Keep what is behind the first ``taken`` bytes of a buffer, and give the buffer back."""
    free(c.records)
    c.records, c.records_size = NULL, 0
    if taken < size and not c.is_broken:
        c.records = <uint8_t*>malloc(size - taken)
        if c.records == NULL:
            report(c.processor.network, NO_MEMORY, 0, &c.peer)
            c.is_broken = c.has_ended = True
        else:
            memcpy(c.records, buffer + taken, size - taken)
            c.records_size = size - taken
    give_back(c.processor, buffer, BUFFER_BYTES)


cdef int keep_output(Connection* c, bytes output) except -1:
    """Keep encrypted bytes for ``send_sealed``."""
    cdef int64_t size = len(output)
    cdef uint8_t* larger
    if size == 0:
        return 0
    if c.sealed == NULL:
        c.sealed = take_buffer(c.processor)
        c.sealed_capacity = BUFFER_BYTES
        c.sealed_size = c.sealed_sent = 0
    if c.sealed != NULL and c.sealed_capacity - c.sealed_size < size:
        larger = <uint8_t*>realloc(c.sealed, c.sealed_size + size)
        if larger == NULL:
            raise MemoryError()
        c.sealed, c.sealed_capacity = larger, c.sealed_size + size
    if c.sealed == NULL:
        raise MemoryError()
    memcpy(c.sealed + c.sealed_size, PyBytes_AS_STRING(output), size)
    c.sealed_size = c.sealed_size + size
    return 0


cdef bint send_sealed(Connection* c) noexcept nogil:
    """Send what is encrypted. Return whether nothing is left; if not, errno says why."""
    cdef const PollerFunctions* poller = c.processor.network.poller
    cdef int64_t sent
    while c.sealed_sent < c.sealed_size:
        sent = poller.send(poller, c.fd, c.sealed + c.sealed_sent, c.sealed_size - c.sealed_sent, False)
        if sent < 0 and errno == EINTR:
            continue
        if sent <= 0:
            return False
        c.sealed_sent = c.sealed_sent + sent
    forget_sealed(c)
    return True


cdef void forget_sealed(Connection* c) noexcept nogil:
    if c.sealed != NULL:
        give_back(c.processor, c.sealed, c.sealed_capacity)
    c.sealed = NULL
    c.sealed_size = c.sealed_sent = c.sealed_capacity = 0


# -- calls of a session, with the GIL. Views of the connection's memory end with the call.


cdef object view_of(const uint8_t* data, int64_t size):
    return PyMemoryView_FromMemory(<char*>data, size, PyBUF_READ)


cdef int64_t reason_of_failure(Connection* c, object problem) noexcept:
    """Return the reason for ``why_tls_failed``. The session is not called any more."""
    cdef int64_t reason = 0
    c.is_broken = c.has_ended = True
    try:
        reason = (<object>c.session).why(problem)
        # An alert for the peer
        keep_output(c, (<object>c.session).output())
    except BaseException:
        # He does not get it.
        pass
    return reason


cdef bint open_session_of_python(Connection* c) noexcept with gil:
    """Return whether the connection has a session of its listener's context."""
    try:
        # A reference of its own: another context may take its place meanwhile.
        context = <object>c.processor.network.listeners[c.listener].python_tls
        session = context.session()
    except BaseException:
        return False
    Py_INCREF(session)
    c.session = <PyObject*>session
    return True


cdef Outcome take_handshake(
    Connection* c, const uint8_t* data, int64_t size, int64_t* taken, int64_t* reason
) noexcept with gil:
    """Go on with the handshake, with the whole records of ``data``; ``taken``: their size. Keeps the peer's name."""
    cdef int64_t record
    cdef uint8_t* place
    cdef bytes subject
    try:
        while True:
            record = whole_record(data + taken[0], size - taken[0])
            if record == 0:
                keep_output(c, (<object>c.session).output())
                return UNFINISHED
            taken[0] = taken[0] + record
            if (<object>c.session).shake_hands(view_of(data + taken[0] - record, record)):
                break
        keep_output(c, (<object>c.session).output())
        if c.processor.network.listeners[c.listener].names_peers:
            subject = (<object>c.session).subject()
            if subject is not None:
                place = room_for_subject(c, <int>len(subject))
                if place == NULL:
                    raise MemoryError()
                memcpy(place, PyBytes_AS_STRING(subject), len(subject))
        return FINISHED
    except BaseException as problem:
        reason[0] = reason_of_failure(c, problem)
        return FAILED


cdef int64_t decrypt(
    Connection* c, const uint8_t* data, int64_t size, int64_t* taken, uint8_t* room, int64_t room_size, int64_t* reason
) noexcept with gil:
    """Decrypt the whole records of ``data`` into the room, until it is full. Return how many bytes that are.

    ``taken``: the size of the records. ``reason``: set with ``is_broken``.
    """
    cdef int64_t record, one, given = 0
    try:
        session = <object>c.session
        if c.has_more:
            given = session.read(PyMemoryView_FromMemory(<char*>room, room_size, PyBUF_WRITE))
            c.has_ended = session.has_ended
        while given < room_size and not c.has_ended:
            record = whole_record(data + taken[0], size - taken[0])
            if record == 0:
                break
            session.take(view_of(data + taken[0], record))
            taken[0] = taken[0] + record
            one = session.read(PyMemoryView_FromMemory(<char*>room + given, room_size - given, PyBUF_WRITE))
            given += one
            c.has_ended = session.has_ended
            if one == 0 and not c.has_ended and not allow_record(c):
                c.is_broken = c.has_ended = True
        c.has_more = not c.has_ended and (
            whole_record(data + taken[0], size - taken[0]) > 0 or given == room_size and session.pending() > 0
        )
        keep_output(c, session.output())
    except BaseException as problem:
        reason[0] = reason_of_failure(c, problem)
    return given


cdef bint encrypt(Connection* c, const uint8_t* data, int64_t size, int64_t* reason) noexcept with gil:
    """Encrypt data, for ``send_sealed``. Return whether that was possible."""
    cdef int64_t record, done = 0
    try:
        session = <object>c.session
        while done < size:
            record = min(size - done, FULL_RECORD)
            session.write(view_of(data + done, record))
            keep_output(c, session.output())
            done += record
        return True
    except BaseException as problem:
        reason[0] = reason_of_failure(c, problem)
        return False


cdef void close_session_of_python(Connection* c, bint says_goodbye) noexcept with gil:
    session = <object>c.session
    try:
        if says_goodbye:
            session.say_goodbye()
            keep_output(c, session.output())
    except BaseException:
        # The connection ends without it.
        pass
    c.session = NULL
    Py_XDECREF(<PyObject*>session)


# -- the Transport


cdef void shake_hands_python(Connection* c) noexcept nogil:
    """Go on with the handshake as far as the socket allows."""
    cdef uint8_t* buffer
    cdef int64_t size = 0, taken = 0, reason = 0
    cdef Outcome outcome = FAILED
    if c.session == NULL and not open_python_tls(c):
        return
    if not send_sealed(c):
        wait_or_fail(c, WRITABLE)
        return
    buffer = receive_records(c, &size)
    if buffer == NULL:
        wait_or_fail(c, READABLE)
        return
    if enter_python(c):
        outcome = take_handshake(c, buffer, size, &taken, &reason)
        leave_python()
    keep_records(c, buffer, taken, size)
    cdef bint is_sent = send_sealed(c)
    if outcome == FAILED:
        fail_handshake(c, reason)
    elif outcome == FINISHED:
        end_handshake_python(c, is_sent)
    elif is_sent:
        set_interest(c, READABLE)
    else:
        wait_or_fail(c, WRITABLE)


cdef bint open_python_tls(Connection* c) noexcept nogil:
    """Make the session of the connection when its first byte is there. Return whether the handshake may go on."""
    cdef bint is_open = False
    if not speaks_tls(c):
        return False
    if enter_python(c):
        is_open = open_session_of_python(c)
        leave_python()
    if not is_open:
        report(c.processor.network, NO_MEMORY, 0, &c.peer)
        close_connection(c)
        return False
    link_handshake(c)
    return True


cdef void wait_or_fail(Connection* c, int events) noexcept nogil:
    """Wait for the socket if errno says so; else the peer has gone."""
    if errno == EAGAIN or errno == EWOULDBLOCK or errno == EINTR:
        set_interest(c, events)
    else:
        fail_handshake(c, 0)


cdef void end_handshake_python(Connection* c, bint is_sent) noexcept nogil:
    """Begin with requests. Records of the first ones may have come with the end of the handshake."""
    begin_requests(c)
    c.read_needs_write = not is_sent
    c.has_more = whole_record(c.records, c.records_size) > 0
    watch(c)
    if c.fd >= 0 and c.has_more:
        receive(c)


cdef void end_python_session(Connection* c) noexcept nogil:
    """Say goodbye (close_notify), and give the session back. The socket is still open."""
    cdef bint says_goodbye = c.state != HANDSHAKING and not c.is_broken and c.retry_bytes == 0 and c.sealed == NULL
    if c.session == NULL:
        return
    if c.state == HANDSHAKING:
        unlink_handshake(c)
    if enter_python(c):
        close_session_of_python(c, says_goodbye)
        leave_python()
        send_sealed(c)
    forget_sealed(c)
    free(c.records)
    c.records, c.records_size = NULL, 0


cdef int64_t receive_python_tls(Connection* c, void* room, int64_t size) noexcept nogil:
    cdef uint8_t* buffer
    cdef int64_t whole = 0, taken = 0, given = 0, reason = 0
    if c.has_ended:
        return 0
    c.read_needs_write = not send_sealed(c)
    if c.read_needs_write:
        return -1
    buffer = receive_records(c, &whole)
    if buffer == NULL:
        return 0 if c.has_ended else -1
    if enter_python(c):
        given = decrypt(c, buffer, whole, &taken, <uint8_t*>room, size, &reason)
        leave_python()
    keep_records(c, buffer, taken, whole)
    c.read_needs_write = not send_sealed(c)
    if c.is_flooding:
        report_of(c, TOO_MANY_RECORDS, SPARE_RECORDS)
    elif reason:
        report_of(c, TLS_FAILED, reason)
    if given == 0 and not c.has_ended:
        set_errno(EAGAIN)
        return -1
    return given


cdef int64_t send_python_tls(Connection* c, const void* data, int64_t size, bint more) noexcept nogil:
    """Send some of the bytes. After EAGAIN the next call has the same bytes, and maybe more: they are encrypted."""
    if c.retry_bytes or c.is_broken:
        return finish_sending(c)
    return send_sealed_data(c, <const uint8_t*>data, min(size, SEALED_TOGETHER))


cdef int64_t send_range_python_tls(Connection* c, const FileRange* part, int64_t size) noexcept nogil:
    """Send bytes of a file, which are read in pieces of a receive buffer."""
    cdef Processor* p = c.processor
    cdef uint8_t* piece
    cdef int64_t result
    if c.retry_bytes or c.is_broken:
        return finish_sending(c)
    piece = take_buffer(p)
    if piece == NULL:
        set_errno(ENOMEM)
        return -1
    result = read_file(part.fd, piece, min(size, SEALED_TOGETHER), part.position)
    if result > 0:
        result = send_sealed_data(c, piece, result)
    give_back(p, piece, BUFFER_BYTES)
    return result


cdef int64_t send_sealed_data(Connection* c, const uint8_t* data, int64_t size) noexcept nogil:
    """Encrypt and send all of the bytes; what the socket does not take is for ``finish_sending``."""
    cdef bint is_sealed = False
    cdef int64_t reason = 0
    # What earlier records were answered with comes first.
    if not send_sealed(c):
        return -1
    if enter_python(c):
        is_sealed = encrypt(c, data, size, &reason)
        leave_python()
    if not is_sealed:
        if reason:
            report_of(c, TLS_FAILED, reason)
        set_errno(ECONNRESET)
        return -1
    c.retry_bytes = size
    return finish_sending(c)


cdef int64_t finish_sending(Connection* c) noexcept nogil:
    """Send what is encrypted. Return how many bytes that were before, or -1 with errno."""
    cdef int64_t sent = c.retry_bytes
    if c.is_broken:
        set_errno(ECONNRESET)
        return -1
    if not send_sealed(c):
        return -1
    c.retry_bytes = 0
    return sent


cdef bint has_more_python_tls(Connection* c) noexcept nogil:
    """Return whether there are records that can be decrypted, or the end was seen: no poller reports that."""
    return c.has_ended or c.has_more and not c.read_needs_write


cdef Transport PYTHON_TLS
PYTHON_TLS.begin = begin_tls
PYTHON_TLS.end = end_python_session
PYTHON_TLS.receive = receive_python_tls
PYTHON_TLS.send = send_python_tls
PYTHON_TLS.send_range = send_range_python_tls
PYTHON_TLS.has_more = has_more_python_tls
PYTHON_TLS.shake_hands = shake_hands_python
