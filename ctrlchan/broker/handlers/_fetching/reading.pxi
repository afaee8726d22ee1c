# One pass over the partitions of a Fetch: what each may be answered with. Source: ReplicaManager.readFromLog,
# Partition.fetchRecords, KafkaApis.handleFetchRequest.


cdef enum:
    # So many answers need no memory of their own.
    FEW = 4


cdef struct PartitionAnswer:
    # Of the partition within its session
    int32_t number
    int16_t error
    # The broker does not know the topic or the partition, or the client may not read it: Kafka reads the others first,
    # and answers this one last.
    bint is_unknown
    bint is_left_out
    # For a follower: its bytes count for the replication quota.
    bint is_throttled
    # The replica that the consumer shall read from instead; LEADER: none
    int32_t preferred
    # compression.type=zstd, which the client is too old for
    bint is_zstd
    # -1: the follower's log does not diverge
    int32_t diverging_epoch
    int64_t diverging_end
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t start_offset
    Range records
    # How large the records may be, but for the first batch: its size where more could be read
    int64_t most_bytes
    # READ_COMMITTED alone; to be freed
    bint has_aborted
    AbortedEntry* aborted
    int32_t aborted_count
    # -1: not known, or not asked for
    int32_t leader
    int32_t leader_epoch


cdef struct Reading:
    PartitionAnswer* answers
    int32_t count
    # What counts for min.bytes
    int64_t bytes
    # The answer need not wait: an error, records of an older segment, or enough bytes
    bint is_complete
    # NULL until it is needed
    const Snapshot* metadata
    # The field NodeEndpoints; NULL: the answer has none
    uint8_t* endpoints
    int64_t endpoints_size
    PartitionAnswer few[FEW]


cdef bint begin_reading(Reading* reading, int32_t count) noexcept nogil:
    """Make room for the answers of ``count`` partitions. Return False without memory."""
    reading.count, reading.answers, reading.endpoints, reading.endpoints_size = 0, reading.few, NULL, 0
    reading.metadata = NULL
    if count > FEW:
        reading.answers = <PartitionAnswer*>malloc(count * sizeof(PartitionAnswer))
    return reading.answers != NULL


cdef void drop_answers(Reading* reading) noexcept nogil:
    """Give back the files and the memory of all answers."""
    cdef int32_t i
    for i in range(reading.count):
        if reading.answers[i].records.segment != NULL:
            release(reading.answers[i].records.segment)
        free(reading.answers[i].aborted)
    reading.count = 0


cdef void end_reading(FetchApi self, Reading* reading) noexcept nogil:
    drop_answers(reading)
    if reading.metadata != NULL:
        release_snapshot(self.metadata)
    free(reading.endpoints)
    if reading.answers != reading.few:
        free(reading.answers)


cdef void read_partitions(FetchApi self, Fetch* fetch, HotRequest* hot, Watcher* watchers, Reading* reading) noexcept nogil:
    """Read all partitions of the session, whose mutex is held. ``watchers``: one for each is armed; NULL: none is."""
    cdef FetchSession* session = fetch.session
    cdef PartitionAnswer* answer
    cdef int64_t limit = min(min(<int64_t>fetch.request.max_bytes, self.max_bytes), fetch.most_bytes), counted
    cdef int64_t min_bytes = min(<int64_t>fetch.request.min_bytes, limit)
    cdef int32_t number = session.first, read = 0
    cdef bint whole_first = fetch.request.version >= RESPONSE_LIMITS
    drop_answers(reading)
    reading.bytes, reading.is_complete = 0, False
    while number != NO_PARTITION:
        answer = &reading.answers[reading.count]
        memset(answer, 0, sizeof(PartitionAnswer))
        answer.number, answer.diverging_epoch, answer.leader, answer.leader_epoch = number, -1, -1, -1
        answer.preferred = LEADER
        counted = read_partition(
            self, fetch, hot, reading, &session.partitions[number], answer, limit, whole_first,
            NULL if watchers == NULL else &watchers[reading.count]
        )
        reading.count += 1
        reading.bytes += counted
        if answer.error != NONE:
            leave_error(answer)
        # Before there was a limit of the response, also records that are cut took room.
        if answer.records.size > 0 or fetch.request.version < RESPONSE_LIMITS:
            whole_first = False
            limit = max(<int64_t>0, limit - counted)
        if not answer.is_unknown:
            read += 1
            if (
                answer.error != NONE or answer.preferred != LEADER or answer.diverging_epoch >= 0
                or answer.records.is_older
            ):
                reading.is_complete = True
        number = session.partitions[number].later
    if read == 0 or reading.bytes >= min_bytes:
        reading.is_complete = True


cdef bint must_wait(FetchApi self, PartitionState* partition, int32_t replica_id) noexcept nogil:
    """Return whether a throttled follower gets no records now. Requires the partition's mutex.

    Source: ReplicaManager.shouldLeaderThrottle.
    """
    require(&partition.mutex)
    cdef const Follower* follower = follower_of(partition, replica_id)
    return (follower == NULL or not follower.in_isr) and self.leader_quota.exceeds()


cdef void leave_records(PartitionAnswer* answer) noexcept nogil:
    """Remove the records from an answer. Those of an older segment are no reason to answer at once then."""
    if answer.records.segment != NULL:
        release(answer.records.segment)
        answer.records.segment = NULL
    answer.records.size = 0
    answer.records.is_cut = answer.records.is_older = False


cdef void leave_error(PartitionAnswer* answer) noexcept nogil:
    """Remove all but the error from an answer."""
    leave_records(answer)
    answer.high_watermark = answer.last_stable_offset = answer.start_offset = -1
    answer.has_aborted, answer.diverging_epoch, answer.preferred = False, -1, LEADER


cdef int64_t read_partition(
    FetchApi self, Fetch* fetch, HotRequest* hot, Reading* reading, CachedPartition* cached, PartitionAnswer* answer,
    int64_t limit, bint whole_first, Watcher* watcher
) noexcept nogil:
    """Read one partition; return the bytes that count for min.bytes."""
    cdef const FetchRequest* request = &fetch.request
    cdef PartitionState* partition = look_up(self, fetch.session, cached)
    cdef bint follows = request.replica_id >= 0
    cdef int32_t preferred = LEADER
    if cached.refusal != NONE:
        answer.error, answer.is_unknown = cached.refusal, True
        return 0
    if partition == NULL:
        answer.error = missing_error(metadata_of(self, reading), fetch.session, cached)
        answer.is_unknown = answer.error == UNKNOWN_TOPIC_OR_PARTITION or answer.error == UNKNOWN_TOPIC_ID
        return 0
    limit = min(limit, <int64_t>cached.max_bytes)
    lock_partition(partition)
    answer.error = check_partition(partition, fetch, cached)
    if answer.error == NONE and self.selection != LEADERS_ALONE:
        preferred = preferred_replica(self, fetch, hot, reading, partition, cached, answer.number)
    if preferred >= 0:
        name_replica(<Log>partition.log, preferred, answer)
    elif preferred == NO_CHOICE:
        answer.error = UNKNOWN_SERVER_ERROR
    elif answer.error == NONE:
        answer.error = read_log(<Log>partition.log, request, cached, limit, whole_first, answer)
    if follows and partition.leader_is_throttled and answer.error == NONE:
        answer.is_throttled = True
        if must_wait(self, partition, request.replica_id):
            leave_records(answer)
    answer.is_zstd = request.version < ZSTD and partition.rules.compression == ZSTD_CODEC
    if watcher != NULL and answer.error == NONE:
        if follows:
            watch(partition, watcher, RECORDS_APPENDED, 0, self.network, hot.token)
        elif request.isolation == READ_COMMITTED:
            watch(partition, watcher, STABLE_OFFSET_MOVED, answer.last_stable_offset + 1, self.network, hot.token)
        else:
            watch(partition, watcher, WATERMARK_MOVED, answer.high_watermark + 1, self.network, hot.token)
    unlock_partition(partition)
    if follows and answer.error == NONE and answer.diverging_epoch < 0 and hot.reason == ARRIVED and watcher == NULL:
        answer.error = update_follower(
            partition, request.replica_id, cached.fetch_offset, cached.start_offset, request.replica_epoch,
            wall_ms(self.table)
        )
    if answer.error != NONE:
        return 0
    answer.most_bytes = max(limit, answer.records.size) if answer.records.is_cut else answer.records.size
    return answer.most_bytes


cdef PartitionState* look_up(FetchApi self, FetchSession* session, CachedPartition* cached) noexcept nogil:
    """Return the partition, which the session keeps pinned; NULL where it is not hosted."""
    cdef bint is_gone
    if cached.partition != NULL:
        lock_partition(cached.partition)
        # A removed partition has no log; its successor is another object.
        is_gone = cached.partition.log == NULL
        unlock_partition(cached.partition)
        if not is_gone:
            return cached.partition
        release_partition(cached.partition)
    if session.uses_ids:
        cached.partition = find_partition_by_id(self.table, cached.topic.bytes, cached.index)
    else:
        cached.partition = find_partition(self.table, cached.topic.bytes, cached.topic.size, cached.index)
    return cached.partition


cdef const Snapshot* metadata_of(FetchApi self, Reading* reading) noexcept nogil:
    """Return the metadata of the answer, the same for all of its partitions."""
    if reading.metadata == NULL:
        reading.metadata = take_snapshot(self.metadata)
    return reading.metadata


cdef int64_t find_topic_row(
    const Snapshot* metadata, const FetchSession* session, const CachedPartition* cached
) noexcept nogil:
    if session.uses_ids:
        return find_topic_by_id(metadata, cached.topic.bytes)
    return find_topic(metadata, cached.topic.bytes, cached.topic.size)


cdef int16_t missing_error(
    const Snapshot* metadata, const FetchSession* session, const CachedPartition* cached
) noexcept nogil:
    """Return the error of a partition that is not hosted: what the metadata says."""
    cdef int64_t topic = find_topic_row(metadata, session, cached)
    if topic == NO_ROW and session.uses_ids:
        return UNKNOWN_TOPIC_ID
    if find_partition_row(metadata, topic, cached.index) == NO_ROW:
        return UNKNOWN_TOPIC_OR_PARTITION
    return NOT_LEADER_OR_FOLLOWER


cdef bint names_leader(const PartitionAnswer* answer) noexcept nogil:
    """Return whether the answer has an error with which the leader is named."""
    return answer.error == NOT_LEADER_OR_FOLLOWER or answer.error == FENCED_LEADER_EPOCH


cdef bint names_leaders(const Reading* reading) noexcept nogil:
    cdef int32_t i
    for i in range(reading.count):
        if names_leader(&reading.answers[i]):
            return True
    return False


cdef void find_leaders(FetchApi self, FetchSession* session, Reading* reading, int32_t listener) noexcept nogil:
    """Note the leaders that the answers name, and where these listen."""
    cdef const Snapshot* metadata = metadata_of(self, reading)
    cdef PartitionAnswer* answer
    cdef int32_t* ids = <int32_t*>malloc(reading.count * sizeof(int32_t))
    cdef int32_t i, count = 0
    for i in range(reading.count):
        answer = &reading.answers[i]
        if names_leader(answer):
            find_leader(metadata, session, &session.partitions[answer.number], answer)
            if ids != NULL:
                ids[count] = answer.leader
                count += 1
    if ids != NULL:
        reading.endpoints = self.endpoints(metadata, listener, ids, count, &reading.endpoints_size)
    free(ids)


cdef void find_leader(
    const Snapshot* metadata, const FetchSession* session, const CachedPartition* cached, PartitionAnswer* answer
) noexcept nogil:
    """Note the leader: from the partition if it has a log here, else from the metadata. -1: no leader."""
    cdef PartitionState* partition = cached.partition
    cdef int64_t row
    cdef bint is_hosted = False
    if partition != NULL:
        lock_partition(partition)
        is_hosted = partition.log != NULL
        answer.leader, answer.leader_epoch = partition.leader, partition.leader_epoch
        unlock_partition(partition)
    if is_hosted:
        return
    row = find_partition_row(metadata, find_topic_row(metadata, session, cached), cached.index)
    if row == NO_ROW:
        answer.leader = answer.leader_epoch = -1
    else:
        answer.leader, answer.leader_epoch = metadata.leader[row], metadata.leader_epoch[row]


cdef int16_t check_partition(PartitionState* partition, const Fetch* fetch, const CachedPartition* cached) noexcept nogil:
    """Return why the partition is not read. Requires its mutex. Source: Partition.localLogWithEpochOrThrow."""
    require(&partition.mutex)
    cdef const FetchRequest* request = &fetch.request
    cdef bint follows = request.replica_id >= 0
    cdef int32_t i
    if partition.is_offline:
        return KAFKA_STORAGE_ERROR
    if fetch.session.uses_ids and memcmp(partition.topic_id, cached.topic.bytes, TOPIC_ID_BYTES) != 0:
        return INCONSISTENT_TOPIC_ID
    if cached.leader_epoch >= 0 and cached.leader_epoch != partition.leader_epoch:
        return FENCED_LEADER_EPOCH if cached.leader_epoch < partition.leader_epoch else UNKNOWN_LEADER_EPOCH
    if partition.log == NULL or not partition.is_leader and (follows or request.version < RACKS):
        return NOT_LEADER_OR_FOLLOWER
    if not follows:
        return NONE
    for i in range(partition.follower_count):
        if partition.followers[i].broker_id == request.replica_id:
            return NONE
    return UNKNOWN_LEADER_EPOCH if cached.leader_epoch >= 0 else NOT_LEADER_OR_FOLLOWER


cdef int16_t read_log(
    Log log, const FetchRequest* request, const CachedPartition* cached, int64_t limit, bint whole_first,
    PartitionAnswer* answer
) noexcept nogil:
    """Find the range of records from the fetch offset on. The partition is locked and keeps its log."""
    cdef Range* records = &answer.records
    cdef Isolation isolation = LOG_END
    cdef int16_t error
    if limit < 0:
        return UNKNOWN_SERVER_ERROR
    if request.replica_id < 0:
        isolation = LAST_STABLE_OFFSET if request.isolation == READ_COMMITTED else HIGH_WATERMARK
    if cached.last_fetched_epoch >= 0:
        error = find_divergence(log, cached, answer)
        if error != NONE:
            return error
        if answer.diverging_epoch >= 0:
            # For the offsets of the log alone.
            limit, whole_first, isolation = 0, False, LOG_END
    error = <int16_t>log.read_range(cached.fetch_offset, limit, isolation, whole_first, records)
    answer.high_watermark, answer.last_stable_offset = records.high_watermark, records.last_stable_offset
    answer.start_offset = records.start_offset
    if answer.diverging_epoch >= 0 and error == OFFSET_OUT_OF_RANGE and cached.fetch_offset >= records.start_offset:
        error = NONE
    if error == NONE and isolation == LAST_STABLE_OFFSET and answer.diverging_epoch < 0:
        # As Kafka's ReplicaManager.readFromLog, which drops the list with a first batch that is too large.
        answer.has_aborted = records.size > 0 or limit == 0 or not records.is_cut
        if records.size > 0:
            error = <int16_t>log.find_aborted(cached.fetch_offset, records, &answer.aborted, &answer.aborted_count)
    return error


cdef int16_t find_divergence(Log log, const CachedPartition* cached, PartitionAnswer* answer) noexcept nogil:
    """Find the diverging epoch and its end for a log with other records. Source: Partition.readRecords."""
    cdef int32_t epoch
    cdef int64_t end
    cdef int error = log.find_end_of_epoch(cached.last_fetched_epoch, &epoch, &end)
    if error != NONE:
        return <int16_t>error
    if epoch < 0 or end < 0:
        return OFFSET_OUT_OF_RANGE
    if epoch < cached.last_fetched_epoch or end < cached.fetch_offset:
        answer.diverging_epoch, answer.diverging_end = epoch, end
    return NONE
