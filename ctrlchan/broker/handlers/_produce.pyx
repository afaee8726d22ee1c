"""Produce (0), versions 3 to 11, on the thread of a processor: no Python object, and no GIL.

A request is read and checked whole before anything is appended. If anything about it is unusual (compressed records, an
unknown partition, a batch that is refused, a wrong body), the request queue gets it, and ``produce.py`` answers.
What can go wrong after that is what only the append knows: another leader, sequence numbers, a failed disk.

A transactional batch is appended here while its producer has a transaction in the partition. The first one is appended
here if this broker coordinates the transaction: ``log/_verifications.pyx``. Else it goes to the request queue, because the
coordinator is asked for it (KIP-890).

With acks=-1 the request is parked until the high watermark has reached the end of its records in each partition
(DelayedProduce). Sources: KafkaApis.handleProduceRequest, ReplicaManager.appendRecords, kafka.server.DelayedProduce.

Layouts, from version 9 on with compact strings and arrays and with tagged fields:

    request   transactional id, acks int16, timeout ms int32, [name, [index int32, records]]
    response  [name, [index int32, error int16, base offset int64, append time int64, start offset int64 (5),
              [record errors] (8), message (8), current leader (10, tagged)]], throttle ms int32
"""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from ctrlchan._c.atomics cimport count_shared, counted
from ctrlchan._c.bytes cimport get_i16, get_i32, get_i64, put_i16, put_i32, put_i64, put_uvarint, uvarint_size
from ctrlchan._c.error_codes cimport NONE, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT
from ctrlchan.broker._decisions cimport MAY_WRITE, TOPIC_NAME, TRANSACTIONAL_ID, Decisions
from ctrlchan.broker.log._batches cimport (
    BASE_SEQUENCE_AT,
    CLIENT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    TRANSACTIONAL,
    Rules,
    check_batches,
)
from ctrlchan.broker.log._producers cimport NO_GUARD
from ctrlchan.broker.log._verifications cimport TransactionOfBatch
from ctrlchan.broker.metadata._snapshot cimport CurrentMetadata, release_snapshot, take_snapshot
from ctrlchan.broker.quota._client_quotas cimport PRODUCE as PRODUCE_QUOTA
from ctrlchan.server._processor cimport (
    ABANDONED,
    ARRIVED,
    CLOSE,
    DONE,
    EXPIRED,
    NO_ANSWER,
    PARKED,
    QUEUE,
    Answer,
    HotRequest,
    Network,
    Result,
    append_bytes,
    append_room,
)
from ctrlchan.server._cursor cimport (
    Cursor,
    read_bytes,
    read_i16,
    read_i32,
    read_size,
    read_string,
    skip_tags,
    take,
)
from ctrlchan.broker.handlers._hot cimport HotApi, RequestHeader, append_header, charge
from ctrlchan.broker.replica._partition_state cimport (
    WATERMARK_MOVED,
    PartitionState,
    Table,
    Watcher,
    append_to_leader,
    error_of_leader,
    find_partition,
    is_acknowledged,
    is_verified,
    lock_partition,
    records_before_flush,
    release_partition,
    unlock_partition,
    unwatch,
    wall_ms,
    watch,
)
from ctrlchan.broker.replica._partitions cimport PartitionTable

cdef enum:
    PRODUCE = 0
    LOWEST = 3
    HIGHEST = 11
    FLEXIBLE_FROM = 9
    START_OFFSET_FROM = 5
    ZSTD_FROM = 7
    RECORD_ERRORS_FROM = 8
    CURRENT_LEADER_FROM = 10
    NO_ACKS = 0
    LEADER = 1
    ALL = -1
    NO_PRODUCER_ID = -1


# -- parts


cdef Part* add_part(Produce* produce) noexcept nogil:
    """Return room for one more part, or NULL."""
    cdef int32_t room
    cdef Part* parts
    if produce.count == produce.room:
        room = 4 * produce.room
        if produce.parts == produce.few:
            parts = <Part*>malloc(room * sizeof(Part))
            if parts != NULL:
                memcpy(parts, produce.few, sizeof(produce.few))
        else:
            parts = <Part*>realloc(produce.parts, room * sizeof(Part))
        if parts == NULL:
            return NULL
        produce.parts, produce.room = parts, room
    produce.count += 1
    return &produce.parts[produce.count - 1]


@cython.overflowcheck(False)
cdef inline uint64_t place_of(const PartitionState* partition, uint64_t places) noexcept nogil:
    """Return the first place to look for a partition in a hash table of this size, a power of two."""
    return (<uint64_t>partition * <uint64_t>0x9E3779B97F4A7C15) >> 32 & (places - 1)


cdef bint names_one_twice(const Produce* produce) noexcept nogil:
    """Return whether two parts are of one partition, or no memory is left to find out.

    It looks at nothing but the request: other processors read requests for the same partitions at the same time.
    """
    cdef const PartitionState** table
    cdef uint64_t places = 4 * FEW_PARTS, at
    cdef int32_t i, j
    cdef bint found = False
    if produce.count <= FEW_PARTS:
        for i in range(1, produce.count):
            for j in range(i):
                if produce.parts[i].partition == produce.parts[j].partition:
                    return True
        return False
    while places < 2 * <uint64_t>produce.count:
        places *= 2
    table = <const PartitionState**>calloc(places, sizeof(PartitionState*))
    if table == NULL:
        return True
    for i in range(produce.count):
        at = place_of(produce.parts[i].partition, places)
        while table[at] != NULL and table[at] != produce.parts[i].partition:
            at = (at + 1) & (places - 1)
        if table[at] != NULL:
            found = True
            break
        table[at] = produce.parts[i].partition
    free(table)
    return found


cdef void end_produce(Produce* produce) noexcept nogil:
    """Give back the partitions, and memory of the parts."""
    cdef int32_t i
    for i in range(produce.count):
        unwatch(&produce.parts[i].watcher)
        release_partition(produce.parts[i].partition)
    if produce.parts != produce.few:
        free(produce.parts)


# -- reading


cdef bint belongs_to_transaction(Produce* produce, Part* part) noexcept nogil:
    """Return whether a transactional batch may be appended without a question to the coordinator.

    All such batches of a request are of one producer, which a request without a transactional id does not have.
    """
    cdef TransactionOfBatch batch
    batch.transactional_id, batch.transactional_id_size = produce.transactional_id, produce.transactional_id_size
    batch.producer_id = get_i64(part.records + PRODUCER_ID_AT)
    batch.epoch = get_i16(part.records + PRODUCER_EPOCH_AT)
    batch.sequence = get_i32(part.records + BASE_SEQUENCE_AT)
    if produce.transactional_id == NULL or batch.producer_id < 0:
        return False
    if produce.producer_id == NO_PRODUCER_ID:
        produce.producer_id, produce.producer_epoch = batch.producer_id, batch.epoch
    return (
        batch.producer_id == produce.producer_id and batch.epoch == produce.producer_epoch
        and is_verified(part.partition, &batch, &part.guard)
    )


cdef bint read_part(
    Table* table, Produce* produce, Cursor* c, const uint8_t* name, int64_t name_size, Rules* rules
) noexcept nogil:
    """Read and check the records of one partition; return whether they may be appended here."""
    cdef Rules own
    cdef Part* part
    cdef PartitionState* p
    cdef int64_t size
    cdef int32_t index = read_i32(c)
    cdef const uint8_t* records = read_bytes(c, &size)
    cdef int64_t at_most = 0
    cdef bint is_plain
    skip_tags(c)
    if c.failed or size <= 0:
        return False
    p = find_partition(table, name, name_size, index)
    if p == NULL:
        return False
    part = add_part(produce)
    if part == NULL:
        release_partition(p)
        return False
    part.partition, part.records = p, <uint8_t*>records
    part.is_pending, part.guard = False, NO_GUARD
    memset(&part.watcher, 0, sizeof(Watcher))
    lock_partition(p)
    is_plain = not p.is_internal and error_of_leader(p, produce.acks) == NONE
    if is_plain:
        at_most = records_before_flush(p)
    own = p.rules
    unlock_partition(p)
    own.now_ms, own.refuses_zstd = rules.now_ms, rules.refuses_zstd
    return (
        is_plain
        and check_batches(records, size, &own, &part.appended) == NONE
        and part.appended.count <= at_most
        and not part.appended.needs_decompression
        and (not part.appended.header_attributes & TRANSACTIONAL or belongs_to_transaction(produce, part))
    )


cdef bint may_write(ProduceApi self, int32_t identity, int subject, const uint8_t* name, int64_t size) noexcept nogil:
    """Return whether the client may write to a topic, or use a transactional id. False: a handler thread must ask."""
    return not self.is_restricted or self.decisions.allows(identity, subject, name, size, MAY_WRITE)


cdef bint read_request(
    ProduceApi self, int32_t identity, const RequestHeader* header, int64_t now_ms, Produce* produce
) noexcept nogil:
    """Read and check a whole request; return whether all of it may be appended here."""
    cdef Cursor c
    cdef Rules rules
    cdef int64_t size, topics, partitions
    cdef const uint8_t* name
    cdef int32_t number = 0
    c.at, c.end, c.flexible, c.failed = header.body, header.end, header.flexible, False
    rules.now_ms, rules.refuses_zstd = now_ms, header.version < ZSTD_FROM
    produce.transactional_id = read_string(&c, &produce.transactional_id_size)
    produce.producer_id = NO_PRODUCER_ID
    produce.acks, produce.timeout_ms = read_i16(&c), read_i32(&c)
    if not ALL <= produce.acks <= LEADER:
        return False
    if produce.transactional_id != NULL and not may_write(
        self, identity, TRANSACTIONAL_ID, produce.transactional_id, produce.transactional_id_size
    ):
        return False
    topics = read_size(&c, False)
    while topics > 0:
        name = read_string(&c, &size)
        partitions = read_size(&c, False)
        # Kafka does not answer a topic without partitions.
        if name == NULL or partitions <= 0 or not may_write(self, identity, TOPIC_NAME, name, size):
            return False
        while partitions > 0:
            if not read_part(&self.table.table, produce, &c, name, size, &rules):
                return False
            produce.parts[produce.count - 1].topic = number
            partitions -= 1
        skip_tags(&c)
        topics -= 1
        number += 1
    skip_tags(&c)
    produce.topics = number
    # Of two entries for one partition Kafka takes the last.
    return topics == 0 and not c.failed and not names_one_twice(produce)


# -- answering


cdef void append_size(Answer* answer, bint flexible, bint is_short, int64_t size) noexcept nogil:
    """Write the size of a string or an array; the memory holds so many entries already."""
    cdef uint8_t* room
    if flexible:
        room = append_room(answer, uvarint_size(<uint32_t>size + 1))
        if room != NULL:
            put_uvarint(room, <uint32_t>size + 1)
    elif is_short:
        room = append_room(answer, 2)
        if room != NULL:
            put_i16(room, <int16_t>size)
    else:
        room = append_room(answer, 4)
        if room != NULL:
            put_i32(room, <int32_t>size)


cdef void append_part(Answer* answer, int version, int32_t index, const Part* part) noexcept nogil:
    """Write the answer for one partition: at most 47 bytes."""
    cdef uint8_t* room
    cdef uint8_t* p
    cdef uint8_t bytes[48]
    put_i32(bytes, index)
    put_i16(bytes + 4, part.result.error)
    put_i64(bytes + 6, part.result.base_offset)
    put_i64(bytes + 14, part.result.append_time)
    p = bytes + 22
    if version >= START_OFFSET_FROM:
        put_i64(p, part.result.log_start_offset)
        p += 8
    if version >= FLEXIBLE_FROM:
        # No record errors, no message
        p[0], p[1], p[2] = 1, 0, 0
        p += 3
        if version >= CURRENT_LEADER_FROM and part.result.error == NOT_LEADER_OR_FOLLOWER:
            # One tagged field, number 0, of 9 bytes, which has no tagged fields.
            (p - 1)[0] = 1
            p[0], p[1], p[10] = 0, 9, 0
            put_i32(p + 2, part.leader)
            put_i32(p + 6, part.leader_epoch)
            p += 11
    elif version >= RECORD_ERRORS_FROM:
        put_i32(p, 0)
        put_i16(p + 4, -1)
        p += 6
    append_bytes(answer, bytes, p - bytes)


cdef void append_response(
    ProduceApi self, Answer* answer, const RequestHeader* header, Produce* produce, int32_t listener
) noexcept nogil:
    """Write the response: topics and partitions in the order of the request, whose records may be gone."""
    cdef const PartitionState* partition
    cdef uint8_t* room
    cdef int32_t i = 0, end
    cdef bint names_leaders = header.version >= CURRENT_LEADER_FROM and note_leaders(produce)
    append_header(answer, header)
    append_size(answer, header.flexible, False, produce.topics)
    while i < produce.count:
        partition = produce.parts[i].partition
        append_size(answer, header.flexible, True, partition.name_size)
        append_bytes(answer, partition.name, partition.name_size)
        end = i
        while end < produce.count and produce.parts[end].topic == produce.parts[i].topic:
            end += 1
        append_size(answer, header.flexible, False, end - i)
        while i < end:
            append_part(answer, header.version, produce.parts[i].partition.index, &produce.parts[i])
            i += 1
        if header.flexible:
            append_bytes(answer, b"\0", 1)
    room = append_room(answer, 4)
    if room != NULL:
        put_i32(room, header.throttle_time_ms)
    if names_leaders:
        append_endpoints(self, answer, produce, listener)
    elif header.flexible:
        append_bytes(answer, b"\0", 1)


cdef bint note_leaders(Produce* produce) noexcept nogil:
    """Store the leaders of the partitions that this broker does not lead; return whether there is one."""
    cdef int32_t i
    cdef Part* part
    cdef bint found = False
    for i in range(produce.count):
        part = &produce.parts[i]
        if part.result.error == NOT_LEADER_OR_FOLLOWER:
            found = True
            lock_partition(part.partition)
            part.leader, part.leader_epoch = part.partition.leader, part.partition.leader_epoch
            unlock_partition(part.partition)
    return found


cdef void append_endpoints(ProduceApi self, Answer* answer, const Produce* produce, int32_t listener) noexcept nogil:
    """Write the last tagged fields: where the leaders listen that the answer names."""
    cdef int32_t i, count = 0
    cdef int64_t size = 0
    cdef uint8_t* room
    cdef uint8_t* endpoints = NULL
    cdef int32_t* ids = <int32_t*>malloc(produce.count * sizeof(int32_t))
    if ids != NULL:
        for i in range(produce.count):
            if produce.parts[i].result.error == NOT_LEADER_OR_FOLLOWER:
                ids[count] = produce.parts[i].leader
                count += 1
        endpoints = self.endpoints(take_snapshot(self.metadata), listener, ids, count, &size)
        release_snapshot(self.metadata)
    if endpoints == NULL:
        append_bytes(answer, b"\0", 1)
    else:
        # One tagged field, number 0.
        room = append_room(answer, 2 + uvarint_size(<uint32_t>size))
        if room != NULL:
            room[0], room[1] = 1, 0
            put_uvarint(room + 2, <uint32_t>size)
        append_bytes(answer, endpoints, size)
    free(endpoints)
    free(ids)


# -- waiting for the in-sync replicas


cdef bint wait_for_acks(Produce* produce, Network* network, uint64_t token) noexcept nogil:
    """Watch the partitions that are not acknowledged; return whether there is one."""
    cdef int32_t i
    cdef Part* part
    cdef bint waits = False
    for i in range(produce.count):
        part = &produce.parts[i]
        if not part.is_pending:
            continue
        lock_partition(part.partition)
        if is_acknowledged(part.partition, part.result.required_offset, &part.result.error):
            part.is_pending = False
        else:
            waits = True
            if not part.watcher.is_linked:
                watch(part.partition, &part.watcher, WATERMARK_MOVED, part.result.required_offset, network, token)
        unlock_partition(part.partition)
    return waits


cdef Result go_on(ProduceApi self, HotRequest* request, RequestHeader* header, Answer* answer) noexcept nogil:
    """Answer a request with acks=-1 when its records are acknowledged or its time is over; else park it."""
    cdef Produce* produce = <Produce*>request.state
    cdef int32_t i
    if request.reason != ABANDONED:
        if wait_for_acks(produce, self.network, request.token):
            if request.reason != EXPIRED:
                return PARKED
            count_shared(&self.expired, 1)
            for i in range(produce.count):
                if produce.parts[i].is_pending:
                    produce.parts[i].result.error = REQUEST_TIMED_OUT
        charge(self, request, header, PRODUCE_QUOTA, header.end - header.body, False)
        append_response(self, answer, header, produce, request.listener)
    end_produce(produce)
    free(produce)
    request.state = NULL
    count_shared(&self.parked_now, -1)
    return DONE


cdef Produce* moved(Produce* produce) noexcept nogil:
    """Return a copy of the request that outlives this call, or NULL. The watchers move to the copy."""
    cdef Produce* kept = <Produce*>malloc(sizeof(Produce))
    if kept != NULL:
        kept[0] = produce[0]
        if produce.parts == produce.few:
            kept.parts = kept.few
    return kept


cdef Result handle_produce(void* context, HotRequest* request, RequestHeader* header, Answer* answer) noexcept nogil:
    """Append the records of a request, and answer it."""
    cdef Produce produce
    cdef Part* part
    cdef int64_t now_ms
    cdef int32_t i
    cdef bint failed = False, waits = False
    cdef Result result = DONE
    if request.reason != ARRIVED:
        return go_on(<ProduceApi>context, request, header, answer)
    now_ms = wall_ms(&(<ProduceApi>context).table.table)
    produce.count, produce.room, produce.parts = 0, FEW_PARTS, produce.few
    if not read_request(<ProduceApi>context, request.identity, header, now_ms, &produce):
        end_produce(&produce)
        return QUEUE
    count_shared(&(<ProduceApi>context).requests, 1)
    for i in range(produce.count):
        part = &produce.parts[i]
        append_to_leader(
            part.partition, part.records, &part.appended, CLIENT, part.guard, produce.acks, now_ms, &part.result
        )
        part.is_pending = produce.acks == ALL and part.result.error == NONE and not part.result.is_acknowledged
        waits |= part.is_pending
        failed |= part.result.error != NONE
    if waits:
        request.state = moved(&produce)
        if request.state != NULL:
            request.wait_ms = produce.timeout_ms
            # The records are in the logs.
            request.kept_bytes = header.body - request.data
            count_shared(&(<ProduceApi>context).parked, 1)
            count_shared(&(<ProduceApi>context).parked_now, 1)
            return go_on(<ProduceApi>context, request, header, answer)
        for i in range(produce.count):
            if produce.parts[i].is_pending:
                produce.parts[i].result.error = REQUEST_TIMED_OUT
    # Without an answer the request quota does not hold.
    charge(
        <ProduceApi>context, request, header, PRODUCE_QUOTA, header.end - header.body, produce.acks == NO_ACKS
    )
    if produce.acks == NO_ACKS:
        # A producer with acks=0 notices an error only by a closed connection.
        result = CLOSE if failed else NO_ANSWER
    else:
        append_response(<ProduceApi>context, answer, header, &produce, request.listener)
    end_produce(&produce)
    return result


cdef class ProduceApi(HotApi):
    """Answers Produce from the partitions of ``table``.

    ``metadata``: where the leaders listen that a client should ask instead.
    """

    def __init__(self, PartitionTable table not None, CurrentMetadata metadata not None):
        self.table, self.metadata = table, metadata
        self.entry.key, self.entry.lowest, self.entry.highest = PRODUCE, LOWEST, HIGHEST
        self.entry.flexible_from, self.entry.function, self.entry.context = FLEXIBLE_FROM, handle_produce, <void*>self

    def authorize_with(self, Decisions decisions not None):
        """Append only what these decisions allow. Called before the first request."""
        self.decisions, self.is_restricted = decisions, True

    @property
    def counters(self):
        """Numbers of requests: answered here, parked, and parked until their time was over."""
        return counted(&self.requests), counted(&self.parked), counted(&self.expired)

    @property
    def waiting(self):
        """Requests that are parked now."""
        return counted(&self.parked_now)
