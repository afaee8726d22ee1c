from libc.stdint cimport int16_t, int64_t, uint8_t, uint64_t

from ctrlchan.broker.handlers._hot cimport HotApi


# One answer. Its memory belongs to the table.
cdef struct KnownAnswer:
    uint64_t hash
    int16_t version
    const uint8_t* listener
    int64_t listener_size
    const uint8_t* request
    int64_t request_size
    const uint8_t* body
    int64_t body_size


# The answers for one state of the metadata. Never changes.
cdef struct Answers:
    # The Snapshot for which they hold
    const void* metadata
    # Open addressing; a body of NULL: free. The capacity is a power of two.
    KnownAnswer* places
    int64_t capacity


cdef class AnswerTable:
    cdef Answers fields
    # The MetadataSnapshot of the Snapshot
    cdef object snapshot
    # (version, listener, request) -> body
    cdef dict answers
    # Bytes of requests and bodies
    cdef int64_t size

    cdef _put(self, int16_t version, bytes listener, bytes request, bytes body)


cdef class MetadataApi(HotApi):
    # The current Answers, and the processors that may read them or earlier ones
    cdef const void* current
    cdef int64_t readers
    cdef AnswerTable table
    cdef list earlier

    cdef _publish(self, AnswerTable table)
