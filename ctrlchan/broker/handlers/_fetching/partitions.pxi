# The partitions of a fetch session, or of one Fetch without a session: found by topic and index, kept in Kafka's order.
#
# Order: as requested; a partition that was answered with records goes to the end, so that each has its turn when the
# answer is full. Source: kafka.server.FetchSession, org.apache.kafka.common.utils.ImplicitLinkedHashCollection.


cdef struct Topic:
    # The name, or from version 13 on the id, of a topic. Shared by partitions of one request.
    int64_t references
    uint32_t hash
    int32_t size
    uint8_t* bytes


cdef struct CachedPartition:
    Topic* topic
    int32_t index
    # Of the requests, -1 where there is none
    int32_t leader_epoch
    int32_t last_fetched_epoch
    int32_t max_bytes
    int64_t fetch_offset
    # Of the follower's log
    int64_t start_offset
    # Of the last answer
    int64_t answered_watermark
    int64_t answered_start_offset
    # Pinned; NULL: not looked up, or not found
    PartitionState* partition
    # Why the client may not fetch it: an error, or NONE
    int16_t refusal
    # Numbers of partitions; -1: none. ``later`` of an unused place is the next unused place.
    int32_t earlier
    int32_t later
    int32_t next_of_bucket


cdef struct FetchSession:
    # One of the cache, one of each request in progress
    int64_t references
    # 0: not in the cache
    int32_t id
    # For a follower
    bint is_privileged
    bint uses_ids

    # Guarded by the mutex of the cache
    int64_t created_ms
    int64_t used_ms
    int32_t cached_count
    bint is_old

    Mutex mutex
    # Guarded by the mutex: the epoch of the next request, and the partitions
    int32_t epoch
    # For which version of the decisions, and whom, all partitions are allowed; -1: not known
    int64_t allowed_version
    int32_t allowed_identity
    CachedPartition* partitions
    int32_t room
    # Places that were ever used, and how many are
    int32_t used
    int32_t count
    int32_t unused
    int32_t first
    int32_t last
    # Number of the first partition of each; a power of two
    int32_t* buckets
    int32_t bucket_count


cdef enum:
    NO_PARTITION = -1
    FIRST_ROOM = 4


@cython.overflowcheck(False)
cdef uint32_t hash_of(const uint8_t* data, int64_t size) noexcept nogil:
    cdef uint32_t value = 2166136261
    cdef int64_t i
    for i in range(size):
        value = (value ^ data[i]) * <uint32_t>16777619
    return value


@cython.overflowcheck(False)
cdef inline uint32_t bucket_of(const FetchSession* session, uint32_t hash, int32_t index) noexcept nogil:
    cdef uint32_t value = (hash ^ <uint32_t>index) * <uint32_t>2654435769
    return (value ^ (value >> 15)) & <uint32_t>(session.bucket_count - 1)


cdef FetchSession* new_session(bint is_privileged, bint uses_ids) noexcept nogil:
    """Return a session without partitions and with one reference, NULL without memory."""
    cdef FetchSession* session = <FetchSession*>calloc(1, sizeof(FetchSession))
    if session != NULL:
        session.references = 1
        session.is_privileged, session.uses_ids = is_privileged, uses_ids
        session.unused = session.first = session.last = NO_PARTITION
        open_mutex(&session.mutex, FETCH_SESSION)
    return session


cdef void release_session(FetchSession* session) noexcept nogil:
    """Give one reference back; the last one frees the session."""
    if add_and_get(&session.references, -1) > 0:
        return
    while session.first != NO_PARTITION:
        forget_partition(session, session.first)
    close_mutex(&session.mutex)
    free(session.partitions)
    free(session.buckets)
    free(session)


cdef Topic* new_topic(const uint8_t* data, int64_t size, uint32_t hash) noexcept nogil:
    """Return a topic with one reference, NULL without memory."""
    cdef Topic* topic = <Topic*>malloc(sizeof(Topic) + size)
    if topic != NULL:
        topic.references, topic.hash, topic.size = 1, hash, <int32_t>size
        topic.bytes = <uint8_t*>(topic + 1)
        memcpy(topic.bytes, data, size)
    return topic


cdef void release_topic(Topic* topic) noexcept nogil:
    """Release one reference. The topic belongs to one session, and the mutex of the session guards it."""
    topic.references -= 1
    if topic.references == 0:
        free(topic)


cdef bint are_equal(const Topic* topic, const uint8_t* data, int64_t size, uint32_t hash) noexcept nogil:
    return topic.hash == hash and topic.size == size and memcmp(topic.bytes, data, size) == 0


cdef int32_t find_cached(
    const FetchSession* session, const uint8_t* data, int64_t size, uint32_t hash, int32_t index
) noexcept nogil:
    """Return the number of a partition of the session, or NO_PARTITION."""
    cdef int32_t number
    if session.bucket_count == 0:
        return NO_PARTITION
    number = session.buckets[bucket_of(session, hash, index)]
    while number != NO_PARTITION:
        if session.partitions[number].index == index and are_equal(session.partitions[number].topic, data, size, hash):
            return number
        number = session.partitions[number].next_of_bucket
    return NO_PARTITION


cdef bint grow(FetchSession* session) noexcept nogil:
    """Make room for twice as many partitions. Return False without memory."""
    cdef int32_t room = max(<int32_t>FIRST_ROOM, 2 * session.room)
    cdef CachedPartition* partitions = <CachedPartition*>realloc(session.partitions, room * sizeof(CachedPartition))
    cdef int32_t* buckets
    cdef int32_t i
    if partitions == NULL:
        return False
    session.partitions = partitions
    buckets = <int32_t*>realloc(session.buckets, room * sizeof(int32_t))
    if buckets == NULL:
        return False
    session.buckets, session.bucket_count, session.room = buckets, room, room
    for i in range(room):
        buckets[i] = NO_PARTITION
    i = session.first
    while i != NO_PARTITION:
        link_bucket(session, i)
        i = partitions[i].later
    return True


cdef void link_bucket(FetchSession* session, int32_t number) noexcept nogil:
    cdef CachedPartition* cached = &session.partitions[number]
    cdef uint32_t bucket = bucket_of(session, cached.topic.hash, cached.index)
    cached.next_of_bucket = session.buckets[bucket]
    session.buckets[bucket] = number


cdef void link_last(FetchSession* session, int32_t number) noexcept nogil:
    cdef CachedPartition* cached = &session.partitions[number]
    cached.earlier, cached.later = session.last, NO_PARTITION
    if session.last != NO_PARTITION:
        session.partitions[session.last].later = number
    else:
        session.first = number
    session.last = number


cdef void unlink(FetchSession* session, int32_t number) noexcept nogil:
    cdef CachedPartition* cached = &session.partitions[number]
    if cached.earlier != NO_PARTITION:
        session.partitions[cached.earlier].later = cached.later
    else:
        session.first = cached.later
    if cached.later != NO_PARTITION:
        session.partitions[cached.later].earlier = cached.earlier
    else:
        session.last = cached.earlier


cdef void move_to_end(FetchSession* session, int32_t number) noexcept nogil:
    if session.last != number:
        unlink(session, number)
        link_last(session, number)


cdef CachedPartition* add_cached(FetchSession* session, Topic* topic, int32_t index) noexcept nogil:
    """Add a partition at the end, which takes a reference of the topic. NULL without memory."""
    cdef CachedPartition* cached
    cdef int32_t number = session.unused
    if number != NO_PARTITION:
        session.unused = session.partitions[number].later
    else:
        if session.used == session.room and not grow(session):
            return NULL
        number = session.used
        session.used += 1
    cached = &session.partitions[number]
    memset(cached, 0, sizeof(CachedPartition))
    cached.topic, cached.index = topic, index
    cached.answered_watermark = cached.answered_start_offset = -1
    topic.references += 1
    session.allowed_version = -1
    link_last(session, number)
    link_bucket(session, number)
    session.count += 1
    return cached


cdef void forget_partition(FetchSession* session, int32_t number) noexcept nogil:
    """Remove a partition."""
    cdef CachedPartition* cached = &session.partitions[number]
    cdef int32_t* place = &session.buckets[bucket_of(session, cached.topic.hash, cached.index)]
    while place[0] != number:
        place = &session.partitions[place[0]].next_of_bucket
    place[0] = cached.next_of_bucket
    unlink(session, number)
    if cached.partition != NULL:
        release_partition(cached.partition)
    release_topic(cached.topic)
    cached.later = session.unused
    session.unused = number
    session.count -= 1
