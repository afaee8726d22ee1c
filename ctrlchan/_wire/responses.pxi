# Response bodies: an error code, and the partitions' errors as columns.
#
#   LeaderAndIsr    error code int16, v0-4 [topic name, partition int32, error code int16]
#                                     v5+  [topic id, [partition int32, error code int16]]
#   StopReplica     error code int16, [topic name, partition int32, error code int16]
#   UpdateMetadata  error code int16
#
# Source: LeaderAndIsrResponse.json, StopReplicaResponse.json, UpdateMetadataResponse.json.


class ControlResponse:
    """A whole response body of any of the three; see ``_codec.pyi``."""

    __slots__ = (
        "api_key", "error_code", "partition", "partition_error", "topic_starts", "topics", "unknown_tagged_fields",
        "version",
    )

    def __init__(
        self, *, api_key, version, error_code, topics=None, topic_starts=None, partition=None,
        partition_error=None, unknown_tagged_fields=0,
    ):
        self.api_key = api_key
        self.version = version
        self.error_code = error_code
        self.topics = Topics(StringColumn.from_strings([])) if topics is None else topics
        self.topic_starts = np.zeros(1, np.int64) if topic_starts is None else topic_starts
        self.partition = np.empty(0, np.int32) if partition is None else partition
        self.partition_error = np.empty(0, np.int32) if partition_error is None else partition_error
        self.unknown_tagged_fields = unknown_tagged_fields

    def encode(self):
        """Return the body as bytes. Unknown tagged fields are not kept."""
        return encode_response(self)

    def __repr__(self):
        return (
            f"<{response_name(self.api_key)} v{self.version}: error {self.error_code}, "
            f"{len(self.partition)} partitions>"
        )


cdef bytes encode_response(response):
    cdef int api_key = response.api_key
    cdef int version = response.version
    check_version(api_key, version, True)
    cdef str api = response_name(api_key)
    cdef bint flexible = is_flexible(api_key, version)
    cdef bint by_id = api_key == API_LEADER_AND_ISR and version >= 5
    cdef Topics topics = response.topics
    cdef const int64_t* starts = NULL
    cdef const int32_t* partition = NULL
    cdef const int32_t* error = NULL
    cdef int64_t n = 0, n_starts = 0, n_errors = 0, n_topics = topics.names.c.n, t, i
    # The arrays are kept until this function returns.
    starts_array = int64_column(response.topic_starts, "topic_starts", &starts, &n_starts)
    partition_array = int32_column(response.partition, "partition", &partition, &n)
    error_array = int32_column(response.partition_error, "partition_error", &error, &n_errors)
    cdef int64_t size, one
    cdef uint8_t* p
    cdef const uint8_t* end
    cdef Fault fault
    fault.reason = R_NONE
    if not -0x8000 <= response.error_code <= 0x7FFF:
        raise EncodeError(f"{response.error_code} does not fit int16", api=api, version=version, field="errorCode")
    if n_starts != n_topics + 1 or starts[0] != 0 or starts[n_topics] != n or n_errors != n:
        raise ValueError("ControlResponse: topic_starts, partition and partition_error do not fit each other")
    size = 2 + (1 if flexible else 0)
    if api_key == API_UPDATE_METADATA:
        if n_topics > 0:
            raise EncodeError("this response names no partitions", api=api, version=version)
    else:
        size += count_size(n_topics if by_id else n, flexible)
        for t in range(n_topics):
            if starts[t + 1] < starts[t]:
                raise ValueError(f"topic_starts goes backwards at topic {t}")
            if by_id:
                size += 16 + count_size(starts[t + 1] - starts[t], True) + 1
                continue
            one = string_size(&topics.names.c, t, flexible, False, F_TOPIC_NAME, &fault)
            if one < 0:
                raise_encode_fault(&fault, api, version)
            size += one * (starts[t + 1] - starts[t])
        size += n * (7 if flexible else 6)
    out = PyBytes_FromStringAndSize(NULL, size)
    p = <uint8_t*>PyBytes_AS_STRING(out)
    end = p + size
    put_i16(p, <int16_t>response.error_code)
    p += 2
    if api_key != API_UPDATE_METADATA:
        p = put_count(p, n_topics if by_id else n, flexible)
        for t in range(n_topics):
            if by_id:
                memcpy(p, topics.c_ids + 16 * t, 16)
                p = put_count(p + 16, starts[t + 1] - starts[t], True)
            for i in range(starts[t], starts[t + 1]):
                if not by_id:
                    p = put_string(p, end, &topics.names.c, t, flexible, False, F_TOPIC_NAME, &fault)
                    if p == NULL:
                        raise_encode_fault(&fault, api, version)
                if error[i] != <int16_t>error[i]:
                    fail(&fault, R_INT16, F_ERROR_CODE, i)
                    raise_encode_fault(&fault, api, version)
                put_i32(p, partition[i])
                put_i16(p + 4, <int16_t>error[i])
                p += 6
                if flexible:
                    p[0] = 0
                    p += 1
            if by_id:
                p[0] = 0
                p += 1
    if flexible:
        p[0] = 0
    return out


def decode_response(int api_key, int version, data, int64_t offset=0):
    """Decode the response body that begins at ``offset`` and must end with ``data``; see ``_codec.pyi``."""
    cdef Reader r
    cdef Fault fault
    check_version(api_key, version, True)
    held = open_reader(&r, &fault, data, offset)
    cdef bint flexible = is_flexible(api_key, version)
    cdef bint by_id = api_key == API_LEADER_AND_ISR and version >= 5
    cdef int error_code = read_i16(&r, F_ERROR_CODE)
    cdef int64_t n_topics = 0, most = 0, count
    if api_key != API_UPDATE_METADATA:
        # The smallest entry: index, code, [tags], an empty name; the smallest topic: id, no entry, tags.
        count = read_count(&r, flexible, 18 if by_id else 8, F_TOPICS if by_id else F_PARTITION_ERRORS)
        n_topics = count
        most = (r.end - r.p) // 7 if by_id else count
    cdef StringFiller names = StringFiller(n_topics)
    ids = np.zeros((n_topics, 16), np.uint8)
    starts = np.zeros(n_topics + 1, np.int64)
    partition, error = np.empty(most, np.int32), np.empty(most, np.int32)
    cdef uint8_t* c_ids = <uint8_t*>writable(ids)
    cdef int64_t* c_starts = writable_int64(starts)
    cdef int32_t* c_partition = writable_int32(partition)
    cdef int32_t* c_error = writable_int32(error)
    cdef int64_t n = 0
    cdef int failed = 0
    if api_key != API_UPDATE_METADATA and fault.reason == R_NONE:
        with nogil:
            if by_id:
                n = read_errors_by_id(&r, n_topics, c_ids, c_starts, c_partition, c_error)
            else:
                n = read_errors_by_name(&r, n_topics, flexible, names, c_starts, c_partition, c_error)
    if flexible:
        read_tags(&r)
    check_end(&r)
    if fault.reason != R_NONE:
        raise_decode_fault(&fault, response_name(api_key), version)
    if n < 0:
        raise MemoryError()
    if by_id:
        topics = Topics(StringColumn.from_strings([b""] * n_topics), ids)
    else:
        topics = Topics(names.column(), trim(ids, names.n))
        trim(starts, names.n + 1)
    return ControlResponse(
        api_key=api_key, version=version, error_code=error_code, topics=topics, topic_starts=starts,
        partition=trim(partition, n), partition_error=trim(error, n), unknown_tagged_fields=r.unknown_tags,
    )


cdef int64_t read_errors_by_id(Reader* r, int64_t n_topics, uint8_t* ids, int64_t* starts, int32_t* partition, int32_t* error) noexcept nogil:
    """Read the errors of LeaderAndIsr v5+; returns the number of rows, -1 after a fault."""
    cdef int64_t t, i, count, n = 0
    for t in range(n_topics):
        if not read_room(r, 16, F_TOPIC_ID):
            return -1
        memcpy(ids + 16 * t, r.p, 16)
        r.p += 16
        count = read_count(r, True, 7, F_PARTITION_ERRORS)
        for i in range(n, n + count):
            partition[i] = read_i32(r, F_PARTITION_INDEX)
            error[i] = read_i16(r, F_ERROR_CODE)
            read_tags(r)
            if r.fault.reason != R_NONE:
                return -1
        n += count
        starts[t + 1] = n
        read_tags(r)
        if r.fault.reason != R_NONE:
            return -1
    return n


cdef int64_t read_errors_by_name(Reader* r, int64_t count, bint flexible, StringFiller names, int64_t* starts, int32_t* partition, int32_t* error) noexcept nogil:
    """Read errors; a run of equal names becomes one topic. Returns the number of rows, -1 after a fault or without memory."""
    cdef int64_t i, length
    for i in range(count):
        length = read_string_length(r, flexible, False, F_TOPIC_NAME)
        if r.fault.reason != R_NONE:
            return -1
        if not names.is_last(r.p, length) and names.add(r.p, length) < 0:
            return -1
        r.p += length
        partition[i] = read_i32(r, F_PARTITION_INDEX)
        error[i] = read_i16(r, F_ERROR_CODE)
        if flexible:
            read_tags(r)
        if r.fault.reason != R_NONE:
            return -1
        starts[names.n] = i + 1
    return count
