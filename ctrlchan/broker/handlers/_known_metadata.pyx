"""Metadata (3) on the thread of a processor: answers that a handler thread has given before, without the GIL.

Clients that come back all ask the same: brokers, and the partitions of their topics. ``metadata.py`` makes the first
answer of each request and gives it to ``MetadataApi.add``; a request with the same bytes gets the same bytes until the
next UpdateMetadata. All else is left to the handler threads: what nobody has asked since then, topics to be created,
and everything where there is an authorizer.

A table of answers never changes. It belongs to one MetadataSnapshot, which it keeps: as long as that is the current one its
answers are right. Tables are replaced as snapshots are (``CurrentMetadata``): a reader counts itself, then loads the
pointer; who replaces it frees earlier tables when no reader is counted.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from ctrlchan._c.atomics cimport add_and_get, load_number, load_pointer, store_pointer
from ctrlchan._c.bytes cimport put_i32
from ctrlchan.broker.handlers._hot cimport HotApi, ListenerName, RequestHeader, append_header, charge
from ctrlchan.broker.metadata._snapshot cimport CurrentMetadata, MetadataSnapshot
from ctrlchan.server._processor cimport ARRIVED, DONE, QUEUE, Answer, HotRequest, Result, append_room

cdef enum:
    METADATA = 3
    LOWEST = 0
    HIGHEST = 12
    FLEXIBLE_FROM = 9
    # From this version on a response begins with ThrottleTimeMs.
    THROTTLE_TIME_FROM = 3
    NO_QUOTA = -1
    LEAST_CAPACITY = 8

# Answers of one table, and their bytes with those of their requests: of a cluster with 100,000 partitions two have room.
cdef int64_t MOST_ANSWERS = 1024
cdef int64_t MOST_BYTES = 16 << 20


@cython.overflowcheck(False)
cdef uint64_t hash_of(int16_t version, const uint8_t* request, int64_t size) noexcept nogil:
    """FNV-1a. Clients that find equal hashes fill a table of so few answers with their own, and no more."""
    cdef uint64_t value = <uint64_t>14695981039346656037 ^ <uint64_t>version
    cdef int64_t i
    for i in range(size):
        value = (value ^ request[i]) * <uint64_t>1099511628211
    return value ^ (value >> 32)


cdef class AnswerTable:
    """The answers in a dict by (version, listener, request), for processors."""

    def __init__(self, MetadataSnapshot snapshot not None, dict answers not None):
        self.snapshot, self.answers = snapshot, answers
        self.fields.metadata = &snapshot.fields
        self.fields.capacity = LEAST_CAPACITY
        while self.fields.capacity < 2 * <int64_t>len(answers):
            self.fields.capacity *= 2
        self.fields.places = <KnownAnswer*>calloc(self.fields.capacity, sizeof(KnownAnswer))
        if self.fields.places == NULL:
            raise MemoryError()
        for (version, listener, request), body in answers.items():
            self._put(version, listener, request, body)

    def __dealloc__(self):
        free(self.fields.places)

    cdef _put(self, int16_t version, bytes listener, bytes request, bytes body):
        cdef KnownAnswer answer
        cdef int64_t at
        answer.version = version
        answer.listener, answer.listener_size = <const uint8_t*>PyBytes_AS_STRING(listener), PyBytes_GET_SIZE(listener)
        answer.request, answer.request_size = <const uint8_t*>PyBytes_AS_STRING(request), PyBytes_GET_SIZE(request)
        answer.body, answer.body_size = <const uint8_t*>PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body)
        answer.hash = hash_of(version, answer.request, answer.request_size)
        at = <int64_t>(answer.hash & <uint64_t>(self.fields.capacity - 1))
        while self.fields.places[at].body != NULL:
            at = (at + 1) & (self.fields.capacity - 1)
        self.fields.places[at] = answer
        self.size += answer.request_size + answer.body_size


cdef const KnownAnswer* find_answer(
    const Answers* answers, int16_t version, const ListenerName* listener, const uint8_t* request, int64_t size
) noexcept nogil:
    """Return the answer to a request, NULL for none."""
    cdef uint64_t hashed = hash_of(version, request, size)
    cdef int64_t at = <int64_t>(hashed & <uint64_t>(answers.capacity - 1))
    cdef const KnownAnswer* found = &answers.places[at]
    while found.body != NULL:
        if (
            found.hash == hashed
            and found.version == version
            and found.request_size == size
            and found.listener_size == listener.size
            and memcmp(found.request, request, size) == 0
            and memcmp(found.listener, listener.bytes, listener.size) == 0
        ):
            return found
        at = (at + 1) & (answers.capacity - 1)
        found = &answers.places[at]
    return NULL


cdef bint append_known(
    MetadataApi self, const Answers* answers, HotRequest* request, RequestHeader* header, Answer* answer
) noexcept nogil:
    """Append the answer, if there is one that holds. Return whether there is."""
    cdef const KnownAnswer* known
    cdef uint8_t* room
    if answers.metadata != load_pointer(&self.metadata.current):
        return False
    known = find_answer(
        answers, header.version, &self.listeners[request.listener], header.body, header.end - header.body
    )
    if known == NULL:
        return False
    charge(self, request, header, NO_QUOTA, 0, False)
    append_header(answer, header)
    room = append_room(answer, known.body_size)
    if room != NULL:
        memcpy(room, known.body, known.body_size)
        if header.version >= THROTTLE_TIME_FROM:
            put_i32(room, header.throttle_time_ms)
    return True


cdef Result answer_known(
    MetadataApi self, HotRequest* request, RequestHeader* header, Answer* answer
) noexcept nogil:
    cdef bint is_known
    add_and_get(&self.readers, 1)
    is_known = append_known(self, <const Answers*>load_pointer(&self.current), request, header, answer)
    add_and_get(&self.readers, -1)
    return DONE if is_known else QUEUE


cdef Result handle_metadata(void* context, HotRequest* request, RequestHeader* header, Answer* answer) noexcept nogil:
    """Answer a request as one before it, or leave it to the request queue."""
    return answer_known(<MetadataApi>context, request, header, answer) if request.reason == ARRIVED else QUEUE


cdef class MetadataApi(HotApi):
    """Answers Metadata requests that were answered before, until ``metadata`` change."""

    def __init__(self, CurrentMetadata metadata not None):
        self.metadata, self.earlier = metadata, []
        self._publish(AnswerTable(metadata.snapshot, {}))
        self.entry.key, self.entry.lowest, self.entry.highest = METADATA, LOWEST, HIGHEST
        self.entry.flexible_from, self.entry.function, self.entry.context = FLEXIBLE_FROM, handle_metadata, <void*>self

    @property
    def known(self):
        """How many answers are known."""
        return len(self.table.answers)

    cdef _publish(self, AnswerTable table):
        if self.table is not None:
            self.earlier.append(self.table)
        self.table = table
        store_pointer(&self.current, &table.fields)
        if load_number(&self.readers) == 0:
            self.earlier.clear()

    def add(
        self, MetadataSnapshot snapshot not None, int version, str listener not None, bytes request not None,
        bytes body not None
    ):
        """Let processors give this answer to clients of a listener that send the same request.

        ``snapshot``: the current one before the answer was made. If there is another one by now, nothing is added: the
        answer may be of either. ``request``: what follows the request header; ``body``: what follows that of the response.
        """
        cdef AnswerTable table = self.table
        cdef dict answers = table.answers if table.snapshot is snapshot else {}
        cdef int64_t size = table.size if table.snapshot is snapshot else 0
        key = version, listener.encode(), request
        if self.metadata.snapshot is not snapshot or key in answers:
            return
        if len(answers) >= MOST_ANSWERS or size + len(request) + len(body) > MOST_BYTES:
            return
        self._publish(AnswerTable(snapshot, {**answers, key: body}))
