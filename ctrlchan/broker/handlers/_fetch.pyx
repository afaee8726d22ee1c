"""Fetch, on the thread of a processor and without the GIL.

A request names partitions, or the session that has them (KIP-227). Each partition is read once: the answer has its
offsets, and the records as a range of the segment's file, which the kernel sends. A request that finds too little waits
with a watcher in each of its partitions; one that is woken reads all of them again. A follower's Fetch tells the leader
how far its log is. What a partition that is not hosted is answered with, a snapshot of the metadata says. The records of
versions 0 to 3 are converted by a handler thread (``_fetching/old_versions.pxi``).

Order of locks: session, then partition, log or cache of sessions.

Source: KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages, DelayedFetch, FetchSession.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT16_MAX, INT32_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from ctrlchan._c.atomics cimport add_and_get, count_shared
from ctrlchan._c.bytes cimport put_i16, put_i32, put_i64, put_uvarint
from ctrlchan._c.clock_functions cimport monotonic_ns_of
from ctrlchan._c.error_codes cimport (
    FENCED_LEADER_EPOCH,
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INCONSISTENT_TOPIC_ID,
    INVALID_FETCH_SESSION_EPOCH,
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from ctrlchan._c.locks cimport FETCH_SESSION, FETCH_SESSION_CACHE, Mutex, close_mutex, lock, open_mutex, require, unlock
from ctrlchan.broker._decisions cimport (
    CLUSTER,
    IS_UNKNOWN,
    MAY_ACT,
    MAY_READ,
    TOPIC_ID,
    TOPIC_NAME,
    Decisions,
)
from ctrlchan.broker.log._log cimport Log
from ctrlchan.broker.log._reading cimport (
    HIGH_WATERMARK,
    LAST_STABLE_OFFSET,
    LOG_END,
    FileRange,
    Isolation,
    Range,
)
from ctrlchan.broker.log._segment cimport Segment, release
from ctrlchan.broker.log._transaction_index cimport AbortedEntry
from ctrlchan.broker.metadata._snapshot cimport (
    NO_ROW,
    CurrentMetadata,
    Snapshot,
    find_partition_row,
    find_topic,
    find_topic_by_id,
    release_snapshot,
    take_snapshot,
)
from ctrlchan.broker.quota._client_quotas cimport FETCH as FETCH_QUOTA
from ctrlchan.broker.quota._replication_quota cimport ReplicationQuota
from ctrlchan.server._processor cimport (
    ABANDONED,
    ARRIVED,
    ASKED,
    CLOSE,
    COMPLETED,
    DONE,
    EXPIRED,
    PARKED,
    QUEUE,
    Answer,
    HotRequest,
    Result,
    append_bytes,
    append_file_range,
    append_room,
    cut_answer,
)
from ctrlchan.server._cursor cimport (
    Cursor,
    read_i32,
    read_i64,
    read_size,
    read_string,
    read_uvarint,
    skip_tags,
    take,
)
from ctrlchan.broker.handlers._hot cimport HotApi, RequestHeader, append_header, charge
from ctrlchan.broker.replica._partition_state cimport (
    RECORDS_APPENDED,
    STABLE_OFFSET_MOVED,
    WATERMARK_MOVED,
    Follower,
    PartitionState,
    Table,
    Watcher,
    find_partition,
    find_partition_by_id,
    follower_of,
    lock_partition,
    release_partition,
    unlock_partition,
    unwatch,
    update_follower,
    wall_ms,
    watch,
)
from ctrlchan.broker.replica._partitions cimport PartitionTable

import os

from ctrlchan.broker.log.old_formats.fetched import Fetched, FetchedPartition

cdef enum:
    FETCH_KEY = 1
    LOWEST_VERSION = 0
    HIGHEST_VERSION = 17
    TOPIC_ID_BYTES = 16
    SIZE_FIELD_BYTES = 4
    READ_COMMITTED = 1
    # The number of a codec in compression.type
    ZSTD_CODEC = 4
    # A session's place is its id modulo the capacity.
    # 2**20, as a number: with overflow checks Cython takes no expression here.
    MOST_SESSIONS = 1048576


include "_fetching/partitions.pxi"
include "_fetching/cache.pxi"
include "_fetching/requests.pxi"


cdef struct PartitionAnswer

# A request in progress: on the stack, or as the state of a parked request.
cdef struct Fetch:
    FetchRequest request
    FetchSession* session
    SessionKind kind
    # What the quota of the client allows in one answer
    int64_t most_bytes
    # One for each partition of a parked request; NULL: it has not waited
    Watcher* watchers
    int32_t watcher_count
    # What the user's selector has chosen: for each number of a partition a broker id, LEADER or NO_CHOICE
    int32_t* choices
    int32_t choice_count
    bint is_chosen
    # The wait is over, and the user's selector is asked for the last time
    bint is_over
    # Of versions 0 to 3: what a handler thread shall convert, NULL: nothing, or it has taken it; whether it may give the
    # request back; the high watermarks of what was kept last, NULL: nothing was
    PartitionAnswer* kept
    int32_t kept_count
    bint may_wait
    int64_t* watermarks
    # Among those that a handler thread finds by their connection; guarded by the mutex of the cache
    bint is_asking
    int64_t connection
    Fetch* later


include "_fetching/access.pxi"
include "_fetching/selection.pxi"
include "_fetching/reading.pxi"
include "_fetching/answers.pxi"
include "_fetching/quotas.pxi"
include "_fetching/old_versions.pxi"


cdef Result handle_fetch(void* context, HotRequest* hot, RequestHeader* header, Answer* answer) noexcept nogil:
    """The ``ApiFunction``."""
    return handle(<FetchApi>context, hot, header, answer)


cdef Result handle(FetchApi self, HotRequest* hot, RequestHeader* header, Answer* answer) noexcept nogil:
    """Answer or park a request, or go on with a parked one."""
    cdef Fetch current
    cdef Fetch* parked = <Fetch*>hot.state
    cdef Mark empty = mark_of(answer)
    cdef Result result
    cdef int16_t error
    cdef bint wants_choices = False
    if parked != NULL:
        if parked.is_asking:
            # A handler thread has ended the request without a look at it.
            take_asking(self, 0, parked)
        current = parked[0]
        stop_watching(&current)
        if current.watermarks != NULL:
            free_kept(&current)
            if hot.reason == ASKED:
                # A handler thread has found no records.
                hot.reason = COMPLETED
        if hot.reason == ABANDONED:
            hot.state = NULL
            end_fetch(self, &current, parked)
            return CLOSE
        if hot.reason == EXPIRED:
            count_shared(&self.expired, 1)
    else:
        memset(&current, 0, sizeof(Fetch))
        if not read_request(hot.data, header.body, header.end, header.version, &current.request):
            # A handler thread refuses the request, in Python.
            return QUEUE if hot.reason == ARRIVED else CLOSE
        count_shared(&self.requests, 1)
        current.session = open_session(self.cache, &current.request, wall_ms(self.table), &current.kind, &error)
        if current.session == NULL:
            if error == NONE:
                return CLOSE
            put_session_error(answer, header, error, NO_SESSION)
            limit_answer(self, &current, hot, header, answer, &empty, NONE, NO_SESSION)
            return DONE
        current.most_bytes = most_bytes_of(self, &current, hot, header)
    lock(&current.session.mutex)
    if current.kind == INCREMENTAL and current.session.epoch != next_epoch(current.request.session_epoch):
        result = put_session_error(answer, header, INVALID_FETCH_SESSION_EPOCH, current.session.id)
        limit_answer(
            self, &current, hot, header, answer, &empty, INVALID_FETCH_SESSION_EPOCH, current.session.id
        )
    elif not current.is_chosen and not is_decided(self, &current, hot):
        result = QUEUE
    elif asks_selector(self, &current, hot):
        result = QUEUE
        wants_choices = True
    else:
        if hot.reason == ASKED:
            hot.reason = EXPIRED if current.is_over else ARRIVED
        result = fetch_partitions(self, &current, hot, header, answer)
        wants_choices = result == QUEUE and current.kept == NULL
    unlock(&current.session.mutex)
    if result == QUEUE:
        # It is kept while a handler thread asks the authorizer or the selector, or converts records.
        if parked == NULL:
            parked = <Fetch*>malloc(sizeof(Fetch))
            count_shared(&self.waiting, parked != NULL)
        if parked != NULL:
            parked[0] = current
            hot.state = parked
            if wants_choices or current.kept != NULL:
                await_handler(self, parked, hot)
            return QUEUE
        result = CLOSE
    if result == PARKED:
        if parked == NULL:
            count_shared(&self.waited, 1)
            parked = <Fetch*>malloc(sizeof(Fetch))
            count_shared(&self.waiting, parked != NULL)
        if parked != NULL:
            parked[0] = current
            hot.state, hot.wait_ms = parked, left_wait_ms(self, &current, hot)
            return PARKED
        stop_watching(&current)
        result = CLOSE
    hot.state = NULL
    end_fetch(self, &current, parked)
    return result


cdef void stop_watching(Fetch* self) noexcept nogil:
    cdef int32_t i
    for i in range(self.watcher_count):
        unwatch(&self.watchers[i])


cdef void end_fetch(FetchApi self, Fetch* current, Fetch* parked) noexcept nogil:
    """Give back all that a request has. It watches nothing."""
    count_shared(&self.waiting, -(parked != NULL))
    free(current.watchers)
    free(current.choices)
    release_session(current.session)
    free(parked)


cdef int64_t most_bytes_of(
    FetchApi self, const Fetch* current, HotRequest* hot, const RequestHeader* header
) noexcept nogil:
    """Return how many bytes the quota of the client allows in one answer; followers have none."""
    if not header.has_quotas or current.request.replica_id >= 0:
        return INT32_MAX
    return self.quotas.most_fetched(hot.user, header.client_id, header.client_id_size)


cdef Result fetch_partitions(
    FetchApi self, Fetch* current, HotRequest* hot, RequestHeader* header, Answer* answer
) noexcept nogil:
    """Read the partitions of the session, whose mutex is held, and answer or park the request."""
    require(&current.session.mutex)
    cdef Reading reading
    cdef bint may_wait = hot.reason != EXPIRED and current.request.max_wait_ms > 0
    cdef Result result = DONE
    if not begin_reading(&reading, current.session.count):
        return CLOSE
    read_partitions(self, current, hot, NULL, &reading)
    if may_wait and not (reading.is_complete and has_news(current, &reading)):
        # Records may have come since the first reading.
        if current.watchers == NULL:
            current.watcher_count = current.session.count
            current.watchers = <Watcher*>calloc(current.watcher_count, sizeof(Watcher))
        if current.watchers == NULL:
            current.watcher_count = 0
            result = CLOSE
        else:
            read_partitions(self, current, hot, current.watchers, &reading)
            if reading.is_complete and has_news(current, &reading):
                stop_watching(current)
            else:
                result = PARKED
    if result == DONE and header.version < FORMAT_2:
        result = keep_answers(self, current, &reading, hot, header, answer, may_wait)
    elif result == DONE and asks_again(self, current, hot):
        current.is_over = True
        result = QUEUE
    elif result == DONE:
        if header.version >= LEADERS and names_leaders(&reading):
            find_leaders(self, current.session, &reading, hot.listener)
        put_answer(self, current, &reading, hot, header, answer)
    end_reading(self, &reading)
    return result


cdef void put_answer(
    FetchApi self, Fetch* current, Reading* reading, HotRequest* hot, RequestHeader* header, Answer* answer
) noexcept nogil:
    """Write the response, and note in the session what it says; one that is throttled leaves the session as it is."""
    cdef FetchSession* session = current.session
    cdef Mark empty = mark_of(answer)
    cdef int32_t session_id = session.id if current.kind == INCREMENTAL else NO_SESSION
    cdef int32_t i
    cdef int64_t throttled_bytes
    if current.kind == INCREMENTAL:
        for i in range(reading.count):
            reading.answers[i].is_left_out = has_no_news(session, &reading.answers[i])
    put_head(answer, header, NONE, session_id)
    throttled_bytes = put_topics(session, reading, header, answer)
    if limit_answer(self, current, hot, header, answer, &empty, NONE, session_id):
        return
    if throttled_bytes:
        self.leader_quota.count(throttled_bytes)
    count_bytes(self, current, reading)
    if current.kind != SESSIONLESS:
        for i in range(reading.count):
            note_answer(session, &reading.answers[i], current.kind == INCREMENTAL)
    if current.kind == FULL:
        session_id = add_session(self.cache, session, session.count, wall_ms(self.table))
        put_session_id(answer, &empty, header, session_id)


cdef void count_bytes(FetchApi self, const Fetch* current, const Reading* reading) noexcept nogil:
    """Count what is sent, for all followers or for the topic. Source: BrokerTopicStats.updateBytesOut."""
    cdef const PartitionAnswer* one
    cdef int64_t size, replicated = 0
    cdef int32_t i
    for i in range(reading.count):
        one = &reading.answers[i]
        size = one.records.size
        if current.request.replica_id >= 0:
            replicated += size
        elif size > 0:
            # The session keeps the partition from which there are records.
            count_shared(&current.session.partitions[one.number].partition.bytes_out, size)
    if replicated:
        count_shared(&self.bytes_replicated, replicated)


cdef bint has_no_news(const FetchSession* session, const PartitionAnswer* answer) noexcept nogil:
    """Return whether a partition of a session is left out. Source: CachedPartition.maybeUpdateResponseData."""
    cdef const CachedPartition* cached = &session.partitions[answer.number]
    return (
        answer.records.size == 0
        and answer.error == NONE
        and answer.preferred == LEADER
        and answer.diverging_epoch < 0
        and cached.answered_watermark == answer.high_watermark
        and cached.answered_start_offset == answer.start_offset
    )


cdef void note_answer(FetchSession* session, const PartitionAnswer* answer, bint is_incremental) noexcept nogil:
    """Note in the session what a partition was answered with."""
    cdef CachedPartition* cached = &session.partitions[answer.number]
    if is_incremental and answer.records.size > 0:
        move_to_end(session, answer.number)
    # After an error the partition is always answered: no high watermark is -1.
    cached.answered_watermark = answer.high_watermark
    cached.answered_start_offset = answer.start_offset


cdef class FetchApi(HotApi):
    """Fetch on processors, for the partitions of a table.

    ``metadata``: says which other partitions the cluster has, and names the leaders that a client should ask instead.
    ``max_bytes``: fetch.max.bytes. ``sessions``: max.incremental.fetch.session.cache.slots. ``eviction_ms``: how long a
    session is kept for sure. ``seed``: of the ids of sessions, None for a random one. ``leader_quota``: of followers that
    are not in sync, None for no quota.
    """

    def __cinit__(
        self, PartitionTable partitions not None, CurrentMetadata metadata not None, *, int64_t max_bytes=57_671_680,
        int32_t sessions=1000, int64_t eviction_ms=120_000, seed=None, ReplicationQuota leader_quota=None
    ):
        cdef int32_t i
        if not 0 <= sessions <= MOST_SESSIONS:
            raise ValueError(f"{sessions} fetch sessions, at most {MOST_SESSIONS}")
        self.partitions, self.metadata, self.max_bytes = partitions, metadata, max_bytes
        self.table = &partitions.table
        self.leader_quota = leader_quota or ReplicationQuota()
        self.cache = <SessionCache*>calloc(1, sizeof(SessionCache))
        if self.cache == NULL:
            raise MemoryError()
        open_mutex(&self.cache.mutex, FETCH_SESSION_CACHE)
        self.cache.capacity, self.cache.eviction_ms = sessions, eviction_ms
        self.cache.seed = int.from_bytes(os.urandom(8)) if seed is None else seed
        self.cache.places = <FetchSession**>calloc(max(1, sessions), sizeof(FetchSession*))
        self.cache.free_places = <int32_t*>calloc(max(1, sessions), sizeof(int32_t))
        if self.cache.places == NULL or self.cache.free_places == NULL:
            raise MemoryError()
        for i in range(sessions):
            self.cache.free_places[i] = i
        self.entry.key, self.entry.lowest, self.entry.highest = FETCH_KEY, LOWEST_VERSION, HIGHEST_VERSION
        self.entry.flexible_from, self.entry.function, self.entry.context = FLEXIBLE, handle_fetch, <void*>self

    def __dealloc__(self):
        if self.cache == NULL:
            return
        with nogil:
            drop_sessions(self.cache)
        close_mutex(&self.cache.mutex)
        free(self.cache.places)
        free(self.cache.free_places)
        free(self.cache)

    def authorize_with(self, Decisions decisions not None):
        """Fetch only what these decisions allow. Called before the first request."""
        self.decisions, self.is_restricted = decisions, True

    def select_replicas(self, bint by_own_class):
        """Name to consumers the replicas that they shall read from. Called before the first request.

        ``by_own_class``: ``choose_replicas`` is called for each request. False: those in the rack of the consumer.
        """
        self.selection = OWN_CLASS if by_own_class else SAME_RACK

    def choose_replicas(self, int64_t connection, select not None):
        """Ask a selector for all partitions of the request of a connection, if that is what the request waits for.

        A request that has waited for records asks a second time, before its answer.

        ``select(topic, partition, candidates)`` returns a broker id, -1 (the leader) or -2 (it has failed), and does not
        raise. ``candidates``: broker id, end offset, and for how many milliseconds the replica has lagged; the leader is
        the first one. Returns whether the request waits for choices.
        """
        cdef Fetch* fetch
        cdef Question* questions
        cdef PartitionState* partition
        cdef int32_t i, j, count
        with nogil:
            fetch = take_asking(self, connection, NULL)
            if fetch != NULL:
                count = gather_questions(self, fetch, &questions)
        if fetch == NULL:
            return False
        try:
            if count < 0:
                raise MemoryError()
            fetch.is_chosen = True
            for i in range(count):
                partition = questions[i].partition
                fetch.choices[questions[i].number] = select(
                    PyBytes_FromStringAndSize(<const char*>partition.name, partition.name_size).decode(),
                    partition.index,
                    [
                        (
                            questions[i].candidates[j].broker_id, questions[i].candidates[j].end_offset,
                            questions[i].candidates[j].behind_ms
                        )
                        for j in range(questions[i].count)
                    ],
                )
        finally:
            with nogil:
                drop_questions(questions, max(count, <int32_t>0))
        return True

    def take(self, int64_t connection):
        """Return the Fetched of a connection's request, or None if it was not read. See ``OldFetches``."""
        cdef Fetch* found
        cdef int32_t i
        with nogil:
            found = take_asking(self, connection, NULL)
        if found == NULL:
            return None
        # Until the request is answered no other thread uses it.
        partitions = [
            fetched_partition(&found.session.partitions[found.kept[i].number], &found.kept[i])
            for i in range(found.kept_count)
        ]
        free_kept(found)
        return Fetched(partitions, found.request.replica_id >= 0, bool(found.may_wait))

    def count_replicated(self, int64_t size):
        """Count the bytes of converted records for a follower."""
        count_shared(&self.bytes_replicated, size)

    def session_topics(self, int32_t session_id):
        """Return the topics of a session, names or ids as bytes, and whether they are ids."""
        cdef FetchSession* session
        cdef int32_t number, count = 0, i = 0
        cdef Topic** topics = NULL
        cdef bint uses_ids
        with nogil:
            session = get_session(self.cache, session_id)
            if session != NULL:
                lock(&session.mutex)
                topics = <Topic**>malloc(max(1, session.count) * sizeof(Topic*))
                number = session.first
                while topics != NULL and number != NO_PARTITION:
                    if count == 0 or topics[count - 1] != session.partitions[number].topic:
                        topics[count] = session.partitions[number].topic
                        topics[count].references += 1
                        count += 1
                    number = session.partitions[number].later
                uses_ids = session.uses_ids
                unlock(&session.mutex)
        if session == NULL:
            return [], False
        # Their references keep the topics: the bytes of one never change.
        found = [PyBytes_FromStringAndSize(<const char*>topics[i].bytes, topics[i].size) for i in range(count)]
        with nogil:
            lock(&session.mutex)
            for i in range(count):
                release_topic(topics[i])
            unlock(&session.mutex)
            free(topics)
            release_session(session)
        return list(dict.fromkeys(found)), bool(uses_ids)

    def counters(self):
        """Return counters by name."""
        cdef int64_t sessions, partitions, evictions
        with nogil:
            lock(&self.cache.mutex)
            sessions, partitions, evictions = self.cache.count, self.cache.partitions, self.cache.evictions
            unlock(&self.cache.mutex)
        return {
            "requests": self.requests,
            "waited": self.waited,
            "expired": self.expired,
            "waiting": self.waiting,
            "bytes_replicated": self.bytes_replicated,
            "sessions": sessions,
            "session_partitions": partitions,
            "session_evictions": evictions,
        }
