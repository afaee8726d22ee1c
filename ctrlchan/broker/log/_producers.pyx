"""The state of the producers of one partition: their epochs, sequence numbers and last five batches.

An idempotent producer numbers its records. The leader appends the next number only, answers a batch that it
has appended before with the offsets of then, and refuses producers with an old epoch. Sources:
ProducerStateManager, ProducerAppendInfo, ProducerStateEntry. A producer that is not known may begin with any
number, so UNKNOWN_PRODUCER_ID is never answered (as Kafka since 2.4).

One open-addressing table holds all producers. ``check`` makes room for a new producer and for a transaction that begins
or ends, so that ``update``, after the batch is written, cannot fail. What an append or a Fetch costs does not depend on
how many producers and transactions there are. The log locks its mutex for all functions.
"""

from collections import namedtuple

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, qsort, realloc
from libc.string cimport memmove, memset

from ctrlchan._c.error_codes cimport (
    INVALID_PRODUCER_EPOCH,
    INVALID_RECORD,
    INVALID_TXN_STATE,
    NONE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    TRANSACTION_COORDINATOR_FENCED,
    UNKNOWN_SERVER_ERROR,
)
from ctrlchan.broker.log._batches cimport (
    CLIENT,
    CONTROL,
    REPLICATION,
    TRANSACTIONAL,
    Batch,
    Marker,
    next_batch,
    read_marker,
)
from ctrlchan.broker.log._parts cimport require_mutex
from ctrlchan.broker.log._verifications cimport (
    TransactionOfBatch,
    Verification,
    begin_verification,
    confirmed_guard,
    end_verification,
    expire_verifications,
    find_verification,
    free_verifications,
)


cdef enum:
    NO_EPOCH = -1
    NO_SEQUENCE = -1
    NO_OFFSET = -1
    NO_TIMESTAMP = -1
    FREE = -1
    NO_PLACE = -1

    LEAST_CAPACITY = 8
    # HashMap.DEFAULT_INITIAL_CAPACITY
    JAVA_CAPACITY = 16
    # A smaller HashMap grows when a bucket with so many keys gets one more; a larger one makes a tree of the bucket.
    JAVA_TREE_CAPACITY = 64
    JAVA_BUCKET = 8

cdef int64_t MOST_SEQUENCE = 2**31 - 1

ProducerState = namedtuple(
    "ProducerState", "producer_id epoch coordinator_epoch last_timestamp txn_first_offset batches"
)
CachedBatch = namedtuple("CachedBatch", "first_sequence last_sequence first_offset last_offset timestamp")
Appended = namedtuple("Appended", "error duplicate completed_txn")


@cython.overflowcheck(False)
cdef inline int32_t add_to_sequence(int32_t sequence, int32_t more) noexcept nogil:
    """Return the sequence number that comes ``more`` records later: 0 follows the largest int32."""
    cdef int64_t sum = <int64_t>sequence + more
    return <int32_t>(sum - MOST_SEQUENCE - 1 if sum > MOST_SEQUENCE else sum)


@cython.overflowcheck(False)
cdef inline int32_t first_sequence(const KeptBatch* batch) noexcept nogil:
    """Return the sequence number of the batch's first record. A snapshot may hold any numbers."""
    cdef int64_t first = <int64_t>batch.last_sequence - batch.offset_delta
    return <int32_t>(first + MOST_SEQUENCE + 1 if first < 0 else first)


cdef const KeptBatch* last_batch(const Producer* producer) noexcept nogil:
    return &(<Producer*>producer).batches[producer.kept - 1] if producer.kept else NULL


cdef inline int32_t last_sequence(const Producer* producer) noexcept nogil:
    return producer.batches[producer.kept - 1].last_sequence if producer.kept else NO_SEQUENCE


cdef inline void set_epoch(Producer* producer, int16_t epoch) noexcept nogil:
    """A new epoch begins without batches."""
    if producer.epoch != epoch:
        producer.epoch = epoch
        producer.kept = 0


cdef void keep(Producer* producer, KeptBatch batch) noexcept nogil:
    """Keep a batch; the oldest of five is dropped."""
    cdef int i
    if producer.kept == BATCHES_KEPT:
        for i in range(BATCHES_KEPT - 1):
            producer.batches[i] = producer.batches[i + 1]
        producer.kept -= 1
    producer.batches[producer.kept] = batch
    producer.kept += 1


@cython.overflowcheck(False)
cdef inline uint64_t slot_of(int64_t producer_id) noexcept nogil:
    # Ids are given in blocks; the multiplication spreads them.
    return (<uint64_t>producer_id * <uint64_t>0x9E3779B97F4A7C15) >> 32


@cython.overflowcheck(False)
cdef bint is_expired(const Producer* producer, int64_t now_ms, int64_t expiration_ms) noexcept nogil:
    cdef int64_t age = <int64_t>(<uint64_t>now_ms - <uint64_t>producer.last_timestamp)
    return producer.txn_first_offset == NO_OFFSET and age >= expiration_ms


cdef bint find_duplicate(const Batch* batch, int32_t last, ProducerUpdate* update) noexcept nogil:
    """Return whether ``update.producer`` has appended the batch before; ``update`` says where. ``last``: its last number."""
    cdef const Producer* producer = &update.producer
    cdef const KeptBatch* kept
    cdef int i
    if batch.producer_epoch != producer.epoch:
        return False
    for i in range(producer.kept):
        kept = &producer.batches[i]
        if kept.last_sequence == last and first_sequence(kept) == batch.base_sequence:
            update.is_duplicate = True
            update.duplicate_last_offset = kept.last_offset
            update.duplicate_first_offset = kept.last_offset - kept.offset_delta
            update.duplicate_timestamp = kept.timestamp
            return True
    return False


cdef inline bint has_no_guard(
    const Producer* producer, const Batch* batch, const Verification* verification, int64_t guard
) noexcept nogil:
    """Return whether a batch would begin a transaction without the guard of the producer's verification."""
    return (
        batch.attributes & (TRANSACTIONAL | CONTROL) == TRANSACTIONAL
        and producer.txn_first_offset == NO_OFFSET
        and (verification == NULL or verification.guard != guard)
    )


cdef inline bint is_next(const Producer* producer, const Batch* batch, const Verification* verification) noexcept nogil:
    """Return whether a client's batch has the sequence number that follows."""
    if verification != NULL and batch.base_sequence > verification.lowest_sequence:
        return False
    # A producer that is not known may begin anywhere: its records may have been deleted.
    if producer.epoch == NO_EPOCH:
        return True
    if batch.producer_epoch != producer.epoch:
        return batch.base_sequence == 0
    return batch.base_sequence == add_to_sequence(last_sequence(producer), 1)


cdef void take_batch(Producer* producer, const Batch* batch, int32_t last) noexcept nogil:
    """Take a batch into the state of its producer. ``last``: its last sequence number."""
    cdef KeptBatch kept
    set_epoch(producer, batch.producer_epoch)
    kept.last_sequence = last
    kept.last_offset = batch.base_offset + batch.last_offset_delta
    kept.offset_delta = batch.last_offset_delta
    kept.timestamp = batch.max_timestamp
    keep(producer, kept)
    producer.last_timestamp = batch.max_timestamp


# For ``sort_open``
cdef struct SortedPlace:
    int64_t first_offset
    int32_t place


cdef int by_first_offset(const void* left, const void* right) noexcept nogil:
    cdef int64_t a = (<const SortedPlace*>left).first_offset, b = (<const SortedPlace*>right).first_offset
    return (a > b) - (a < b)


@cython.final
cdef class ProducerStates:
    """The producers of one partition. ``expiration_ms``: producer.id.expiration.ms."""

    def __cinit__(self, int64_t expiration_ms=86400000):
        self.expiration_ms = expiration_ms
        self.java_capacity = JAVA_CAPACITY
        self.first_open = self.last_open = self.free_place = NO_PLACE

    def __dealloc__(self):
        free(self.table)
        free(self.open)
        free(self.ended)
        free_verifications(&self.verifications)

    def __len__(self):
        return self.count

    # -- the table

    cdef Producer* place(self, int64_t producer_id) noexcept nogil:
        """Return the producer's place, or the free place where it belongs. The table has a free place."""
        cdef uint64_t mask = self.capacity - 1
        cdef uint64_t i = slot_of(producer_id) & mask
        while self.table[i].producer_id != FREE and self.table[i].producer_id != producer_id:
            i = (i + 1) & mask
        return &self.table[i]

    cdef Producer* find(self, int64_t producer_id) noexcept nogil:
        """Return the state of a producer, or NULL. It is valid until the next change."""
        cdef Producer* producer
        if self.capacity == 0:
            return NULL
        producer = self.place(producer_id)
        return NULL if producer.producer_id == FREE else producer

    cdef bint reserve(self) noexcept nogil:
        """Make room for one more producer; return whether there is memory for it."""
        cdef Producer* old = self.table
        cdef Producer* table
        cdef int64_t i, j, capacity = self.capacity
        # At most two thirds are taken.
        if 3 * (self.count + 1) <= 2 * capacity:
            return True
        capacity = 2 * capacity if capacity else LEAST_CAPACITY
        table = <Producer*>malloc(capacity * sizeof(Producer))
        if table == NULL:
            return False
        for i in range(capacity):
            table[i].producer_id = FREE
        self.table = table
        i, self.capacity = self.capacity, capacity
        for j in range(i):
            if old[j].producer_id != FREE:
                self.place(old[j].producer_id)[0] = old[j]
        free(old)
        return True

    cdef Producer* put(self, const Producer* producer) noexcept nogil:
        """Store a state; return its place, which is valid until the next change. ``reserve`` was called before."""
        cdef Producer* place = self.place(producer.producer_id)
        cdef bint is_new = place.producer_id == FREE
        cdef int64_t arrival = self.arrivals if is_new else place.arrival
        if is_new:
            self.grow_java_capacity(producer.producer_id)
            self.arrivals = self.arrivals + 1
            self.count = self.count + 1
        place[0] = producer[0]
        place.arrival = arrival
        return place

    cdef void grow_java_capacity(self, int64_t producer_id) noexcept nogil:
        """Grow as HashMap does before a new key, for a full bucket and for a full map. It never shrinks."""
        cdef int64_t i, bucket, others = 0
        if self.java_capacity < JAVA_TREE_CAPACITY:
            bucket = java_bucket(producer_id, self.java_capacity)
            for i in range(self.capacity):
                if (
                    self.table[i].producer_id != FREE
                    and java_bucket(self.table[i].producer_id, self.java_capacity) == bucket
                ):
                    others += 1
            if others >= JAVA_BUCKET:
                self.java_capacity = 2 * self.java_capacity
        if 4 * (self.count + 1) > 3 * self.java_capacity:
            self.java_capacity = 2 * self.java_capacity

    cdef bint load(self, const Producer* producer) noexcept nogil:
        """Store a state of a snapshot; return whether there is memory for it. ``sort_open`` follows the last one."""
        cdef Producer* stored = self.find(producer.producer_id)
        if stored != NULL and stored.txn_first_offset != NO_OFFSET:
            # A damaged snapshot has a producer twice; the last state counts.
            self.remove_open(stored.open_place)
        if not self.reserve() or not self.reserve_open():
            return False
        stored = self.put(producer)
        if producer.txn_first_offset != NO_OFFSET:
            stored.open_place = self.add_open(producer.txn_first_offset, self.last_open)
        return True

    @cython.overflowcheck(False)
    cdef void expire(self, int64_t now_ms) noexcept nogil:
        """Forget the producers that have appended nothing for ``expiration_ms`` (removeExpiredProducers)."""
        cdef int64_t i = 0
        cdef uint64_t mask, hole, next_
        require_mutex(self.mutex)
        expire_verifications(&self.verifications, now_ms, self.expiration_ms)
        while i < self.capacity:
            if self.table[i].producer_id == FREE or not is_expired(
                &self.table[i], now_ms, self.expiration_ms
            ):
                i += 1
                continue
            self.count = self.count - 1
            # Move up those behind it that cannot be found past a free place.
            mask = self.capacity - 1
            hole = i
            next_ = i
            while True:
                next_ = (next_ + 1) & mask
                if self.table[next_].producer_id == FREE:
                    break
                if ((next_ - slot_of(self.table[next_].producer_id)) & mask) >= ((next_ - hole) & mask):
                    self.table[hole] = self.table[next_]
                    hole = next_
            self.table[hole].producer_id = FREE
            # Another one may be at ``i`` now. What moved from the begin of the table was looked at before.

    def clear(self):
        """Forget all producers."""
        self.forget_all()

    cdef void forget_all(self) noexcept nogil:
        cdef int64_t i
        for i in range(self.capacity):
            self.table[i].producer_id = FREE
        self.count = 0
        self.open_used = self.ended_from = self.ended_count = 0
        self.first_open = self.last_open = self.free_place = NO_PLACE

    cdef void begin_at(self, int64_t end_offset) noexcept nogil:
        """Forget all producers; what follows begins at ``end_offset``."""
        require_mutex(self.mutex)
        self.forget_all()
        self.end_offset = self.snapshot_offset = end_offset

    cdef bint has_nobody_to_forget(self, int64_t end_offset) noexcept nogil:
        """Return whether there were no producers at ``end_offset`` because there are none behind it."""
        require_mutex(self.mutex)
        return self.count == 0 and self.end_offset >= end_offset

    # -- appends

    cdef int64_t verify(self, int64_t producer_id, int16_t epoch, int32_t sequence, int64_t now_ms) noexcept nogil:
        """Begin a verification, or go on with one; return its guard, NO_GUARD while the producer has a transaction.

        NOT_VERIFIED: there is no memory for it. Source: UnifiedLog.maybeStartTransactionVerification.
        """
        cdef const Verification* verification
        if self.has_open_transaction(producer_id):
            return NO_GUARD
        verification = begin_verification(&self.verifications, producer_id, epoch, sequence, now_ms)
        return NOT_VERIFIED if verification == NULL else verification.guard

    cdef bint has_open_transaction(self, int64_t producer_id) noexcept nogil:
        """Return whether the producer has a transaction here that has not ended."""
        cdef const Producer* producer
        require_mutex(self.mutex)
        producer = self.find(producer_id)
        return producer != NULL and producer.txn_first_offset != NO_OFFSET

    cdef bint is_verified(
        self, const TransactionOfBatch* batch, int32_t leader_epoch, int64_t* guard
    ) noexcept nogil:
        """Return whether the coordinator need not be asked for a batch, and its guard.

        NO_GUARD: its producer has a transaction here.
        """
        guard[0] = NO_GUARD
        if self.has_open_transaction(batch.producer_id):
            return True
        guard[0] = confirmed_guard(&self.verifications, batch, leader_epoch)
        return guard[0] != NO_GUARD

    cdef int check(
        self, const uint8_t* data, const Batch* batch, int origin, int64_t guard, ProducerUpdate* update
    ) noexcept nogil:
        """Check a batch with offsets; return the error code, and in ``update`` what to do after the write.

        ``data`` is the whole batch; only a control batch is read from it. ``guard``: what ``verify`` has returned before
        the coordinator was asked for the batch, NO_GUARD, or NOT_VERIFIED: any producer may begin a transaction.
        """
        cdef const Verification* verification = NULL
        cdef Producer* producer = &update.producer
        cdef int32_t last = NO_SEQUENCE
        cdef int error
        require_mutex(self.mutex)
        update.is_due = update.is_duplicate = update.is_transactional = update.begins_txn = update.ends_txn = False
        if batch.producer_id < 0:
            return NONE
        if batch.base_sequence != NO_SEQUENCE:
            last = add_to_sequence(batch.base_sequence, batch.last_offset_delta)
        if not self.copy_or_begin(batch.producer_id, producer):
            return UNKNOWN_SERVER_ERROR
        if origin == CLIENT and find_duplicate(batch, last, update):
            return NONE
        # Seldom is there one: plain batches look for none.
        if self.verifications.count:
            verification = find_verification(&self.verifications, batch.producer_id)
        if guard != NOT_VERIFIED and origin != REPLICATION and has_no_guard(producer, batch, verification, guard):
            return INVALID_TXN_STATE
        update.is_transactional = batch.attributes & (TRANSACTIONAL | CONTROL)
        update.last_offset = batch.base_offset + batch.last_offset_delta
        if batch.attributes & CONTROL:
            return end_txn(data, batch, origin, update) if self.reserve_ended() else UNKNOWN_SERVER_ERROR
        if batch.producer_epoch < producer.epoch and origin != REPLICATION:
            return INVALID_PRODUCER_EPOCH
        if origin == CLIENT and not is_next(producer, batch, verification):
            return OUT_OF_ORDER_SEQUENCE_NUMBER
        if producer.txn_first_offset != NO_OFFSET and not batch.attributes & TRANSACTIONAL:
            return INVALID_TXN_STATE
        if producer.txn_first_offset == NO_OFFSET and batch.attributes & TRANSACTIONAL:
            if not self.reserve_open():
                return UNKNOWN_SERVER_ERROR
            producer.txn_first_offset = batch.base_offset
            update.begins_txn = True
        take_batch(producer, batch, last)
        update.is_due = True
        return NONE

    cdef bint copy_or_begin(self, int64_t producer_id, Producer* producer) noexcept nogil:
        """Copy the state of a producer, or begin one; return whether there is memory for another producer."""
        cdef const Producer* current = self.find(producer_id)
        if current != NULL:
            producer[0] = current[0]
            return True
        memset(producer, 0, sizeof(Producer))
        producer.producer_id = producer_id
        producer.epoch = NO_EPOCH
        producer.coordinator_epoch = -1
        producer.last_timestamp = NO_TIMESTAMP
        producer.txn_first_offset = NO_OFFSET
        return self.reserve()

    cdef void update(self, const ProducerUpdate* update) noexcept nogil:
        """Store what ``check`` has found for the same batch."""
        cdef Producer* stored
        cdef int32_t earlier = self.last_open
        require_mutex(self.mutex)
        if update.is_due:
            stored = self.put(&update.producer)
            if update.begins_txn:
                # A transaction begins above all others, unless a damaged snapshot had them.
                while earlier != NO_PLACE and self.open[earlier].first_offset > stored.txn_first_offset:
                    earlier = self.open[earlier].earlier
                stored.open_place = self.add_open(stored.txn_first_offset, earlier)
        if update.is_transactional and self.verifications.count:
            end_verification(&self.verifications, update.producer.producer_id)
        if update.ends_txn:
            self.remove_open(update.producer.open_place)
            self.add_ended(update.txn_first_offset, update.last_offset)

    # -- transactions that have not ended

    cdef bint reserve_open(self) noexcept nogil:
        """Make room for one more transaction that has not ended; return whether there is memory for it."""
        cdef OpenTransaction* open
        cdef int32_t room = 2 * self.open_room + 4
        if self.free_place != NO_PLACE or self.open_used < self.open_room:
            return True
        open = <OpenTransaction*>realloc(self.open, room * sizeof(OpenTransaction))
        if open == NULL:
            return False
        self.open, self.open_room = open, room
        return True

    cdef int32_t add_open(self, int64_t first_offset, int32_t earlier) noexcept nogil:
        """Add a transaction to the list, behind the one at ``earlier``, -1: at the begin; return its place.

        ``reserve_open`` was called before.
        """
        cdef int32_t place = self.free_place
        cdef int32_t later = self.open[earlier].later if earlier != NO_PLACE else self.first_open
        if place != NO_PLACE:
            self.free_place = self.open[place].later
        else:
            place = self.open_used
            self.open_used = self.open_used + 1
        self.open[place].first_offset = first_offset
        self.open[place].earlier, self.open[place].later = earlier, later
        if earlier != NO_PLACE:
            self.open[earlier].later = place
        else:
            self.first_open = place
        if later != NO_PLACE:
            self.open[later].earlier = place
        else:
            self.last_open = place
        return place

    cdef void remove_open(self, int32_t place) noexcept nogil:
        """Take a transaction out of the list."""
        cdef OpenTransaction* one = &self.open[place]
        if one.earlier != NO_PLACE:
            self.open[one.earlier].later = one.later
        else:
            self.first_open = one.later
        if one.later != NO_PLACE:
            self.open[one.later].earlier = one.earlier
        else:
            self.last_open = one.earlier
        one.later = self.free_place
        self.free_place = place

    cdef bint sort_open(self) noexcept nogil:
        """Order the list: a snapshot has transactions in any order. Return whether there is memory for it."""
        cdef SortedPlace* places
        cdef int64_t i, count = 0
        cdef int32_t place = self.first_open
        if place == NO_PLACE:
            return True
        places = <SortedPlace*>malloc(self.open_used * sizeof(SortedPlace))
        if places == NULL:
            return False
        while place != NO_PLACE:
            places[count].first_offset, places[count].place = self.open[place].first_offset, place
            count += 1
            place = self.open[place].later
        qsort(places, count, sizeof(SortedPlace), &by_first_offset)
        for i in range(count):
            self.open[places[i].place].earlier = places[i - 1].place if i > 0 else NO_PLACE
            self.open[places[i].place].later = places[i + 1].place if i + 1 < count else NO_PLACE
        self.first_open, self.last_open = places[0].place, places[count - 1].place
        free(places)
        return True

    cdef int64_t first_undecided(self) noexcept nogil:
        """Return the first offset of all transactions that have not ended, or -1."""
        return self.open[self.first_open].first_offset if self.first_open != NO_PLACE else NO_OFFSET

    # -- transactions that have ended, and what consumers may read

    cdef bint reserve_ended(self) noexcept nogil:
        """Make room for one more transaction that has ended; return whether there is memory for it."""
        cdef Ended* ended
        cdef int32_t room = 2 * self.ended_room + 4
        if self.ended_from + self.ended_count < self.ended_room:
            return True
        if self.ended_from > self.ended_count:
            memmove(self.ended, self.ended + self.ended_from, self.ended_count * sizeof(Ended))
            self.ended_from = 0
            return True
        ended = <Ended*>realloc(self.ended, room * sizeof(Ended))
        if ended == NULL:
            return False
        self.ended, self.ended_room = ended, room
        return True

    cdef void add_ended(self, int64_t first_offset, int64_t last_offset) noexcept nogil:
        """Add a transaction behind those that have ended. ``reserve_ended`` was called before.

        Those that began later need not be waited for: this one is replicated after them.
        """
        cdef Ended* end = self.ended + self.ended_from + self.ended_count
        while self.ended_count > 0 and (end - 1).first_offset >= first_offset:
            self.ended_count = self.ended_count - 1
            end -= 1
        end.first_offset, end.last_offset = first_offset, last_offset
        self.ended_count = self.ended_count + 1

    cdef int64_t stable_offset(self, int64_t high_watermark, int64_t start_offset) noexcept nogil:
        """Return the offset below which all transactions have ended, and their markers are replicated."""
        cdef int64_t stable = high_watermark
        require_mutex(self.mutex)
        if self.first_open != NO_PLACE:
            stable = min(stable, max(self.open[self.first_open].first_offset, start_offset))
        if self.ended_count > 0:
            stable = min(stable, max(self.ended[self.ended_from].first_offset, start_offset))
        return stable

    cdef void forget_replicated(self, int64_t high_watermark) noexcept nogil:
        """Forget the transactions that have ended below the high watermark."""
        require_mutex(self.mutex)
        while self.ended_count > 0 and self.ended[self.ended_from].last_offset < high_watermark:
            self.ended_from = self.ended_from + 1
            self.ended_count = self.ended_count - 1
        if self.ended_count == 0:
            self.ended_from = 0

    # -- for Python code

    def append_batch(self, const uint8_t[::1] data not None, int origin, int64_t guard=NOT_VERIFIED):
        """Check a batch with offsets, and take it into the producers if it is valid.

        Returns an Appended: the error code, the CachedBatch that it is a duplicate of, and (first offset,
        whether it is aborted) of the transaction that it ends.
        """
        cdef Batch batch
        cdef ProducerUpdate update
        cdef int error
        if next_batch(&data[0] if data.shape[0] else NULL, data.shape[0], &batch) != NONE or batch.size == 0:
            raise ValueError("no whole batch")
        error = self.check(&data[0], &batch, origin, guard, &update)
        if error != NONE:
            return Appended(error, None, None)
        self.update(&update)
        duplicate = completed = None
        if update.is_duplicate:
            duplicate = CachedBatch(
                batch.base_sequence, add_to_sequence(batch.base_sequence, batch.last_offset_delta),
                update.duplicate_first_offset, update.duplicate_last_offset, update.duplicate_timestamp,
            )
        if update.ends_txn:
            completed = update.txn_first_offset, update.is_aborted
        return Appended(error, duplicate, completed)

    def producers(self):
        """Return the ProducerState of all producers, in the order in which they came."""
        cdef int64_t count
        cdef Producer* copied = self.copy(&count)
        return describe_producers(copied, count)

    cdef Producer* copy(self, int64_t* count) noexcept nogil:
        """Return a copy of all producers for ``describe_producers``; NULL without memory."""
        cdef Producer* copied = <Producer*>malloc(max(1, self.count) * sizeof(Producer))
        cdef int64_t i
        require_mutex(self.mutex)
        count[0] = 0
        if copied != NULL:
            for i in range(self.capacity):
                if self.table[i].producer_id != FREE:
                    copied[count[0]] = self.table[i]
                    count[0] += 1
        return copied

    def begin_verification(self, int64_t producer_id, int16_t epoch, int32_t sequence, int64_t now_ms):
        """Return the guard of a verification, 0 while the producer has a transaction."""
        cdef int64_t guard = self.verify(producer_id, epoch, sequence, now_ms)
        if guard == NOT_VERIFIED:
            raise MemoryError()
        return guard

    @property
    def verification_count(self):
        """The number of verifications that have not ended."""
        return self.verifications.count

    def first_undecided_offset(self):
        """Return the first offset of all transactions that have not ended, or -1."""
        return self.first_undecided()

    def remove_expired(self, int64_t now_ms):
        """Forget the producers that have appended nothing for ``expiration_ms`` and have no transaction."""
        self.expire(now_ms)


cdef list describe_producers(Producer* copied, int64_t count):
    cdef const Producer* p
    cdef int64_t i
    cdef int k
    found = []
    if copied == NULL:
        raise MemoryError()
    try:
        for i in range(count):
            p = &copied[i]
            batches = [
                CachedBatch(
                    first_sequence(&p.batches[k]), p.batches[k].last_sequence,
                    p.batches[k].last_offset - p.batches[k].offset_delta, p.batches[k].last_offset,
                    p.batches[k].timestamp,
                )
                for k in range(p.kept)
            ]
            found.append((p.arrival, ProducerState(
                p.producer_id, p.epoch, p.coordinator_epoch, p.last_timestamp, p.txn_first_offset, batches
            )))
        return [state for _, state in sorted(found)]
    finally:
        free(copied)


cdef int end_txn(
    const uint8_t* data, const Batch* batch, int origin, ProducerUpdate* update
) noexcept nogil:
    """Apply the marker of a control batch to ``update.producer``; return the error code."""
    cdef Marker marker
    cdef Producer* producer = &update.producer
    if batch.count == 0:
        # The cleaner has removed the marker, and before it all records of the transaction.
        update.is_due = True
        return NONE
    if not read_marker(data, batch, &marker):
        return INVALID_RECORD
    if origin != REPLICATION:
        if batch.producer_epoch < producer.epoch:
            return INVALID_PRODUCER_EPOCH
        if marker.coordinator_epoch < producer.coordinator_epoch:
            return TRANSACTION_COORDINATOR_FENCED
    update.ends_txn = producer.txn_first_offset != NO_OFFSET
    update.txn_first_offset = producer.txn_first_offset
    update.is_aborted = marker.is_aborted
    set_epoch(producer, batch.producer_epoch)
    producer.coordinator_epoch = marker.coordinator_epoch
    producer.last_timestamp = marker.timestamp
    producer.txn_first_offset = NO_OFFSET
    update.is_due = True
    return NONE
