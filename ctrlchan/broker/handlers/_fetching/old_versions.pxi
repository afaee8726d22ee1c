# Versions 0 to 3, whose records have formats 0 and 1: a handler thread converts them.
#
# A request is read and waits as every other one. When it is to be answered, what was read is kept with its state, and the
# request goes to the request queue. The handler thread takes it (``FetchApi.take``) and answers, or gives the request
# back, because nothing but markers of transactions was read: then it waits on, until a high watermark moves.


cdef enum:
    # In a response: the sizes of name and array; index, error, high watermark, size of the records
    OLD_TOPIC_BYTES = 6
    OLD_PARTITION_BYTES = 18

cdef void keep_order(Fetch* current, Reading* reading) noexcept nogil:
    """Move the answers of a reading, in the order of the response, to ``kept``."""
    cdef int32_t i = next_answer(reading, -1)
    while i >= 0:
        current.kept[current.kept_count] = reading.answers[i]
        current.kept_count += 1
        i = next_answer(reading, i)
    # Their file ranges belong to ``kept`` from here on.
    reading.count = 0


cdef Result keep_answers(
    FetchApi self, Fetch* current, Reading* reading, HotRequest* hot, RequestHeader* header, Answer* answer, bint may_wait
) noexcept nogil:
    """Keep what was read for a handler thread; or answer a client that is throttled, without topics."""
    cdef int32_t i, count = max(1, reading.count)
    cdef uint8_t* room
    if charge_old(self, current, reading, hot, header):
        append_header(answer, header)
        room = append_room(answer, 8 if header.version >= THROTTLE_TIMES else 4)
        if room != NULL:
            put_i32(room, header.throttle_time_ms if header.version >= THROTTLE_TIMES else 0)
            if header.version >= THROTTLE_TIMES:
                put_i32(room + 4, 0)
        return DONE
    free(current.watermarks)
    current.kept_count = 0
    current.watermarks = <int64_t*>malloc(count * sizeof(int64_t))
    current.kept = <PartitionAnswer*>malloc(count * sizeof(PartitionAnswer))
    if current.watermarks == NULL or current.kept == NULL:
        free(current.kept)
        current.kept = NULL
        return CLOSE
    for i in range(reading.count):
        current.watermarks[i] = reading.answers[i].high_watermark
    current.may_wait = may_wait
    keep_order(current, reading)
    return QUEUE


cdef bint charge_old(
    FetchApi self, const Fetch* current, Reading* reading, HotRequest* hot, RequestHeader* header
) noexcept nogil:
    """Charge a response, as large as it is before the conversion; return whether its client is throttled."""
    cdef int64_t size = SIZE_FIELD_BYTES + (8 if header.version >= THROTTLE_TIMES else 4)
    cdef const Topic* topic = NULL
    cdef int32_t i
    if not header.has_quotas:
        return False
    i = next_answer(reading, -1)
    while i >= 0:
        if not same_topic(topic, topic_of(current.session, reading, i)):
            topic = topic_of(current.session, reading, i)
            size += OLD_TOPIC_BYTES + topic.size
        size += OLD_PARTITION_BYTES + reading.answers[i].records.size
        i = next_answer(reading, i)
    return charge(
        self, hot, header, -1 if current.request.replica_id >= 0 else FETCH_QUOTA, size,
        current.request.replica_id >= 0
    )


cdef bint has_news(const Fetch* current, const Reading* reading) noexcept nogil:
    """Return whether a request may be answered in which a handler thread has found no records: they may have come now."""
    cdef int32_t i
    if current.watermarks == NULL:
        return True
    for i in range(reading.count):
        if reading.answers[i].error != NONE or reading.answers[i].high_watermark != current.watermarks[i]:
            return True
    return False


cdef int32_t left_wait_ms(FetchApi self, const Fetch* current, const HotRequest* hot) noexcept nogil:
    """Return for how long a request may wait from now on. One that a handler thread gives back has waited before."""
    cdef int64_t left = current.request.max_wait_ms
    if current.watermarks != NULL:
        left -= (monotonic_ns_of(self.table.clock) - hot.arrived_ns) // 1000000
    return <int32_t>max(<int64_t>0, left)


cdef void free_kept(Fetch* self) noexcept nogil:
    cdef int32_t i
    for i in range(self.kept_count):
        if self.kept[i].records.segment != NULL:
            release(self.kept[i].records.segment)
        free(self.kept[i].aborted)
    free(self.kept)
    self.kept, self.kept_count = NULL, 0


cdef object fetched_partition(const CachedPartition* cached, PartitionAnswer* answer):
    """Return a FetchedPartition; the file range is its own from here on."""
    cdef FileRange records = None
    cdef int16_t error = NOT_LEADER_OR_FOLLOWER if answer.error == KAFKA_STORAGE_ERROR else answer.error
    if answer.records.segment != NULL:
        records = FileRange.__new__(FileRange)
        records.range = answer.records
        answer.records.segment = NULL
    return FetchedPartition(
        PyBytes_FromStringAndSize(<const char*>cached.topic.bytes, cached.topic.size), cached.index, error,
        answer.high_watermark, cached.fetch_offset, answer.most_bytes, bool(answer.is_zstd), records,
    )
