# What other rooms use of the socket server without the GIL: the handler of hot requests, its answers, and
# the completion of parked requests.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from ctrlchan._c.clock_functions cimport Clock
from ctrlchan.server._connection_quotas cimport ConnectionQuotas

cdef extern from "server/_loop/poller.h" nogil:
    int READABLE, WRITABLE, BROKEN
    ctypedef struct Ready:
        void* owner
        int events
    # The address of a peer: IPv4 addresses are kept in the form that IPv6 has for them.
    ctypedef struct Peer:
        uint8_t ip[16]
        int32_t port
    # What a server needs of the operating system beside the time. A poller with more fields has this struct as its first one.
    ctypedef struct PollerFunctions:
        void (*open)(const PollerFunctions*, int* poller, int* waker) noexcept nogil
        void (*close)(const PollerFunctions*, int poller, const int* waker) noexcept nogil
        int (*add)(const PollerFunctions*, int poller, int fd, int events, void* owner) noexcept nogil
        int (*change)(const PollerFunctions*, int poller, int fd, int before, int events, void* owner) noexcept nogil
        void (*remove)(const PollerFunctions*, int poller, int fd) noexcept nogil
        int (*wait)(const PollerFunctions*, int poller, Ready* ready, int size, int64_t timeout_ms) noexcept nogil
        void (*ring)(const PollerFunctions*, const int* waker) noexcept nogil
        void (*clear)(const PollerFunctions*, const int* waker) noexcept nogil
        int (*accept)(const PollerFunctions*, int listener, Peer* peer) noexcept nogil
        void (*configure)(const PollerFunctions*, int fd, int send_buffer) noexcept nogil
        int64_t (*receive)(const PollerFunctions*, int fd, void* data, int64_t size) noexcept nogil
        int64_t (*send)(const PollerFunctions*, int fd, const void* data, int64_t size, bint more) noexcept nogil
        int64_t (*send_file)(const PollerFunctions*, int fd, int file, int64_t position, int64_t size) noexcept nogil
        void (*hold_back)(const PollerFunctions*, int fd, bint on) noexcept nogil
        void (*close_connection)(const PollerFunctions*, int fd) noexcept nogil


cdef enum Result:
    # What a hot handler returns.
    # The answer is complete: the processor writes its size and sends it.
    DONE
    # Nothing is sent (Produce with acks=0); the next request of the connection is handled.
    NO_ANSWER
    # The request waits for ``complete`` or for ``wait_ms``; then the handler is called for it again.
    PARKED
    # The connection is closed.
    CLOSE
    # A handler thread of Python takes the request from the request queue. ``state`` may be kept: the handler is called
    # with ASKED, or with ABANDONED when the request has ended otherwise.
    QUEUE
    # Only for a request that has arrived: after ``wait_ms`` the handler is called for it with DELAY_ENDED. Other
    # connections go on.
    DELAYED
    # Of a handler thread alone: the hot handler goes on with the request.
    AGAIN
    # Of a handler thread alone: the peer is authenticated, and the answer is complete.
    AUTHENTICATED
    # Of a handler thread alone: the peer is refused. The answer is sent after a pause, then the connection is closed.
    REFUSE


cdef enum Reason:
    # Why a hot handler is called.
    ARRIVED
    # ``complete`` was called. The request may be parked again; its deadline stays.
    COMPLETED
    # The deadline has passed, or the server stops. PARKED closes the connection.
    EXPIRED
    # The connection was closed while the request, whose ``state`` is not NULL, was parked: the handler
    # releases ``state``. The result and the answer are ignored.
    ABANDONED
    # A request that was DELAYED is to be handled, as one that has arrived.
    DELAY_ENDED
    # A handler thread has taken the request, which was left to it with QUEUE, and gives it back (``go_on``). It has
    # the ``state`` of then.
    ASKED


cdef struct HotRequest:
    # The frame without its size. Valid during the call; another call may see it at another address.
    const uint8_t* data
    int64_t size
    # For ``complete``.
    uint64_t token
    Reason reason
    # Index of the listener.
    int32_t listener
    # Set with the first PARKED: milliseconds until the request expires. Set with DELAYED.
    int32_t wait_ms
    # Set with the first PARKED: so many of the first bytes are needed from now on, the others are given back; 0: all.
    int64_t kept_bytes
    # The handler's own, NULL when the request arrives. The handler releases it before any other result
    # than PARKED and QUEUE.
    void* state
    # When the processor found that bytes of the connection had arrived, in monotonic nanoseconds.
    int64_t arrived_ns
    # Who has sent it, as the handler threads number peers; 0: no handler thread has seen the connection yet
    int32_t identity
    # His user, as the handler threads number users; 0: ANONYMOUS
    int32_t user
    # The number of the connection: it counts those that the server has accepted
    int64_t connection
    # With ASKED: the number that the handler thread gave to ``go_on``
    int64_t answer
    # ThrottleTimeMs of the answer: for how long the client shall send no further request. 0: not throttled.
    int32_t throttle_time_ms
    # Set with DONE and NO_ANSWER: the next request of the connection is not handled for so many milliseconds.
    int32_t mute_ms
    # Set with DONE: a handler thread shall do the work that is left (``HandlerPool``), once the answer is sent.
    bint leaves_work
    # When this call began, in monotonic nanoseconds, and for how long handlers have worked on the request in earlier calls.
    int64_t began_ns
    int64_t spent_ns
    # For how long processors have received and sent for the connection since its last request; 0 unless ``measure_time``
    # was called.
    int64_t network_ns


# Called once for each file range: when its bytes are sent, or when the connection is closed.
ctypedef void (*ReleaseFunction)(void* owner) noexcept nogil


cdef struct FileRange:
    # The range follows the first ``at`` bytes of the answer's data.
    int64_t at
    int64_t position
    int64_t size
    int fd
    ReleaseFunction release
    void* owner


cdef struct Answer:
    # Bytes of all answers that are not sent yet. A handler appends and never looks at what stands before.
    uint8_t* data
    int64_t size
    int64_t capacity
    FileRange* ranges
    int32_t range_count
    int32_t range_capacity
    # The sum of the sizes of all ranges.
    int64_t range_bytes
    # No memory was left: the connection is closed.
    bint failed


# Return room for ``size`` bytes at the end of the answer, or NULL. The room counts as written. It moves with
# the next call.
cdef uint8_t* append_room(Answer* answer, int64_t size) noexcept nogil
cdef void append_bytes(Answer* answer, const void* data, int64_t size) noexcept nogil
# Remove what was appended since the answer had these sizes; ranges that are removed are released.
cdef void cut_answer(Answer* answer, int64_t size, int32_t range_count) noexcept nogil
# ``size`` bytes of the file from ``position`` follow. ``release`` may be NULL; when the range cannot be
# added, it is called at once.
cdef void append_file_range(
    Answer* answer, int fd, int64_t position, int64_t size, ReleaseFunction release, void* owner
) noexcept nogil

ctypedef Result (*HotFunction)(void* context, HotRequest* request, Answer* answer) noexcept nogil

cdef struct Network


# Wake the parked request of ``token``. Any thread may call it, also the handler itself, and before the
# handler has returned PARKED. Nothing happens when the request has ended or its connection is closed.
cdef void complete(Network* network, uint64_t token) noexcept nogil


# Measure from now on for how long requests keep processors with receiving and sending.
cdef void measure_time(Network* network) noexcept nogil


# A hot handler of any room: a subclass sets both fields. The server keeps a reference until it has stopped.
cdef class HotHandler:
    cdef HotFunction function
    cdef void* context


# Readiness and connections: the operating system's, or a test's own, whose class sets ``functions``. The server keeps a
# reference until it has stopped.
cdef class Poller:
    cdef const PollerFunctions* functions


# The threads of one server. ``network`` is valid as long as the object lives.
cdef class NetworkThreads:
    cdef Network* network
    cdef HotHandler hot
    cdef Clock clock
    cdef Poller poller
    cdef readonly ConnectionQuotas quotas
    cdef readonly tuple listener_names
    cdef readonly tuple authenticators
    cdef readonly tuple security_protocols
    cdef readonly tuple namers
    #: Returns the number of a peer for ``HotRequest.identity``, for his RequestContext; None: nobody asks for it.
    cdef public object identify
    #: Returns the number of a user for ``HotRequest.user``, for his RequestContext; None: nobody asks for it.
    cdef public object number_user
    # A processor did not end: the memory must stay.
    cdef bint is_kept
