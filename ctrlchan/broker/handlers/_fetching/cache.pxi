# Fetch sessions between their requests. Source: FetchSessionCacheShard, with one shard.
#
# At most ``capacity`` sessions are kept. When all places are used, a new session takes the place of one that was not used
# for ``eviction_ms``, or of a smaller or less privileged one.


cdef struct SessionCache:
    Mutex mutex
    # A session's id modulo the capacity is its place.
    FetchSession** places
    int32_t* free_places
    int32_t capacity
    int32_t count
    int64_t eviction_ms
    # Partitions of all sessions
    int64_t partitions
    int64_t evictions
    uint64_t seed


cdef enum:
    # Of requests
    NO_SESSION = 0
    FIRST_EPOCH = 0
    FINAL_EPOCH = -1


cdef inline int32_t next_epoch(int32_t epoch) noexcept nogil:
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == INT32_MAX else epoch + 1


cdef FetchSession* get_session(SessionCache* cache, int32_t session_id) noexcept nogil:
    """Return the session with this id and a reference for the caller, or NULL."""
    cdef FetchSession* session = NULL
    lock(&cache.mutex)
    if session_id > 0 and cache.capacity > 0:
        session = cache.places[session_id % cache.capacity]
        if session != NULL and session.id == session_id:
            add_and_get(&session.references, 1)
        else:
            session = NULL
    unlock(&cache.mutex)
    return session


cdef void drop_session(SessionCache* cache, FetchSession* session) noexcept nogil:
    """Take a session out of the cache. Requires the mutex of the cache."""
    require(&cache.mutex)
    cdef int32_t place = session.id % cache.capacity
    if cache.places[place] != session:
        return
    cache.places[place] = NULL
    cache.free_places[cache.capacity - cache.count] = place
    cache.count -= 1
    cache.partitions -= session.cached_count
    release_session(session)


cdef void drop_sessions(SessionCache* cache) noexcept nogil:
    """Take all sessions out of the cache."""
    cdef int32_t i
    lock(&cache.mutex)
    if cache.places != NULL:
        for i in range(cache.capacity):
            if cache.places[i] != NULL:
                drop_session(cache, cache.places[i])
    unlock(&cache.mutex)


cdef void remove_session(SessionCache* cache, FetchSession* session) noexcept nogil:
    lock(&cache.mutex)
    drop_session(cache, session)
    unlock(&cache.mutex)


cdef void touch_locked(SessionCache* cache, FetchSession* session, int32_t count, int64_t now_ms) noexcept nogil:
    require(&cache.mutex)
    cache.partitions += count - session.cached_count
    session.cached_count, session.used_ms = count, now_ms
    session.is_old = now_ms - session.created_ms > cache.eviction_ms


cdef void touch_session(SessionCache* cache, FetchSession* session, int32_t count, int64_t now_ms) noexcept nogil:
    """Note that a session of ``count`` partitions is used now."""
    lock(&cache.mutex)
    if cache.places[session.id % cache.capacity] == session:
        touch_locked(cache, session, count, now_ms)
    unlock(&cache.mutex)


cdef bint is_less(const FetchSession* one, const FetchSession* other) noexcept nogil:
    """Whether ``one`` is evicted before ``other``."""
    if one.is_privileged != other.is_privileged:
        return not one.is_privileged
    if one.cached_count != other.cached_count:
        return one.cached_count < other.cached_count
    return one.id < other.id


cdef bint evict_session(SessionCache* cache, const FetchSession* session) noexcept nogil:
    """Take a session out for ``session``, if there is one that may go. Requires the mutex of the cache."""
    cdef FetchSession* oldest = NULL
    cdef FetchSession* least = NULL
    cdef FetchSession* one
    cdef int32_t i
    require(&cache.mutex)
    for i in range(cache.capacity):
        one = cache.places[i]
        if oldest == NULL or one.used_ms < oldest.used_ms:
            oldest = one
        if (one.is_old or session.is_privileged and not one.is_privileged) and (least == NULL or is_less(one, least)):
            least = one
    if oldest != NULL and session.used_ms - oldest.used_ms > cache.eviction_ms:
        least = oldest
    elif least == NULL or not is_less(least, session):
        return False
    drop_session(cache, least)
    cache.evictions += 1
    return True


@cython.overflowcheck(False)
cdef int32_t add_session(SessionCache* cache, FetchSession* session, int32_t count, int64_t now_ms) noexcept nogil:
    """Add a session with a new id and the first epoch. Return the id, or NO_SESSION if the cache is full."""
    cdef int32_t place
    cdef uint64_t mixed
    lock(&cache.mutex)
    session.created_ms = session.used_ms = now_ms
    session.cached_count = count
    if cache.capacity > 0 and (cache.count < cache.capacity or evict_session(cache, session)):
        cache.count += 1
        place = cache.free_places[cache.capacity - cache.count]
        cache.seed = cache.seed * <uint64_t>6364136223846793005 + <uint64_t>1442695040888963407
        mixed = 1 + (cache.seed >> 33) % <uint64_t>((INT32_MAX - cache.capacity) // cache.capacity)
        session.id = <int32_t>(mixed * <uint64_t>cache.capacity) + place
        session.epoch = next_epoch(FIRST_EPOCH)
        session.is_old = False
        cache.places[place] = session
        cache.partitions += count
        add_and_get(&session.references, 1)
    unlock(&cache.mutex)
    return session.id
