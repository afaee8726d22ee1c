# Reading a Fetch request, versions 4 to 17. A request is read twice: first to check all of it, then, with its session, to
# take its partitions.


cdef enum:
    # Versions that added something.
    THROTTLE_TIMES = 1
    RESPONSE_LIMITS = 3
    # Of records, and the isolation level
    FORMAT_2 = 4
    LOG_START_OFFSETS = 5
    STORAGE_ERRORS = 6
    SESSIONS = 7
    LEADER_EPOCHS = 9
    ZSTD = 10
    RACKS = 11
    # With diverging epochs
    FLEXIBLE = 12
    TOPIC_IDS = 13
    REPLICA_STATES = 15
    LEADERS = 16
    REPLICA_STATE_TAG = 1


cdef struct FetchRequest:
    int16_t version
    # -1: a consumer
    int32_t replica_id
    int64_t replica_epoch
    int32_t max_wait_ms
    int32_t min_bytes
    int32_t max_bytes
    int8_t isolation
    int32_t session_id
    int32_t session_epoch
    # Of the consumer; at which byte of the frame it begins
    int64_t rack_at
    int64_t rack_size
    # Where the arrays begin; NULL: no such array
    const uint8_t* topics
    const uint8_t* forgotten
    const uint8_t* end


cdef inline void begin(Cursor* cursor, const uint8_t* data, const uint8_t* end, int16_t version) noexcept nogil:
    cursor.at, cursor.end, cursor.flexible, cursor.failed = data, end, version >= FLEXIBLE, False


cdef inline int8_t read_i8(Cursor* cursor) noexcept nogil:
    cdef const uint8_t* data = take(cursor, 1)
    return <int8_t>data[0] if data != NULL else 0


cdef inline int64_t read_count(Cursor* cursor) noexcept nogil:
    """Return the length of an array, which is not null; each of its elements has a byte at least."""
    cdef int64_t count = read_size(cursor, False)
    if count < 0 or count > cursor.end - cursor.at:
        take(cursor, -1)
    return count


cdef inline const uint8_t* read_text(Cursor* cursor, int64_t* size) noexcept nogil:
    """Return the bytes of a string that is not null."""
    cdef const uint8_t* data = read_string(cursor, size)
    if size[0] < 0 or size[0] > INT16_MAX:
        take(cursor, -1)
    return data


cdef bint read_request(
    const uint8_t* frame, const uint8_t* data, const uint8_t* end, int16_t version, FetchRequest* request
) noexcept nogil:
    """Check a request and read the fields before and after its arrays. Return False where it is not valid.

    ``data``: the body, within ``frame``.
    """
    cdef Cursor cursor
    cdef const uint8_t* rack
    cdef int64_t size
    memset(request, 0, sizeof(FetchRequest))
    begin(&cursor, data, end, version)
    request.version, request.end = version, end
    request.replica_id, request.replica_epoch = -1, -1
    if version < REPLICA_STATES:
        request.replica_id = read_i32(&cursor)
    request.max_wait_ms = read_i32(&cursor)
    request.min_bytes = read_i32(&cursor)
    # Before, a response had no limit, and no batch was kept whole.
    request.max_bytes = read_i32(&cursor) if version >= RESPONSE_LIMITS else INT32_MAX
    request.isolation = read_i8(&cursor) if version >= FORMAT_2 else 0
    request.session_epoch = FINAL_EPOCH
    if version >= SESSIONS:
        request.session_id = read_i32(&cursor)
        request.session_epoch = read_i32(&cursor)
    request.topics = cursor.at
    take_topics(&cursor, version, NULL)
    if version >= SESSIONS:
        request.forgotten = cursor.at
        forget_topics(&cursor, version, NULL)
    if version >= RACKS:
        rack = read_text(&cursor, &size)
        request.rack_at, request.rack_size = rack - frame, size
    if cursor.flexible:
        take_tags(&cursor, request)
    return not cursor.failed and 0 <= request.isolation <= READ_COMMITTED


cdef void take_tags(Cursor* cursor, FetchRequest* request) noexcept nogil:
    """Read the tagged fields of a request: the id and epoch of a follower."""
    cdef uint32_t count = read_uvarint(cursor), tag, size
    cdef Cursor field
    while count > 0 and not cursor.failed:
        count -= 1
        tag = read_uvarint(cursor)
        size = read_uvarint(cursor)
        field = cursor[0]
        take(cursor, size)
        field.end = cursor.at
        if tag == REPLICA_STATE_TAG and request.version >= REPLICA_STATES:
            request.replica_id = read_i32(&field)
            request.replica_epoch = read_i64(&field)
            skip_tags(&field)
            if field.failed:
                take(cursor, -1)


cdef inline int64_t take_topic(Cursor* cursor, int16_t version, const uint8_t** topic) noexcept nogil:
    """Read a topic's name or id; return its size."""
    cdef int64_t size = TOPIC_ID_BYTES
    topic[0] = take(cursor, size) if version >= TOPIC_IDS else read_text(cursor, &size)
    return size


cdef bint take_topics(Cursor* cursor, int16_t version, FetchSession* session) noexcept nogil:
    """Read the array of topics, and add or update their partitions. Return False without memory.

    ``session``: its mutex is held; NULL: the array is only checked.
    """
    cdef int64_t topics = read_count(cursor), partitions, size
    cdef const uint8_t* name
    cdef uint32_t hash = 0
    cdef Topic* topic
    cdef CachedPartition fields
    cdef bint ok = True
    memset(&fields, 0, sizeof(fields))
    while topics > 0 and ok and not cursor.failed:
        topics -= 1
        topic = NULL
        size = take_topic(cursor, version, &name)
        if session != NULL:
            hash = hash_of(name, size)
        partitions = read_count(cursor)
        while partitions > 0 and ok and not cursor.failed:
            partitions -= 1
            fields.index = read_i32(cursor)
            fields.leader_epoch = read_i32(cursor) if version >= LEADER_EPOCHS else -1
            fields.fetch_offset = read_i64(cursor)
            fields.last_fetched_epoch = read_i32(cursor) if version >= FLEXIBLE else -1
            fields.start_offset = read_i64(cursor) if version >= LOG_START_OFFSETS else -1
            fields.max_bytes = read_i32(cursor)
            skip_tags(cursor)
            if session != NULL and not cursor.failed:
                ok = put_cached(session, name, size, hash, &topic, &fields)
        skip_tags(cursor)
        if topic != NULL:
            release_topic(topic)
    return ok


cdef bint put_cached(
    FetchSession* session, const uint8_t* name, int64_t size, uint32_t hash, Topic** topic, const CachedPartition* fields
) noexcept nogil:
    """Add a partition to the session, or update it; ``topic`` is made when the first one is added."""
    cdef CachedPartition* cached
    cdef int32_t number = find_cached(session, name, size, hash, fields.index)
    if number != NO_PARTITION:
        cached = &session.partitions[number]
    else:
        if topic[0] == NULL:
            topic[0] = new_topic(name, size, hash)
        cached = add_cached(session, topic[0], fields.index) if topic[0] != NULL else NULL
        if cached == NULL:
            return False
    cached.leader_epoch, cached.last_fetched_epoch = fields.leader_epoch, fields.last_fetched_epoch
    cached.fetch_offset, cached.start_offset = fields.fetch_offset, fields.start_offset
    cached.max_bytes = fields.max_bytes
    return True


cdef void forget_topics(Cursor* cursor, int16_t version, FetchSession* session) noexcept nogil:
    """Read the array of forgotten topics, and remove their partitions. ``session``: as for ``take_topics``."""
    cdef int64_t topics = read_count(cursor), partitions, size
    cdef const uint8_t* name
    cdef uint32_t hash = 0
    cdef int32_t index, number
    while topics > 0 and not cursor.failed:
        topics -= 1
        size = take_topic(cursor, version, &name)
        if session != NULL:
            hash = hash_of(name, size)
        partitions = read_count(cursor)
        while partitions > 0 and not cursor.failed:
            partitions -= 1
            index = read_i32(cursor)
            if session != NULL:
                number = find_cached(session, name, size, hash, index)
                if number != NO_PARTITION:
                    forget_partition(session, number)
        skip_tags(cursor)


cdef enum SessionKind:
    # The partitions of the request alone
    SESSIONLESS
    # The answer begins a session
    FULL
    INCREMENTAL


cdef FetchSession* open_session(
    SessionCache* cache, const FetchRequest* request, int64_t now_ms, SessionKind* kind, int16_t* error
) noexcept nogil:
    """Return what the request fetches, with a reference. NULL: ``error`` says why; NONE where no memory is left."""
    cdef FetchSession* session
    cdef Cursor cursor
    cdef bint uses_ids = request.version >= TOPIC_IDS, ok
    error[0] = NONE
    if request.session_epoch == FIRST_EPOCH or request.session_epoch == FINAL_EPOCH:
        session = get_session(cache, request.session_id)
        if session != NULL:
            remove_session(cache, session)
            release_session(session)
        kind[0] = FULL if request.session_epoch == FIRST_EPOCH else SESSIONLESS
        session = new_session(request.replica_id >= 0, uses_ids)
        if session == NULL:
            return NULL
        begin(&cursor, request.topics, request.end, request.version)
        if not take_topics(&cursor, request.version, session):
            release_session(session)
            return NULL
        return session
    kind[0] = INCREMENTAL
    session = get_session(cache, request.session_id)
    if session == NULL:
        error[0] = FETCH_SESSION_ID_NOT_FOUND
        return NULL
    lock(&session.mutex)
    ok = True
    if session.epoch != request.session_epoch:
        error[0] = INVALID_FETCH_SESSION_EPOCH
    elif session.uses_ids != uses_ids:
        error[0] = FETCH_SESSION_TOPIC_ID_ERROR
    else:
        begin(&cursor, request.topics, request.end, request.version)
        ok = take_topics(&cursor, request.version, session)
        begin(&cursor, request.forgotten, request.end, request.version)
        forget_topics(&cursor, request.version, session)
        if session.count == 0:
            remove_session(cache, session)
            kind[0] = SESSIONLESS
        else:
            touch_session(cache, session, session.count, now_ms)
            session.epoch = next_epoch(session.epoch)
    unlock(&session.mutex)
    if error[0] != NONE or not ok:
        release_session(session)
        return NULL
    return session
