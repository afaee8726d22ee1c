"""The loop of a process that stands for brokers (``sink.py``): one thread, without Python.

A request begins with its size int32, API key int16, API version int16, correlation id int32. The loop looks at
these 12 bytes alone. What a connection has and what the loop polls with is given back with the process.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from posix.unistd cimport close, read, write

from ctrlchan._c.bytes cimport get_i16, get_i32, put_i32
from ctrlchan._c.clocks cimport monotonic_ns

cdef extern from "server/_loop/poller.h" nogil:
    ctypedef struct Ready:
        void* owner
        int events
    enum: READABLE
    int poller_open()
    int poller_add(int poller, int fd, int events, void* owner)
    void poller_remove(int poller, int fd)
    int poller_wait(int poller, Ready* ready, int size, int64_t timeout_ms)
    int accept_connection(int listener, void* address, void* size)
    void configure_connection(int fd, int send_buffer)

cdef extern from *:
    """
    /* Linux discards bytes of a connection inside the kernel; elsewhere they are copied to be forgotten. */
    #ifdef __linux__
    enum { DISCARDED_AT_ONCE = 1 << 30 };
    static ssize_t discard(int fd, size_t size) { return recv(fd, NULL, size, MSG_TRUNC); }
    #else
    enum { DISCARDED_AT_ONCE = 1 << 16 };
    static ssize_t discard(int fd, size_t size) {
        static char forgotten[DISCARDED_AT_ONCE];
        return recv(fd, forgotten, size, 0);
    }
    #endif
    """
    enum: DISCARDED_AT_ONCE
    ssize_t discard(int fd, size_t size) nogil
    enum: MSG_NOSIGNAL
    ssize_t recv(int fd, void* data, size_t size, int flags) nogil
    ssize_t send(int fd, const void* data, size_t size, int flags) nogil

cdef enum:
    PREFIX_BYTES = 12
    # Of these, the size counts all but its own.
    COUNTED_PREFIX_BYTES = 8
    API_KEYS = 8
    API_VERSIONS = 16
    ANSWER_BYTES = 64
    ANSWER_START = 8
    EVENTS = 64
    LINE_BYTES = 80
    SYSTEM_BUFFER = -1

cdef enum Kind:
    LISTENER
    CONNECTION
    INPUT

cdef struct Peer:
    int fd
    Kind kind
    # Bytes of the prefix that have come, and of the request that have to be discarded.
    int prefix_bytes
    int64_t left
    uint8_t[PREFIX_BYTES] prefix

# What follows the correlation id of an answer; no bytes: a request that is not answered.
cdef struct Answer:
    int size
    uint8_t[ANSWER_BYTES] body

cdef struct Sink:
    int poller
    int output
    int64_t last_answer_ns
    uint64_t bytes
    uint64_t requests
    Answer[API_KEYS][API_VERSIONS] answers


def serve(listeners, int input_fd, int output_fd, answers):
    """Answer requests until ``input_fd`` ends, and each line of it by the figures that ``sink.py`` names.

    ``listeners``: descriptors of listening sockets that do not block. ``answers``: (API key, version) -> the
    bytes behind the correlation id. Requests of other APIs end their connection. Raises MemoryError, OSError.
    """
    cdef Sink* sink = <Sink*>calloc(1, sizeof(Sink))
    cdef const uint8_t[::1] body
    cdef int result
    if sink == NULL:
        raise MemoryError
    sink.output = output_fd
    for (key, version), answer in answers.items():
        if not 0 <= key < API_KEYS or not 0 <= version < API_VERSIONS or len(answer) > ANSWER_BYTES - ANSWER_START:
            raise ValueError(f"an answer of {len(answer)} bytes for API {key} v{version}")
        body = answer
        sink.answers[key][version].size = body.shape[0]
        memcpy(sink.answers[key][version].body, &body[0], body.shape[0])
    sink.poller = poller_open()
    if sink.poller < 0:
        raise OSError(errno, "cannot poll")
    for fd in listeners:
        if not poll_peer(sink, fd, LISTENER):
            raise OSError(errno, "cannot poll a listening socket")
    if not poll_peer(sink, input_fd, INPUT):
        raise OSError(errno, "cannot poll the input")
    with nogil:
        result = run(sink)
    if result < 0:
        raise OSError(errno, "the output cannot be written")


cdef int run(Sink* sink) noexcept nogil:
    """Serve until the input ends; return 0, or -1 with errno."""
    cdef Ready[EVENTS] ready
    cdef Peer* peer
    cdef int i, count, result
    while True:
        count = poller_wait(sink.poller, ready, EVENTS, -1)
        for i in range(count):
            peer = <Peer*>ready[i].owner
            if peer.kind == LISTENER:
                accept_all(sink, peer.fd)
            elif peer.kind == INPUT:
                result = answer_lines(sink, peer.fd)
                if result <= 0:
                    return result
            elif not read_requests(sink, peer):
                poller_remove(sink.poller, peer.fd)
                close(peer.fd)
                free(peer)


cdef bint poll_peer(Sink* sink, int fd, Kind kind) noexcept nogil:
    """Poll a descriptor; return False, with errno, if that cannot be done."""
    cdef Peer* peer = <Peer*>calloc(1, sizeof(Peer))
    if peer == NULL:
        return False
    peer.fd, peer.kind = fd, kind
    if poller_add(sink.poller, fd, READABLE, peer) < 0:
        free(peer)
        return False
    return True


cdef void accept_all(Sink* sink, int listener) noexcept nogil:
    cdef int fd
    while True:
        fd = accept_connection(listener, NULL, NULL)
        if fd < 0:
            return
        configure_connection(fd, SYSTEM_BUFFER)
        if not poll_peer(sink, fd, CONNECTION):
            close(fd)


cdef int answer_lines(Sink* sink, int fd) noexcept nogil:
    """Write the figures for each line that has come; return 1, 0 at the end of the input, -1 with errno."""
    cdef char[LINE_BYTES] data
    cdef char[LINE_BYTES] line
    cdef ssize_t i, count = read(fd, data, LINE_BYTES)
    cdef int size
    if count <= 0:
        return 0 if count == 0 else 1
    for i in range(count):
        if data[i] == b"\n":
            size = snprintf(
                line, LINE_BYTES, "%lld %llu %llu\n", <long long>sink.last_answer_ns,
                <unsigned long long>sink.bytes, <unsigned long long>sink.requests
            )
            if write(sink.output, line, size) != size:
                return -1
    return 1


cdef bint read_requests(Sink* sink, Peer* peer) noexcept nogil:
    """Read what has come, and answer whole requests; return False when the connection is to be closed."""
    cdef ssize_t count
    while True:
        if peer.prefix_bytes < PREFIX_BYTES:
            count = recv(peer.fd, &peer.prefix[peer.prefix_bytes], PREFIX_BYTES - peer.prefix_bytes, 0)
            if count > 0:
                peer.prefix_bytes += <int>count
                if peer.prefix_bytes == PREFIX_BYTES:
                    peer.left = <int64_t>get_i32(peer.prefix) - COUNTED_PREFIX_BYTES
                    if peer.left < 0 or answer_of(sink, peer) == NULL:
                        return False
        else:
            count = discard(peer.fd, <size_t>min(peer.left, <int64_t>DISCARDED_AT_ONCE))
            if count > 0:
                peer.left -= count
        if count < 0 and errno == EINTR:
            continue
        if count <= 0:
            return count < 0 and errno == EAGAIN
        sink.bytes += <uint64_t>count
        if peer.prefix_bytes == PREFIX_BYTES and peer.left == 0:
            if not answer_request(sink, peer):
                return False


cdef Answer* answer_of(Sink* sink, Peer* peer) noexcept nogil:
    """Return the answer of the request whose prefix has come, or NULL if there is none."""
    cdef int16_t key = get_i16(&peer.prefix[4]), version = get_i16(&peer.prefix[6])
    if not 0 <= key < API_KEYS or not 0 <= version < API_VERSIONS or sink.answers[key][version].size == 0:
        return NULL
    return &sink.answers[key][version]


cdef bint answer_request(Sink* sink, Peer* peer) noexcept nogil:
    """Answer the request that has come whole; return False if that cannot be done."""
    cdef Answer* answer = answer_of(sink, peer)
    cdef uint8_t[ANSWER_BYTES] frame
    cdef int size = ANSWER_START + answer.size
    put_i32(frame, <int32_t>(size - 4))
    memcpy(&frame[4], &peer.prefix[8], 4)
    memcpy(&frame[ANSWER_START], answer.body, answer.size)
    # An answer of 20 bytes fits into the buffer of any connection whose peer sends one request at a time.
    if send(peer.fd, frame, size, MSG_NOSIGNAL) != size:
        return False
    peer.prefix_bytes = 0
    sink.requests += 1
    sink.last_answer_ns = monotonic_ns()
    return True
