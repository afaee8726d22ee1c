"""Kafka's SocketServer without the GIL: acceptors, processors, and the request queue.

An acceptor (one thread for each listener, or one for all) gives its connections to its processors in turn. A
processor is a thread with one event loop, which owns its connections: no other thread touches a connection,
but for its fields under the processor's mutex (the mailbox) and those of the request queue.

One request of a connection is in progress at a time, so answers are in order. A request runs on the
processor's thread by the hot handler (``HotHandler`` in the .pxd), which may park it, or is taken from the
request queue by a handler thread of Python, whose answer comes back through the mailbox. Answers to requests
that arrived together are sent together.

A connection that is closed while a handler thread has its request gives up its descriptor at once; its slot is
free again when the answer has come, which is dropped.

Time, readiness and bytes come from functions that the owner hands in (``Clock``, ``Poller``): the operating system's, or
those of a simulation, which takes one turn of a loop at a time on its own thread (``NetworkThreads.turn``).

SASL is a stage of a connection (``Stage``) in which no frame reaches the hot handler, and frames have Kafka's smaller
limit: handler threads answer them until the peer is authenticated (``security/authentication.py``). A session that has
an end is checked here, once for each request.

TLS is another ``Transport`` (what moves bytes of a connection), given with the connection by its acceptor, and a state
of the connection before the first request (``_loop/handshakes.pxi``): that of a libssl (``_loop/tls.pxi``), or that of
Python's ssl, which needs the GIL (``_loop/python_tls.pxi``).

Source: kafka.network.SocketServer, kafka.network.RequestChannel, kafka.server.DelayedOperationPurgatory.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from libc.errno cimport EAGAIN, ECONNABORTED, ECONNRESET, EINTR, EMFILE, ENOMEM, errno
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

cimport cython

from ctrlchan._c.atomics cimport (
    add_and_get,
    count,
    count_shared,
    counted,
    exchange_if,
    load_number,
    load_pointer,
    store_number,
    store_pointer,
)
from ctrlchan._c.bytes cimport get_i16, get_i32, put_i32
from ctrlchan._c.clock_functions cimport Clock, ClockFunctions, monotonic_ns_of
# Of the operating system, also where a server has another clock: Python threads wait by it.
from ctrlchan._c.clocks cimport monotonic_ns
from ctrlchan._c.locks cimport (
    CONNECTION_QUOTAS,
    PROCESSOR,
    REQUEST_QUEUE,
    SERVER_EVENTS,
    Condition,
    Mutex,
    broadcast,
    close_condition,
    close_mutex,
    lock,
    open_condition,
    open_mutex,
    require,
    signal,
    unlock,
    wait,
)

from ctrlchan.server._connection_quotas cimport (
    Admission,
    ConnectionQuotas,
    IP_THROTTLED,
    NO_SLOT,
    Quotas,
    TOO_MANY_OF_IP,
    admit,
    claim_excess,
    end_claim,
    give_back_slot,
    record_arrival,
)
from ctrlchan.server._openssl cimport (
    BIO_CTRL_GET_KTLS_SEND,
    SSL,
    SSL3_RT_HEADER,
    SSL3_RT_INNER_CONTENT_TYPE,
    SSL_CTRL_SET_MSG_CALLBACK_ARG,
    SSL_CTX,
    SSL_ERROR_SSL,
    SSL_ERROR_SYSCALL,
    SSL_ERROR_WANT_READ,
    SSL_ERROR_WANT_WRITE,
    SSL_ERROR_ZERO_RETURN,
    SSL_RECEIVED_SHUTDOWN,
    X509,
    X509_NAME,
    OpenSsl,
    TlsContext,
    look_at_bytes,
    openssl_functions,
    read_file,
    set_errno,
)

import atexit
import ipaddress
import os

from ctrlchan._c.clock_functions import SYSTEM_CLOCK
from ctrlchan.server.request_context import ANONYMOUS, RequestContext
from ctrlchan.server.request_times import BOUNDS_MS, TIME_PARTS
from ctrlchan.state import SecurityProtocol

cdef extern from "server/_loop/poller.h" nogil:
    ctypedef struct pthread_t:
        pass
    int pthread_join(pthread_t, void**)

    int F_DUPFD_CLOEXEC, EWOULDBLOCK
    const PollerFunctions SYSTEM_POLLER_FUNCTIONS
    # Another one for each thread that lives.
    const void* this_thread()
    int start_thread(pthread_t* thread, void* (*run)(void*) noexcept nogil, void* argument)
    void name_thread(const char* name)

    int close(int fd)
    int usleep(unsigned int microseconds)
    int fcntl(int fd, int command, ...)

cdef enum:
    # The int32 before each frame.
    SIZE_BYTES = 4
    # A receive buffer: holds many small requests, one system call reads them all.
    BUFFER_BYTES = 65536
    # At most so much of an incomplete or waiting request is copied out of a receive buffer.
    SMALL_BYTES = 4096
    # Answers of so many bytes are sent before the next request is handled, which finds room in the buffer.
    ANSWERS_TOGETHER = 32768
    # Buffers that a processor keeps for reuse.
    POOL = 32
    # The memory of a large frame grows to so many times what has arrived; the kernel backs only what is used.
    GROWTH = 4
    # Descriptors that a poller reports at once.
    READY_AT_ONCE = 256
    # Reads of one connection before others have their turn; with TLS each brings one record.
    READS = 16
    READS_OF_TLS = 64
    # The bytes of the largest record of TLS
    FULL_RECORD = 16384
    # Requests of one connection before others have their turn.
    REQUESTS_PER_TURN = 64
    # Bytes of files sent to one connection before others have their turn.
    BYTES_PER_TURN = 2097152
    # After accept has failed.
    ACCEPT_PAUSE_MS = 100
    # Connections of one processor: chunks of slots, in a token's SLOT_BITS.
    SLOTS_PER_CHUNK = 64
    CHUNKS = 4096
    SLOT_BITS = 24
    # Of the times of requests (request_times.py)
    TIME_BUCKETS = 19
    # Keys of Kafka's APIs are less.
    API_KEYS = 96
    MAX_PROCESSORS = 256
    # Events that wait for the log.
    EVENTS = 64
    # Bytes of frames that a processor keeps for all its peers that are not authenticated. One more closes its connection.
    UNAUTHENTICATED_BYTES = 67108864
    # An API key.
    SASL_HANDSHAKE = 17
    # A session is renewed once in so many nanoseconds (Kafka: MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS).
    RENEWAL_PAUSE_NS = 1000000000
    # How long a handshake of TLS may take: Kafka's clients wait so long for a connection (the default of
    # socket.connection.setup.timeout.max.ms). connections.max.idle.ms may be less.
    HANDSHAKE_MS = 30000
    # Handshakes of one processor at a time, of which each has up to 200 KB.
    MAX_HANDSHAKES = 1000
    # Records without data (requests for new keys or another handshake, warnings) that a peer may send at once, and one more
    # in each second after. Clients change keys once in millions of records.
    SPARE_RECORDS = 32
    # The first byte of a TLS connection
    HANDSHAKE_RECORD = 22
    DATA_RECORD = 23
    # A reason of OpenSSL 3
    UNEXPECTED_EOF = 294
    # Requests that may wait in the control plane (Kafka has this number, too).
    CONTROL_QUEUE_CAPACITY = 20
    # Connections of an acceptor that wait for being closed; a further one is closed at once.
    MOST_THROTTLED = 1000

cdef enum State:
    # No request of the connection is in progress.
    IDLE = 0
    # A request is parked or delayed.
    WAITING
    # A request is in the request queue, or a handler thread has it.
    QUEUED
    # The peer is throttled: its next request is not handled until the timer ends (Kafka: a muted channel).
    MUTED
    # The peer was refused: its answer waits for the end of a pause.
    CLOSING
    # TLS: there is no request before the end of the handshake.
    HANDSHAKING

cdef enum Stage:
    # Requests go their normal way: nobody has to authenticate himself here, or the peer has done it.
    OPEN = 0
    # The peer is not authenticated: handler threads get its frames.
    AUTHENTICATING
    # The peer renews its session: as above.
    RENEWING

cdef enum Sharing:
    # The descriptor belongs to the processor alone.
    UNSHARED = 0
    # A handler thread may begin to send its answer.
    SHARED
    # A handler thread sends.
    IN_USE
    # The connection was closed meanwhile: the handler thread closes the descriptor.
    LEFT

cdef enum:
    # Numbers of the request queues: where requests of clients and other brokers wait for handler threads (KIP-291).
    DATA_PLANE = 0
    # And those of the controller's own listener
    CONTROL_PLANE
    PLANES

cdef enum Part:
    # Of the time of a request, as in ``TIME_PARTS``
    QUEUE_TIME = 0
    LOCAL_TIME
    REMOTE_TIME
    RESPONSE_QUEUE_TIME
    SEND_TIME
    TOTAL_TIME
    PARTS

cdef enum Phase:
    RUNNING = 0
    DRAINING
    ENDING

# Also names of Python.
cpdef enum EventKind:
    WRONG_SIZE = 0
    TOO_MANY_CONNECTIONS_OF_IP
    ACCEPT_FAILED
    NO_MEMORY
    ANSWER_FAILED
    FILE_TOO_SHORT
    NOT_AUTHENTICATED
    UNAUTHENTICATED_MEMORY
    # Of TLS
    NOT_TLS
    HANDSHAKE_FAILED
    HANDSHAKE_TOO_SLOW
    TOO_MANY_HANDSHAKES
    TLS_FAILED
    TOO_MANY_CONNECTIONS
    # A connection was closed because it was idle for too long.
    IDLE_FOR_TOO_LONG
    # Of TLS, as those before
    TOO_MANY_RECORDS


# In nanoseconds it fits into 64 bits beside any time of a clock.
_MAX_SESSION_MS = 2**42

include "_loop/timing_wheel.pxi"


cdef struct Transport:
    # A connection was opened; it is about to be closed.
    void (*begin)(Connection*) noexcept nogil
    void (*end)(Connection*) noexcept nogil
    # Each of three returns how many bytes were moved, or -1 with errno.
    int64_t (*receive)(Connection*, void*, int64_t) noexcept nogil
    int64_t (*send)(Connection*, const void*, int64_t, bint) noexcept nogil
    int64_t (*send_range)(Connection*, const FileRange*, int64_t) noexcept nogil
    # Whether there are received bytes that the poller does not report.
    bint (*has_more)(Connection*) noexcept nogil
    # Go on with the handshake. Only for connections in that state
    void (*shake_hands)(Connection*) noexcept nogil


cdef struct RequestTimes:
    # Of one API. All threads write them. ``numbers``: how many took how long; the first bucket has all others.
    int64_t requests
    int64_t sums_ns[PARTS]
    int64_t numbers[PARTS][TIME_BUCKETS]


cdef struct Answered:
    # A request whose answer is on its way. ``ready_ns``: when the answer was complete; ``taken_ns``: when its processor,
    # or the handler thread that sends it, had it.
    int16_t key
    int64_t arrived_ns
    int64_t queue_ns
    int64_t local_ns
    int64_t ready_ns
    int64_t taken_ns


cdef struct UnsentAnswers:
    int count
    int capacity
    Answered answers[1]


cdef struct Connection:
    # First: a timer is its connection. Runs during a handshake of TLS, until the peer is authenticated, while a request is
    # parked or delayed, and until the answer to a peer that was refused is sent.
    Timer timer
    Processor* processor
    const Transport* transport
    # -1: closed.
    int fd
    int listener
    uint32_t slot
    # Counts the requests of the slot.
    uint32_t generation
    State state
    # What the poller watches.
    int interest
    Peer peer
    # The number of the connection: it counts those that the server has accepted.
    int64_t number
    # The RequestContext of the slot's last connection that Python was asked for, or NULL. Guarded by the GIL.
    PyObject* context
    # What answers the frames of a peer that authenticates himself, or NULL. Belongs to the context.
    PyObject* authenticator

    Stage stage
    # Monotonic nanoseconds; 0: the session has no end.
    int64_t session_end_ns
    # When the peer began to renew its session.
    int64_t renewed_ns
    # Written by the handler thread with AUTHENTICATED, before it gives the answer.
    int64_t next_session_end_ns
    bint can_renew
    # What the processor counts in ``unauthenticated_bytes`` for this connection.
    int64_t counted_bytes

    # Received bytes: data[begin:end]. The request in progress, with its size, is at ``begin``.
    uint8_t* data
    int64_t capacity
    int64_t begin
    int64_t end
    int64_t request_size
    # Of a parked request: so many of its first bytes are needed, 0: all; and how many were given back.
    int64_t kept_bytes
    int64_t dropped_bytes
    # What the frame at ``begin`` has of the memory pool, and the connections that wait for some (_loop/memory_pool.pxi)
    int64_t reserved
    bint waits_for_memory
    Connection* next_waiting
    Connection* previous_waiting
    int64_t arrived_ns
    void* request_state
    # Who may use the descriptor while the request is queued (Sharing; _loop/direct_answers.pxi), and the descriptor.
    int64_t sharing
    int shared_fd
    # Written by the handler thread that has the request.
    int32_t identity
    int32_t user
    int64_t go_on_answer
    # Set by the handler, with the answer
    int32_t mute_ms
    # The times of the request (_loop/request_times.pxi): its API key, -1: they do not count; how long it waited, -1: it waits;
    # how long it was handled, without the handler thread that took it then and has not returned; answers that are not sent
    int16_t key
    int64_t queue_ns
    int64_t spent_ns
    int64_t taken_ns
    bint is_returned
    UnsentAnswers* unsent
    int64_t network_ns
    # The timer ends a delay, and not a parked request.
    bint is_delayed

    # Answers, of which ``sent`` bytes and the ranges before ``next_range`` are sent.
    Answer out
    int64_t sent
    int32_t next_range
    # Of the socket, from the first file range on until everything is sent
    bint holds_back

    # Open connections, by their last activity.
    int64_t last_active
    Connection* earlier
    Connection* later
    # TLS. OpenSSL's part of the connection; NULL: plaintext, or the peer has not sent a byte
    SSL* ssl
    # The last call has stopped because the other direction is needed.
    bint read_needs_write
    bint write_needs_read
    # The socket was empty at the last call.
    bint is_drained
    # OpenSSL must not be called any more.
    bint is_broken
    # Nothing is received any more: the peer has said goodbye, or is_broken. Requests may have come before.
    bint has_ended
    # How many records without data the peer may send now, and the second in which the last one was allowed.
    int64_t spare_records
    int64_t spare_second
    # It has sent one more.
    bint is_flooding
    # TLS of Python's ssl: the TlsSession, NULL as for ``ssl``. Used with the GIL
    PyObject* session
    # Received bytes that are not decrypted: records, of which the last one may be incomplete
    uint8_t* records
    int64_t records_size
    # There is a whole record among them, or decrypted bytes wait in the session.
    bint has_more
    # Encrypted bytes, of which the first ``sealed_sent`` are sent
    uint8_t* sealed
    int64_t sealed_size
    int64_t sealed_capacity
    int64_t sealed_sent
    # The kernel encrypts what is sent.
    bint kernel_sends
    # Not 0: the bytes that the last call could not send; the next one has no fewer.
    int64_t retry_bytes
    # The name in the peer's certificate, as DER. It stays until the slot is free.
    uint8_t* subject
    int32_t subject_size
    # No handler thread has read the name.
    bint is_unknown
    # Handshakes of the processor, in the order in which they have begun
    Connection* next_handshake
    Connection* previous_handshake

    # Connections with bytes that have had their turn.
    bint is_ready
    Connection* next_ready

    # Guarded by the mutex of the request queue.
    bint held
    Connection* queue_next
    Connection* queue_previous

    # Guarded by the processor's mutex.
    Connection* next_free
    bint has_mail
    Connection* next_mail
    int new_fd
    bint is_completed
    uint32_t completed
    bint has_result
    Result result
    Answer answer
    # Bytes of the answer that its handler thread has sent itself, and when it was ready
    int64_t answer_sent
    int64_t ready_ns
    # The answer is activity of the connection.
    bint is_late
    int32_t answer_mute_ms
    # The processor has something to do when the request is answered.
    bint wakes


cdef struct Counters:
    # Written by the processor's thread alone.
    int64_t connections
    int64_t opened
    int64_t requests
    int64_t bytes_in
    int64_t bytes_out
    # Written by handler threads.
    int64_t bytes_of_handlers
    # Negative while the processor waits: the time is to be added.
    int64_t idle_ns
    int64_t expired
    int64_t idle_closed
    int64_t authenticated
    int64_t authentications_failed
    int64_t renewed
    int64_t renewals_failed
    # Peers whose version of SaslAuthenticate has no session lifetime.
    int64_t cannot_renew
    int64_t sessions_expired
    int64_t not_authenticated
    int64_t handshakes
    int64_t failed_handshakes
    # Connections that were closed because the server had too many
    int64_t excess_closed


cdef struct Processor:
    Network* network
    int index
    pthread_t thread
    int poller
    int waker[2]
    # Monotonic nanoseconds, read once in each turn of the loop.
    int64_t now
    Phase phase
    TimingWheel wheel
    Connection* earliest
    Connection* latest
    Connection* ready
    # Connections that wait for memory, and whether there are some
    Connection* first_waiting
    Connection* last_waiting
    int64_t needs_memory
    Connection* first_handshake
    Connection* last_handshake
    int handshakes
    uint8_t* pool[POOL]
    int pool_count
    # Receive memory of peers that are not authenticated, between two turns.
    int64_t unauthenticated_bytes
    Counters counters
    int64_t started_ns
    # For how long the poller may wait in the next turn: milliseconds, -1 for ever
    int64_t wait_ms
    bint is_joinable
    # A request of this turn leaves work to a handler thread.
    bint leaves_work
    # When the hot handler has returned from its last call
    int64_t ended_ns
    # The connection whose last requests were answered and not sent, and these requests
    Connection* answering
    Answered answered[REQUESTS_PER_TURN]
    int answered_count

    Mutex mutex
    # Guarded by the mutex.
    bint sleeping
    Phase wanted_phase
    Connection* first_mail
    Connection* last_mail
    Connection* free_slots
    # Slots are freed with the server, so that a token can always be looked up.
    Connection* chunks[CHUNKS]
    uint32_t chunk_count
    bint ended
    Condition changed


# A connection whose address has opened too many lately: it is closed when its timer ends.
cdef struct ThrottledConnection:
    # First: a timer is its connection.
    Timer timer
    int fd


cdef struct Listener:
    Acceptor* acceptor
    int index
    int fd
    # Where its requests wait for handler threads: DATA_PLANE or CONTROL_PLANE
    int plane
    const Transport* transport
    # Guarded by ``Network.tls_mutex``. NULL: plaintext, or TLS of Python's ssl
    SSL_CTX* tls
    # The PythonTlsContext. Guarded by the GIL. NULL: plaintext, or TLS of a libssl
    PyObject* python_tls
    # Whether certificates name peers
    bint names_peers
    # Whether a handler thread names every peer, also one without a certificate
    bint names_all
    # Whether peers must authenticate themselves
    bint authenticates
    # What the poller watches
    int interest
    # A connection waits, or accepting pauses
    bint is_ready
    # A connection that waits for the limits of connections; -1: none
    int waiting_fd
    Peer peer
    # When its throttle time ends, in milliseconds
    int64_t throttled_until
    int64_t ip_throttled
    # The time in which a connection has waited. Negative while one waits: the time is to be added.
    int64_t blocked_ns
    int64_t rejected
    int64_t accept_errors


cdef struct Acceptor:
    Network* network
    pthread_t thread
    # Its listeners: one, or all of the server
    Listener* listeners
    int listener_count
    int poller
    int waker[2]
    # Indexes of its processors. Those behind the first ``processor_count`` get no connections any more.
    int processors[MAX_PROCESSORS]
    int opened_count
    int64_t processor_count
    int64_t next_processor
    bint is_started
    # Connections that wait for being closed
    TimingWheel throttled


cdef struct RequestList:
    Connection* first
    Connection* last
    int64_t count


cdef struct RequestQueue:
    Mutex mutex
    Condition changed
    int64_t capacity
    # How many threads that wait for a request shall return without one
    int64_t wakes
    int64_t idle
    # Requests that were answered have left work.
    bint has_work
    RequestList waiting
    RequestList held
    bint closed
    # The thread that has the turn (this_thread), or NULL, and since when; whether an idle thread watches it
    const void* turn
    int64_t turn_began
    bint is_watched
    # Where the thread that has come back last waits, and whether one waits there
    Condition next_changed
    bint has_next
    # Since when no request waits, or 0, and for how long none has waited before
    int64_t empty_since
    int64_t empty_ns


# Of queued.max.request.bytes (_loop/memory_pool.pxi)
cdef struct MemoryPool:
    # 0: there is no limit.
    int64_t size
    # Below 0 as the last request got more than was left
    int64_t available
    # When a connection found nothing, in monotonic nanoseconds; 0: none has since memory was given back
    int64_t empty_since
    # For how long connections have found nothing
    int64_t empty_ns


cdef struct Event:
    EventKind kind
    int64_t value
    Peer peer
    # Its index; -1: the event is of no connection, or needs no listener.
    int listener


cdef struct Events:
    Mutex mutex
    Condition changed
    Event ring[EVENTS]
    int first
    int count
    int64_t left_out
    bint closed


cdef struct Network:
    HotFunction hot
    void* hot_context
    # They belong to the Python objects that the threads keep.
    const ClockFunctions* clock
    const PollerFunctions* poller
    int64_t max_request_bytes
    # Of a frame, until the peer is authenticated.
    int64_t max_unauthenticated_bytes
    # How long a peer may take to authenticate himself, and how long the answer to one that is refused waits.
    int64_t authentication_ms
    int64_t refusal_ms
    # -1: connections may be idle for ever.
    int64_t idle_ns
    int send_buffer
    # Room for MAX_PROCESSORS, so that none moves. ``processor_count`` grows while the server runs.
    Processor* processors
    int64_t processor_count
    Listener* listeners
    int listener_count
    Acceptor* acceptors
    int acceptor_count
    int64_t stopping
    # Guards the contexts of TLS listeners, which are exchanged when certificates are renewed.
    Mutex tls_mutex
    # Connections that were accepted since the start
    int64_t accepted
    # Whether it is measured for how long requests keep processors. Any thread sets it.
    int64_t measures_time
    # Of each plane
    RequestQueue queues[PLANES]
    MemoryPool memory
    # Of the ConnectionQuotas that the Python object keeps
    Quotas* quotas
    Events events
    # By API key; NULL until there is a request. Each is made under the mutex of the events.
    RequestTimes* times[API_KEYS]


include "_loop/answers.pxi"
include "_loop/shared.pxi"
include "_loop/requests.pxi"
include "_loop/memory_pool.pxi"
include "_loop/request_times.pxi"
include "_loop/sessions.pxi"
include "_loop/handshakes.pxi"
include "_loop/tls.pxi"
include "_loop/python_tls.pxi"
include "_loop/connections.pxi"
include "_loop/direct_answers.pxi"
include "_loop/processors.pxi"
include "_loop/acceptors.pxi"
include "_loop/python.pxi"
