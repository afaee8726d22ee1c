# Request bodies: reading topics with their partition rows, as all three requests do, and decode_request.


cdef object read_string(Reader* r, bint flexible, bint nullable, int field):
    """Read one string as bytes (None: null, or a fault)."""
    cdef int64_t length = read_string_length(r, flexible, nullable, field)
    if length < 0:
        return None if nullable and r.fault.reason == R_NONE else b""
    r.p += length
    return PyBytes_FromStringAndSize(<const char*>r.p - length, length)


cdef tuple read_grouped(Reader* r, int api_key, int version):
    """Read the partition states, grouped by topic or not; returns (Topics, topic_starts, PartitionFiller).

    Memory is bounded by what the rest of the data could hold: rows by the bytes of the smallest row.
    """
    cdef bint flexible = is_flexible(api_key, version)
    cdef bint grouped = version >= (2 if api_key == API_LEADER_AND_ISR else 1 if api_key == API_STOP_REPLICA else 5)
    cdef bint has_id = version >= 5 and api_key == API_LEADER_AND_ISR or version >= 7 and api_key == API_UPDATE_METADATA
    cdef int64_t n_topics
    cdef int field
    # The smallest topic: an empty name, [id], no partition, [tags].
    if not grouped:
        field = F_UNGROUPED_PARTITIONS if api_key == API_STOP_REPLICA else F_UNGROUPED_PARTITION_STATES
        n_topics = read_count(r, False, least_row(api_key, version), field)
    else:
        field = F_TOPICS if api_key == API_STOP_REPLICA and version <= 2 else F_TOPIC_STATES
        n_topics = read_count(r, flexible, (3 if flexible else 6) + (16 if has_id else 0), field)
    cdef StringFiller names = StringFiller(n_topics)
    ids = np.empty((n_topics, 16), np.uint8) if has_id else np.zeros((n_topics, 16), np.uint8)
    starts = np.zeros(n_topics + 1, np.int64)
    cdef int64_t* c_starts = writable_int64(starts)
    cdef uint8_t* c_ids = <uint8_t*>writable(ids) if has_id else NULL
    cdef PartitionFiller filler = PartitionFiller.of(api_key, version, r.p, r.end)
    cdef int failed
    with nogil:
        if grouped:
            failed = read_topics(r, api_key, version, n_topics, names, c_ids, c_starts, filler)
        else:
            failed = read_ungrouped(r, api_key, version, n_topics, names, c_starts, filler)
    if failed and r.fault.reason == R_NONE:
        raise MemoryError()
    topics = Topics(names.column(), trim(ids, names.n))
    return topics, trim(starts, names.n + 1), filler


cdef int read_rows(Reader* r, int api_key, int version, PartitionFiller filler, int32_t topic, int64_t count) noexcept nogil:
    """Read one topic's rows with the loop that is specialised for this api and version."""
    if reserve_rows(filler, count, r.p) < 0:
        return -1
    if api_key == API_UPDATE_METADATA:
        if version >= 6:
            return read_update_metadata_rows(r, filler, topic, count, True, True)
        return read_update_metadata_rows(r, filler, topic, count, False, version >= 4)
    if api_key == API_LEADER_AND_ISR:
        if version >= 6:
            return read_leader_and_isr_rows(r, filler, topic, count, 6, True)
        return read_leader_and_isr_rows(r, filler, topic, count, version, version >= 4)
    return read_stop_replica_rows(r, filler, topic, count, version)


cdef int read_topics(Reader* r, int api_key, int version, int64_t n_topics, StringFiller names, uint8_t* ids, int64_t* starts, PartitionFiller filler) noexcept nogil:
    cdef bint flexible = is_flexible(api_key, version)
    cdef bint indexes = api_key == API_STOP_REPLICA and version <= 2
    cdef int64_t least = least_row(api_key, version)
    cdef int64_t t, count, length
    for t in range(n_topics):
        length = read_string_length(r, flexible, False, F_NAME if indexes else F_TOPIC_NAME)
        if r.fault.reason != R_NONE or names.add(r.p, length) < 0:
            return -1
        r.p += length
        if ids != NULL:
            if not read_room(r, 16, F_TOPIC_ID):
                return -1
            memcpy(ids + 16 * t, r.p, 16)
            r.p += 16
        count = read_count(r, flexible, least, F_PARTITION_INDEXES if indexes else F_PARTITION_STATES)
        if r.fault.reason != R_NONE or read_rows(r, api_key, version, filler, <int32_t>t, count) < 0:
            return -1
        starts[t + 1] = filler.c.n
        if flexible:
            read_tags(r)
            if r.fault.reason != R_NONE:
                return -1
    return 0


cdef int64_t least_row(int api_key, int version) noexcept nogil:
    if api_key == API_UPDATE_METADATA:
        return least_update_metadata_row(version)
    if api_key == API_LEADER_AND_ISR:
        return least_leader_and_isr_row(version)
    return least_stop_replica_row(version)


cdef int read_ungrouped(Reader* r, int api_key, int version, int64_t count, StringFiller names, int64_t* starts, PartitionFiller filler) noexcept nogil:
    """Read rows that each contain their topic's name; a run of equal names becomes one topic."""
    cdef int64_t i, length
    for i in range(count):
        length = read_string_length(r, False, False, F_TOPIC_NAME)
        if r.fault.reason != R_NONE:
            return -1
        if not names.is_last(r.p, length) and names.add(r.p, length) < 0:
            return -1
        r.p += length
        if read_rows(r, api_key, version, filler, <int32_t>(names.n - 1), 1) < 0:
            return -1
        starts[names.n] = filler.c.n
    return 0


ControlRequestBody = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


def decode_request(int api_key, int version, data, int64_t offset=0):
    """Decode the body that begins at ``offset`` and must end with ``data``; see ``_codec.pyi``."""
    cdef Reader r
    cdef Fault fault
    check_version(api_key, version)
    held = open_reader(&r, &fault, data, offset)
    if api_key == API_UPDATE_METADATA:
        request = read_update_metadata(&r, version)
    elif api_key == API_LEADER_AND_ISR:
        request = read_leader_and_isr(&r, version)
    else:
        request = read_stop_replica(&r, version)
    if fault.reason != R_NONE:
        raise_decode_fault(&fault, request_name(api_key), version)
    return request
