# Which replica a consumer shall read from (KIP-392). Source: ReplicaManager.findPreferredReadReplica,
# RackAwareReplicaSelector.
#
# The selector of Kafka is here. One of the user's own is a Python object: a handler thread asks it for all partitions of
# the request (``FetchApi.choose_replicas``), and the processor goes on with its choices. A request that has waited for
# records asks again when its wait is over, as Kafka's DelayedFetch.onComplete.


cdef enum Selection:
    LEADERS_ALONE
    SAME_RACK
    OWN_CLASS


cdef enum:
    # A choice of a selector: the leader, or the selector has failed
    LEADER = -1
    NO_CHOICE = -2


# A replica that a consumer may read from.
cdef struct Candidate:
    int32_t broker_id
    int64_t end_offset
    # How long ago it had all records of the leader
    int64_t behind_ms


# A partition that a selector is asked for.
cdef struct Question:
    # Within the session
    int32_t number
    # Pinned
    PartitionState* partition
    Candidate* candidates
    # The first one is the leader.
    int32_t count


cdef inline bint has_offset(const Follower* follower, int64_t offset) noexcept nogil:
    """Return whether a follower is in the committed ISR and holds the offset."""
    return follower.in_isr and follower.start_offset <= offset <= follower.end_offset


cdef inline bint is_selected(FetchApi self, const FetchRequest* request) noexcept nogil:
    """Return whether a selector is asked for the partitions of the request."""
    return self.selection != LEADERS_ALONE and request.replica_id < 0 and request.version >= RACKS


cdef int32_t preferred_replica(
    FetchApi self, const Fetch* fetch, HotRequest* hot, Reading* reading, PartitionState* partition,
    const CachedPartition* cached, int32_t number
) noexcept nogil:
    """Return the replica that the consumer shall read from, LEADER or NO_CHOICE. Requires the partition's mutex."""
    require(&partition.mutex)
    cdef const Snapshot* metadata
    cdef const Follower* follower
    cdef const Follower* best = NULL
    cdef const uint8_t* rack = hot.data + fetch.request.rack_at
    cdef int32_t i
    if not is_selected(self, &fetch.request) or not partition.is_leader or partition.follower_count == 0:
        return LEADER
    if self.selection == OWN_CLASS:
        return fetch.choices[number] if number < fetch.choice_count else LEADER
    if fetch.request.rack_size == 0:
        return LEADER
    metadata = metadata_of(self, reading)
    if self.is_in_rack(metadata, hot.listener, self.table.broker_id, rack, fetch.request.rack_size):
        return LEADER
    for i in range(partition.follower_count):
        follower = &partition.followers[i]
        if (
            has_offset(follower, cached.fetch_offset)
            and (best == NULL or is_further(follower, best))
            and self.is_in_rack(metadata, hot.listener, follower.broker_id, rack, fetch.request.rack_size)
        ):
            best = follower
    return LEADER if best == NULL else best.broker_id


cdef inline bint is_further(const Follower* one, const Follower* other) noexcept nogil:
    """Return whether a follower has caught up more than another one. Source: ReplicaView.comparator."""
    if one.end_offset != other.end_offset:
        return one.end_offset > other.end_offset
    if one.caught_up_ms != other.caught_up_ms:
        return one.caught_up_ms > other.caught_up_ms
    return one.broker_id > other.broker_id


cdef void name_replica(Log log, int32_t replica, PartitionAnswer* answer) noexcept nogil:
    """Answer with the replica that the consumer shall read from, without records. The partition is locked."""
    cdef Range unread
    log.read_range(0, 0, LAST_STABLE_OFFSET, False, &unread)
    if unread.segment != NULL:
        release(unread.segment)
    answer.preferred = replica
    answer.high_watermark, answer.last_stable_offset = unread.high_watermark, unread.last_stable_offset
    answer.start_offset = unread.start_offset


cdef bint asks_selector(FetchApi self, const Fetch* fetch, const HotRequest* hot) noexcept nogil:
    """Return whether a handler thread must ask the user's selector before the request is answered."""
    return (
        self.selection == OWN_CLASS and not fetch.is_chosen and is_selected(self, &fetch.request)
        and (hot.reason == ARRIVED or hot.reason == ASKED)
    )


cdef bint asks_again(FetchApi self, const Fetch* fetch, const HotRequest* hot) noexcept nogil:
    """Return whether the user's selector is asked again for a request that could be answered."""
    return (
        self.selection == OWN_CLASS and not fetch.is_over and is_selected(self, &fetch.request)
        and (hot.reason == COMPLETED or hot.reason == EXPIRED)
    )


cdef void await_handler(FetchApi self, Fetch* parked, const HotRequest* hot) noexcept nogil:
    """Let a handler thread find the request by its connection, which has no other one with a handler thread."""
    parked.connection, parked.later = hot.connection, NULL
    lock(&self.cache.mutex)
    parked.is_asking = True
    if self.last_asking != NULL:
        (<Fetch*>self.last_asking).later = parked
    else:
        self.first_asking = <void*>parked
    self.last_asking = <void*>parked
    unlock(&self.cache.mutex)


cdef void unlink_asking(FetchApi self, Fetch* earlier, Fetch* fetch) noexcept nogil:
    """Requires the mutex of the cache."""
    require(&self.cache.mutex)
    if earlier == NULL:
        self.first_asking = <void*>fetch.later
    else:
        earlier.later = fetch.later
    if self.last_asking == <void*>fetch:
        self.last_asking = <void*>earlier
    fetch.is_asking = False


cdef Fetch* take_asking(FetchApi self, int64_t connection, const Fetch* wanted) noexcept nogil:
    """Remove the request of a connection, or ``wanted``, from those that ask; return it. NULL: it does not ask.

    Handler threads take requests in the order in which these came, so the search is short.
    """
    cdef Fetch* earlier = NULL
    cdef Fetch* fetch
    lock(&self.cache.mutex)
    fetch = <Fetch*>self.first_asking
    while fetch != NULL and (fetch != wanted if wanted != NULL else fetch.connection != connection):
        earlier, fetch = fetch, fetch.later
    if fetch != NULL:
        unlink_asking(self, earlier, fetch)
    unlock(&self.cache.mutex)
    return fetch


cdef int32_t gather_questions(FetchApi self, Fetch* fetch, Question** questions) noexcept nogil:
    """Note the partitions with followers that this broker leads, and their candidates. -1: no memory is left.

    The handler thread that has taken the request owns it. The caller gives the questions back with ``drop_questions``.
    """
    cdef FetchSession* session = fetch.session
    cdef CachedPartition* cached
    cdef Question* found
    cdef int32_t number, count = 0
    lock(&session.mutex)
    # Those of before the wait.
    free(fetch.choices)
    fetch.choice_count = session.used
    fetch.choices = <int32_t*>malloc(max(1, session.used) * sizeof(int32_t))
    found = <Question*>calloc(max(1, session.count), sizeof(Question))
    if fetch.choices == NULL or found == NULL:
        count = -1
        fetch.choice_count = 0
    number = session.first
    while count >= 0 and number != NO_PARTITION:
        cached = &session.partitions[number]
        fetch.choices[number] = LEADER
        if cached.refusal == NONE and ask_for(self, session, cached, &found[count]):
            found[count].number = number
            count += 1
        number = cached.later
    unlock(&session.mutex)
    questions[0] = found
    return count


cdef bint ask_for(
    FetchApi self, const FetchSession* session, const CachedPartition* cached, Question* question
) noexcept nogil:
    """Fill in a question for a partition. Return False if the selector is not asked: nobody but a leader can be read."""
    cdef PartitionState* partition
    cdef const Follower* follower
    cdef int64_t now_ms = wall_ms(self.table)
    cdef int32_t i
    if session.uses_ids:
        partition = find_partition_by_id(self.table, cached.topic.bytes, cached.index)
    else:
        partition = find_partition(self.table, cached.topic.bytes, cached.topic.size, cached.index)
    if partition == NULL:
        return False
    lock_partition(partition)
    if partition.is_leader and not partition.is_offline and partition.log != NULL and partition.follower_count > 0:
        question.candidates = <Candidate*>malloc((partition.follower_count + 1) * sizeof(Candidate))
    if question.candidates != NULL:
        question.candidates[0].broker_id = self.table.broker_id
        question.candidates[0].end_offset = (<Log>partition.log).local.end_offset
        question.candidates[0].behind_ms = 0
        question.count = 1
        for i in range(partition.follower_count):
            follower = &partition.followers[i]
            if has_offset(follower, cached.fetch_offset):
                question.candidates[question.count].broker_id = follower.broker_id
                question.candidates[question.count].end_offset = follower.end_offset
                question.candidates[question.count].behind_ms = now_ms - follower.caught_up_ms
                question.count += 1
    unlock_partition(partition)
    if question.candidates == NULL:
        release_partition(partition)
        return False
    question.partition = partition
    return True


cdef void drop_questions(Question* questions, int32_t count) noexcept nogil:
    cdef int32_t i
    for i in range(count):
        free(questions[i].candidates)
        release_partition(questions[i].partition)
    free(questions)
