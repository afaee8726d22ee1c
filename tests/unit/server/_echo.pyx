"""A hot handler for tests and measurements: the first byte of a request says what is done with it.

``e``: the request is the answer. ``a``: this letter is the answer. ``n``: no answer. ``c``: the connection is closed. ``q``: a handler thread
answers. ``p`` and int32: parked for so many milliseconds; the answer is the reason of the call that ended it.
``r`` and int32: as ``p``, but parked again when it is completed.
``w``: this letter is the answer, and work is left to a handler thread.
``m`` and int32: the rest is the answer, and the connection is muted for so many milliseconds.
``d`` and int32: delayed for so many milliseconds; the rest is handled then as a request.
``f`` and three int64: the range of the file (descriptor, position, size) between two copies of the letter.
A byte 0 and another one before all this: an API key, by which the server counts the times of requests.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from ctrlchan.server._processor cimport (
    ABANDONED,
    ARRIVED,
    CLOSE,
    COMPLETED,
    DELAYED,
    DELAY_ENDED,
    DONE,
    EXPIRED,
    NO_ANSWER,
    PARKED,
    QUEUE,
    Answer,
    HotFunction,
    HotHandler,
    HotRequest,
    NetworkThreads,
    Reason,
    Result,
    append_bytes,
    append_file_range,
    complete,
)

cdef extern from *:
    """
    #include <stdint.h>
    static inline void add(int64_t *number, int64_t more) { __atomic_add_fetch(number, more, __ATOMIC_SEQ_CST); }
    static inline int64_t value_of(const int64_t *number) { return __atomic_load_n(number, __ATOMIC_SEQ_CST); }
    static inline void put(uint64_t *place, uint64_t v) { __atomic_store_n(place, v, __ATOMIC_SEQ_CST); }
    static inline uint64_t get(const uint64_t *place) { return __atomic_load_n(place, __ATOMIC_SEQ_CST); }
    """
    void add(int64_t* number, int64_t more) nogil
    int64_t value_of(const int64_t* number) nogil
    void put(uint64_t* place, uint64_t value) nogil
    uint64_t get(const uint64_t* place) nogil

cdef enum:
    # Tokens of the latest parked requests.
    TOKENS = 65536


cdef struct Echo:
    # States of parked requests that are not released.
    int64_t states
    int64_t abandoned
    # File ranges that are not released.
    int64_t ranges
    int64_t parked
    uint64_t tokens[TOKENS]


cdef void release_range(void* owner) noexcept nogil:
    add(&(<Echo*>owner).ranges, -1)


cdef Result echo(void* context, HotRequest* request, Answer* answer) noexcept nogil:
    cdef Echo* self = <Echo*>context
    cdef const uint8_t* data = request.data
    cdef int64_t size = request.size
    cdef uint8_t kind
    cdef uint8_t reason
    cdef int64_t numbers[3]
    if size > 2 and data[0] == 0:
        data, size = data + 2, size - 2
    kind = data[0] if size else <uint8_t>c'e'
    if kind == c'd' and size > 5:
        if request.reason == ARRIVED:
            memcpy(&request.wait_ms, data + 1, 4)
            return DELAYED
        if request.reason == DELAY_ENDED:
            request.reason = ARRIVED
        data, size, kind = data + 5, size - 5, data[5]
    if kind == c'e':
        append_bytes(answer, data, size)
        return DONE
    if kind == c'a':
        append_bytes(answer, data, 1)
        return DONE
    if kind == c'w':
        append_bytes(answer, data, 1)
        request.leaves_work = True
        return DONE
    if kind == c'n':
        return NO_ANSWER
    if kind == c'm' and size >= 5:
        memcpy(&request.mute_ms, data + 1, 4)
        append_bytes(answer, data + 5, size - 5)
        return DONE
    if kind == c'c':
        return CLOSE
    if kind == c'f' and size == 25:
        memcpy(numbers, data + 1, 24)
        append_bytes(answer, data, 1)
        add(&self.ranges, 1)
        append_file_range(answer, <int>numbers[0], numbers[1], numbers[2], release_range, self)
        append_bytes(answer, data, 1)
        return DONE
    if (kind == c'p' or kind == c'r') and size >= 5:
        if request.reason == ARRIVED:
            memcpy(&request.wait_ms, data + 1, 4)
            request.state = malloc(1)
            add(&self.states, 1)
            put(&self.tokens[value_of(&self.parked) % TOKENS], request.token)
            add(&self.parked, 1)
            return PARKED
        if kind == c'r' and request.reason == COMPLETED:
            return PARKED
        free(request.state)
        add(&self.states, -1)
        if request.reason == ABANDONED:
            add(&self.abandoned, 1)
        reason = <uint8_t>request.reason
        append_bytes(answer, &reason, 1)
        append_bytes(answer, data + 5, size - 5)
        return DONE
    # What stands in the answer is forgotten.
    append_bytes(answer, data, size)
    add(&self.ranges, 1)
    append_file_range(answer, 0, 0, 1, release_range, self)
    return QUEUE


cdef class EchoHandler(HotHandler):
    """Does what the first byte of a request says. One processor at most."""

    cdef Echo echo

    def __cinit__(self):
        self.function, self.context = echo, &self.echo

    @property
    def states(self):
        """Requests that are parked and hold memory of the handler."""
        return value_of(&self.echo.states)

    @property
    def abandoned(self):
        """Parked requests whose connections were closed."""
        return value_of(&self.echo.abandoned)

    @property
    def ranges(self):
        """File ranges that are not released."""
        return value_of(&self.echo.ranges)

    @property
    def parked(self):
        """How many requests were ever parked."""
        return value_of(&self.echo.parked)

    def token(self, int number):
        """Return the token of the request that was parked after ``number`` others."""
        return get(&self.echo.tokens[number % TOKENS])


def complete_request(NetworkThreads threads not None, uint64_t token):
    """Wake a parked request, as a hot handler of another thread does."""
    with nogil:
        complete(threads.network, token)


cdef Result throttle(void* context, HotRequest* request, Answer* answer) noexcept nogil:
    request.throttle_time_ms = (<ThrottlingHandler>context).throttle_time_ms
    return (<ThrottlingHandler>context).inner_function((<ThrottlingHandler>context).inner_context, request, answer)


cdef class ThrottlingHandler(HotHandler):
    """Has another handler say that its clients are throttled for so many milliseconds."""

    cdef HotHandler inner
    cdef HotFunction inner_function
    cdef void* inner_context
    cdef int throttle_time_ms

    def __init__(self, HotHandler inner not None, int throttle_time_ms):
        self.inner, self.inner_function, self.inner_context = inner, inner.function, inner.context
        self.throttle_time_ms = throttle_time_ms
        self.function, self.context = throttle, <void*>self
