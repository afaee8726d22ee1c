# Writing a Fetch response, versions 4 to 17: bytes of Kafka's fields, and ranges of files between them.


cdef enum:
    DIVERGING_EPOCH_TAG = 0
    # epoch, end offset, no tags
    DIVERGING_EPOCH_BYTES = 13
    CURRENT_LEADER_TAG = 1
    # id, epoch, no tags
    CURRENT_LEADER_BYTES = 9
    NODE_ENDPOINTS_TAG = 0
    MOST_VARINT_BYTES = 5


cdef void put_count(Answer* answer, int64_t count, bint flexible) noexcept nogil:
    """Write the length of a list, or of bytes; -1: null."""
    cdef uint8_t* room = append_room(answer, MOST_VARINT_BYTES if flexible else 4)
    if room == NULL:
        return
    if flexible:
        answer.size -= MOST_VARINT_BYTES - (put_uvarint(room, <uint32_t>(count + 1)) - room)
    else:
        put_i32(room, <int32_t>count)


cdef void put_no_tags(Answer* answer) noexcept nogil:
    cdef uint8_t* room = append_room(answer, 1)
    if room != NULL:
        room[0] = 0


cdef void put_head(
    Answer* answer, const RequestHeader* header, int16_t error, int32_t session_id
) noexcept nogil:
    """Write the header of the response, and its fields before the topics."""
    cdef uint8_t* room
    append_header(answer, header)
    room = append_room(answer, 10 if header.version >= SESSIONS else 4)
    if room != NULL:
        put_i32(room, header.throttle_time_ms)
        if header.version >= SESSIONS:
            put_i16(room + 4, error)
            put_i32(room + 6, session_id)


cdef Result put_session_error(
    Answer* answer, const RequestHeader* header, int16_t error, int32_t session_id
) noexcept nogil:
    """Write a response without topics."""
    put_head(answer, header, error, session_id)
    put_count(answer, 0, header.flexible)
    if header.flexible:
        put_no_tags(answer)
    return DONE


cdef inline int64_t written(const Answer* answer) noexcept nogil:
    return answer.size + answer.range_bytes


cdef int64_t bytes_around_topics(const RequestHeader* header) noexcept nogil:
    """Return the size of a response without topics, as Kafka counts it: with its size field."""
    return SIZE_FIELD_BYTES + (10 if header.version >= SESSIONS else 4) + (2 if header.flexible else 4)


cdef int64_t put_topics(
    FetchSession* session, Reading* reading, const RequestHeader* header, Answer* answer
) noexcept nogil:
    """Write the topics: neighbours of one topic together, partitions that the broker does not know last.

    The ranges of files belong to the answer afterwards. Return what counts for the replication quota: the size of a
    response with the throttled partitions alone; 0: there are none. Source: KafkaApis.sizeOfThrottledPartitions.
    """
    cdef bint flexible = header.flexible
    cdef int64_t throttled = 0, of_topic, of_partitions, began
    cdef int32_t i = -1, j, topics = 0, partitions
    cdef const Topic* topic = NULL
    i = next_answer(reading, -1)
    while i >= 0:
        if not same_topic(topic, topic_of(session, reading, i)):
            topic = topic_of(session, reading, i)
            topics += 1
        i = next_answer(reading, i)
    put_count(answer, topics, flexible)
    i = next_answer(reading, -1)
    while i >= 0:
        topic = topic_of(session, reading, i)
        partitions, j = 0, i
        while j >= 0 and same_topic(topic, topic_of(session, reading, j)):
            partitions += 1
            j = next_answer(reading, j)
        began = written(answer)
        if header.version < TOPIC_IDS:
            put_name(answer, topic, flexible)
        else:
            append_bytes(answer, topic.bytes, topic.size)
        put_count(answer, partitions, flexible)
        of_topic, of_partitions = written(answer) - began + flexible, 0
        while i != j:
            began = written(answer)
            put_partition(&session.partitions[reading.answers[i].number], &reading.answers[i], header, answer)
            if reading.answers[i].is_throttled:
                of_partitions += written(answer) - began
            i = next_answer(reading, i)
        if of_partitions:
            throttled += of_topic + of_partitions
        if flexible:
            put_no_tags(answer)
    if flexible:
        put_endpoints(reading, answer)
    return throttled + bytes_around_topics(header) if throttled else 0


cdef int32_t next_answer(const Reading* reading, int32_t i) noexcept nogil:
    """Return the index of the next answer after ``i`` that is not left out, or -1. ``i`` -1: begin at the first."""
    cdef bint unknown = i >= 0 and reading.answers[i].is_unknown
    while True:
        i += 1
        if i == reading.count:
            if unknown:
                return -1
            i, unknown = 0, True
        if i == reading.count:
            return -1
        if reading.answers[i].is_unknown == unknown and not reading.answers[i].is_left_out:
            return i


cdef inline const Topic* topic_of(const FetchSession* session, const Reading* reading, int32_t i) noexcept nogil:
    return session.partitions[reading.answers[i].number].topic


cdef inline bint same_topic(const Topic* one, const Topic* other) noexcept nogil:
    return one == other or one != NULL and are_equal(one, other.bytes, other.size, other.hash)


cdef void put_name(Answer* answer, const Topic* topic, bint flexible) noexcept nogil:
    cdef uint8_t* room
    if flexible:
        put_count(answer, topic.size, True)
    else:
        room = append_room(answer, 2)
        if room != NULL:
            put_i16(room, <int16_t>topic.size)
    append_bytes(answer, topic.bytes, topic.size)


cdef void put_partition(
    const CachedPartition* cached, PartitionAnswer* one, const RequestHeader* header, Answer* answer
) noexcept nogil:
    """Write one partition: its offsets, aborted transactions and records."""
    cdef bint flexible = header.flexible
    cdef int16_t error = one.error
    if error == KAFKA_STORAGE_ERROR and header.version < STORAGE_ERRORS:
        error = NOT_LEADER_OR_FOLLOWER
    if one.is_zstd:
        error = UNSUPPORTED_COMPRESSION_TYPE
        leave_error(one)
    put_offsets(cached.index, error, one, header, answer)
    put_aborted(one, flexible, answer)
    if header.version >= RACKS:
        put_int32(answer, one.preferred)
    put_count(answer, -1 if one.is_zstd else one.records.size, flexible)
    if one.records.segment != NULL:
        append_file_range(
            answer, one.records.fd, one.records.position, one.records.size, release_range, one.records.segment
        )
        one.records.segment = NULL
    if not flexible:
        return
    if one.diverging_epoch >= 0:
        put_divergence(one, answer)
    elif one.leader >= 0 or one.leader_epoch >= 0:
        put_leader(one, answer)
    else:
        put_no_tags(answer)


cdef void release_range(void* segment) noexcept nogil:
    release(<Segment*>segment)


cdef void put_int32(Answer* answer, int32_t value) noexcept nogil:
    cdef uint8_t* room = append_room(answer, 4)
    if room != NULL:
        put_i32(room, value)


cdef void put_offsets(
    int32_t index, int16_t error, const PartitionAnswer* one, const RequestHeader* header, Answer* answer
) noexcept nogil:
    cdef bint has_start = header.version >= LOG_START_OFFSETS
    cdef uint8_t* room = append_room(answer, 30 if has_start else 22)
    if room == NULL:
        return
    put_i32(room, index)
    put_i16(room + 4, error)
    put_i64(room + 6, one.high_watermark)
    put_i64(room + 14, one.last_stable_offset)
    if has_start:
        put_i64(room + 22, one.start_offset)


cdef void put_aborted(const PartitionAnswer* one, bint flexible, Answer* answer) noexcept nogil:
    # Kafka has no list for READ_UNCOMMITTED, and an empty one where it did not look at the log.
    cdef bint has_list = one.has_aborted or one.is_unknown or one.is_zstd
    cdef uint8_t* room
    cdef int32_t i
    put_count(answer, one.aborted_count if has_list else -1, flexible)
    for i in range(one.aborted_count if one.has_aborted else 0):
        room = append_room(answer, 17 if flexible else 16)
        if room == NULL:
            return
        put_i64(room, one.aborted[i].producer_id)
        put_i64(room + 8, one.aborted[i].first_offset)
        if flexible:
            room[16] = 0


cdef void put_divergence(const PartitionAnswer* one, Answer* answer) noexcept nogil:
    """Write the tagged fields: the diverging epoch, and no other."""
    cdef uint8_t* room = append_room(answer, 3 + DIVERGING_EPOCH_BYTES)
    if room == NULL:
        return
    room[0], room[1], room[2] = 1, DIVERGING_EPOCH_TAG, DIVERGING_EPOCH_BYTES
    put_i32(room + 3, one.diverging_epoch)
    put_i64(room + 7, one.diverging_end)
    room[15] = 0


cdef void put_leader(const PartitionAnswer* one, Answer* answer) noexcept nogil:
    """Write the tagged fields: the current leader, and no other."""
    cdef uint8_t* room = append_room(answer, 3 + CURRENT_LEADER_BYTES)
    if room == NULL:
        return
    room[0], room[1], room[2] = 1, CURRENT_LEADER_TAG, CURRENT_LEADER_BYTES
    put_i32(room + 3, one.leader)
    put_i32(room + 7, one.leader_epoch)
    room[11] = 0


cdef void put_endpoints(const Reading* reading, Answer* answer) noexcept nogil:
    """Write the last tagged fields: where the leaders listen that the answer names, if it names any."""
    cdef uint8_t* room
    if reading.endpoints == NULL:
        put_no_tags(answer)
        return
    room = append_room(answer, 2)
    if room != NULL:
        room[0], room[1] = 1, NODE_ENDPOINTS_TAG
    # Written as the length of a compact array: one more than the number.
    put_count(answer, reading.endpoints_size - 1, True)
    append_bytes(answer, reading.endpoints, reading.endpoints_size)
