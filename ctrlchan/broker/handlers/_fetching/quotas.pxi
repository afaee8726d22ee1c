# Fetch under quotas: what an answer counts, and the answer to a client that has fetched too much.
#
# Source: KafkaApis.handleFetchRequest, FetchContext.getResponseSize, FetchContext.getThrottledResponse.


# An answer before anything was appended.
cdef struct Mark:
    int64_t size
    int32_t range_count
    int64_t range_bytes


cdef inline Mark mark_of(const Answer* answer) noexcept nogil:
    cdef Mark mark
    mark.size, mark.range_count, mark.range_bytes = answer.size, answer.range_count, answer.range_bytes
    return mark


cdef inline int64_t header_bytes(const RequestHeader* header) noexcept nogil:
    """Return the size of the header of a response: the correlation id, and from a version on the tagged fields."""
    return 5 if header.flexible else 4


cdef void put_session_id(Answer* answer, const Mark* empty, const RequestHeader* header, int32_t session_id) noexcept nogil:
    """Write the id of a session that was made after its answer: behind the throttle time and the error."""
    if not answer.failed:
        put_i32(answer.data + empty.size + header_bytes(header) + 6, session_id)


cdef bint limit_answer(
    FetchApi self,
    const Fetch* current,
    HotRequest* hot,
    RequestHeader* header,
    Answer* answer,
    const Mark* empty,
    int16_t error,
    int32_t session_id,
) noexcept nogil:
    """Charge a response that is written; write one without topics instead if the client is throttled. Return whether it is.

    ``error``, ``session_id``: of that response. What a follower fetches counts nowhere.
    """
    cdef bint is_follower = current.request.replica_id >= 0
    # As Kafka counts it: the body, and its size field.
    cdef int64_t size = (
        SIZE_FIELD_BYTES
        + answer.size - empty.size - header_bytes(header)
        + answer.range_bytes - empty.range_bytes
    )
    if not charge(self, hot, header, -1 if is_follower else FETCH_QUOTA, size, is_follower):
        return False
    cut_answer(answer, empty.size, empty.range_count)
    put_session_error(answer, header, error, session_id)
    return True
