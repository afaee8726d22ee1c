"""The state of the producers of one partition: their epochs, sequence numbers and last five batches.

An idempotent producer numbers its records. The leader appends the next number only, answers a batch that it
has appended before with the offsets of then, and refuses producers with an old epoch. Sources:
ProducerStateManager, ProducerAppendInfo, ProducerStateEntry. A producer that is not known may begin with any
number, so UNKNOWN_PRODUCER_ID is never answered (as Kafka since 2.4).

One open-addressing table holds all producers. The lock of the log guards it. ``check`` makes room for a new
producer, so that ``update``, after the batch is written, cannot fail.

Layout of a snapshot, big-endian: version int16 (1), CRC-32C uint32 of all bytes after itself, count int32;
for each producer: id int64, epoch int16, last sequence int32, last offset int64, offset delta int32, timestamp
int64, coordinator epoch int32, first offset of the transaction int64 (-1 without one). Their order is that
of Kafka's hash map, so that the same appends give the same bytes.
"""

from collections import namedtuple

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport ENOMEM, errno
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, qsort
from libc.string cimport memset
from posix.fcntl cimport O_CREAT, O_TRUNC, O_WRONLY, openat
from posix.unistd cimport close

from ctrlchan._c.bytes cimport get_i16, get_i32, get_i64, put_i16, put_i32, put_i64
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
    HEADER_BYTES,
    REPLICATION,
    TRANSACTIONAL,
    Batch,
    Marker,
    checksum,
    next_batch,
    read_marker,
)

from ctrlchan.broker.log._files cimport check_disk, flush_file, write_all

cdef enum:
    NO_EPOCH = -1
    NO_SEQUENCE = -1
    NO_OFFSET = -1
    NO_TIMESTAMP = -1
    FREE = -1

    LEAST_CAPACITY = 8
    # HashMap.DEFAULT_INITIAL_CAPACITY
    JAVA_CAPACITY = 16

    SNAPSHOT_VERSION = 1
    SNAPSHOT_HEADER = 10
    # The CRC covers all from here on.
    SNAPSHOT_CHECKED = 6
    SNAPSHOT_ENTRY = 46

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


cdef inline const KeptBatch* last_batch(const Producer* producer) noexcept nogil:
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


cdef struct Place:
    int64_t bucket
    const Producer* producer


cdef int by_place(const void* left, const void* right) noexcept nogil:
    cdef const Place* a = <const Place*>left
    cdef const Place* b = <const Place*>right
    if a.bucket != b.bucket:
        return -1 if a.bucket < b.bucket else 1
    return -1 if a.producer.arrival < b.producer.arrival else 1


@cython.overflowcheck(False)
cdef inline bint is_expired(const Producer* producer, int64_t now_ms, int64_t expiration_ms) noexcept nogil:
    cdef int64_t age = <int64_t>(<uint64_t>now_ms - <uint64_t>producer.last_timestamp)
    return producer.txn_first_offset == NO_OFFSET and age >= expiration_ms


cdef class ProducerStates:
    """The producers of one partition. ``expiration_ms``: producer.id.expiration.ms."""

    def __cinit__(self, int64_t expiration_ms=86400000):
        self.expiration_ms = expiration_ms
        self.java_capacity = JAVA_CAPACITY

    def __dealloc__(self):
        free(self.table)

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

    cdef void put(self, const Producer* producer) noexcept nogil:
        """Store a state. ``reserve`` was called before."""
        cdef Producer* place = self.place(producer.producer_id)
        cdef bint is_new = place.producer_id == FREE
        cdef int64_t arrival = self.arrivals if is_new else place.arrival
        place[0] = producer[0]
        place.arrival = arrival
        if is_new:
            self.arrivals = self.arrivals + 1
            self.count = self.count + 1
            # As HashMap does, which never shrinks.
            if 4 * self.count > 3 * self.java_capacity:
                self.java_capacity = 2 * self.java_capacity

    @cython.overflowcheck(False)
    cdef void expire(self, int64_t now_ms) noexcept nogil:
        """Forget the producers that have appended nothing for ``expiration_ms`` (removeExpiredProducers)."""
        cdef int64_t i = 0
        cdef uint64_t mask, hole, next_
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

    # -- appends

    cdef int check(
        self, const uint8_t* data, const Batch* batch, int origin, ProducerUpdate* update
    ) noexcept nogil:
        """Check a batch that has its offsets; return the error code, and what to do after it is written.

        ``data`` is the whole batch; only a control batch is read from it.
        """
        cdef Producer* current
        cdef Producer* producer = &update.producer
        cdef KeptBatch kept
        cdef int32_t last = NO_SEQUENCE
        cdef int i
        update.is_due = update.is_duplicate = update.ends_txn = False
        if batch.producer_id < 0:
            return NONE
        if batch.base_sequence != NO_SEQUENCE:
            last = add_to_sequence(batch.base_sequence, batch.last_offset_delta)
        current = self.find(batch.producer_id)
        if current != NULL:
            producer[0] = current[0]
        else:
            if not self.reserve():
                return UNKNOWN_SERVER_ERROR
            memset(producer, 0, sizeof(Producer))
            producer.producer_id = batch.producer_id
            producer.epoch = NO_EPOCH
            producer.coordinator_epoch = -1
            producer.last_timestamp = NO_TIMESTAMP
            producer.txn_first_offset = NO_OFFSET
        if origin == CLIENT and batch.producer_epoch == producer.epoch:
            for i in range(producer.kept):
                if (
                    producer.batches[i].last_sequence == last
                    and first_sequence(&producer.batches[i]) == batch.base_sequence
                ):
                    update.is_duplicate = True
                    update.duplicate_last_offset = producer.batches[i].last_offset
                    update.duplicate_first_offset = (
                        producer.batches[i].last_offset - producer.batches[i].offset_delta
                    )
                    update.duplicate_timestamp = producer.batches[i].timestamp
                    return NONE
        if batch.attributes & CONTROL:
            return end_txn(data, batch, origin, update)
        if batch.producer_epoch < producer.epoch and origin != REPLICATION:
            return INVALID_PRODUCER_EPOCH
        # A producer that is not known may begin anywhere: its records may have been deleted.
        if origin == CLIENT and producer.epoch != NO_EPOCH:
            if batch.producer_epoch != producer.epoch:
                if batch.base_sequence != 0:
                    return OUT_OF_ORDER_SEQUENCE_NUMBER
            elif batch.base_sequence != add_to_sequence(last_sequence(producer), 1):
                return OUT_OF_ORDER_SEQUENCE_NUMBER
        if producer.txn_first_offset != NO_OFFSET and not batch.attributes & TRANSACTIONAL:
            return INVALID_TXN_STATE
        set_epoch(producer, batch.producer_epoch)
        kept.last_sequence = last
        kept.last_offset = batch.base_offset + batch.last_offset_delta
        kept.offset_delta = batch.last_offset_delta
        kept.timestamp = batch.max_timestamp
        keep(producer, kept)
        producer.last_timestamp = batch.max_timestamp
        if producer.txn_first_offset == NO_OFFSET and batch.attributes & TRANSACTIONAL:
            producer.txn_first_offset = batch.base_offset
        update.is_due = True
        return NONE

    cdef void update(self, const ProducerUpdate* update) noexcept nogil:
        """Store what ``check`` has found for the same batch."""
        if update.is_due:
            self.put(&update.producer)

    cdef int append(self, const uint8_t* data, const Batch* batch, int origin) noexcept nogil:
        """Check a batch and store what it does; return the error code. For batches that are written."""
        cdef ProducerUpdate update
        cdef int error = self.check(data, batch, origin, &update)
        if error == NONE:
            self.update(&update)
        return error

    cdef int64_t first_undecided(self) noexcept nogil:
        """Return the first offset of all transactions that have not ended, or -1."""
        cdef int64_t i, first = NO_OFFSET
        for i in range(self.capacity):
            if self.table[i].producer_id != FREE and self.table[i].txn_first_offset != NO_OFFSET:
                if first == NO_OFFSET or self.table[i].txn_first_offset < first:
                    first = self.table[i].txn_first_offset
        return first

    # -- snapshots

    cdef int encode(self, uint8_t** data, int64_t* size) noexcept nogil:
        """Write a snapshot into new memory, which the caller frees; return 0 or ENOMEM."""
        cdef int64_t i, n = 0
        cdef uint32_t low
        cdef uint8_t* p
        cdef const Producer* producer
        cdef const KeptBatch* last
        cdef Place* places = <Place*>malloc(max(1, self.count) * sizeof(Place))
        size[0] = SNAPSHOT_HEADER + SNAPSHOT_ENTRY * self.count
        data[0] = <uint8_t*>malloc(size[0])
        if places == NULL or data[0] == NULL:
            free(places)
            free(data[0])
            data[0] = NULL
            return ENOMEM
        for i in range(self.capacity):
            if self.table[i].producer_id != FREE:
                # Long.hashCode, and HashMap's place for it.
                low = <uint32_t>(self.table[i].producer_id ^ (self.table[i].producer_id >> 32))
                places[n].bucket = (low ^ (low >> 16)) & (self.java_capacity - 1)
                places[n].producer = &self.table[i]
                n += 1
        qsort(places, n, sizeof(Place), &by_place)
        p = data[0]
        put_i16(p, SNAPSHOT_VERSION)
        put_i32(p + SNAPSHOT_CHECKED, <int32_t>n)
        p += SNAPSHOT_HEADER
        for i in range(n):
            producer = places[i].producer
            last = last_batch(producer)
            put_i64(p, producer.producer_id)
            put_i16(p + 8, producer.epoch)
            put_i32(p + 10, last.last_sequence if last != NULL else NO_SEQUENCE)
            put_i64(p + 14, last.last_offset if last != NULL else NO_OFFSET)
            put_i32(p + 22, last.offset_delta if last != NULL else 0)
            put_i64(p + 26, producer.last_timestamp)
            put_i32(p + 34, producer.coordinator_epoch)
            put_i64(p + 38, producer.txn_first_offset)
            p += SNAPSHOT_ENTRY
        put_i32(data[0] + 2, <int32_t>checksum(data[0] + SNAPSHOT_CHECKED, size[0] - SNAPSHOT_CHECKED))
        free(places)
        return 0

    cdef int take_snapshot(self, int directory_fd, bint sync) noexcept nogil:
        """Write the snapshot file of ``end_offset``, if it is after the last one; return 0 or an errno."""
        cdef char name[64]
        cdef uint8_t* data
        cdef int64_t size
        cdef int fd, error
        if self.end_offset <= self.snapshot_offset:
            return 0
        error = check_disk()
        if not error:
            error = self.encode(&data, &size)
        if error:
            return error
        snprintf(name, sizeof(name), "%020lld.snapshot", <long long>self.end_offset)
        fd = openat(directory_fd, name, O_CREAT | O_TRUNC | O_WRONLY, 0o644)
        if fd < 0:
            error = errno
        if not error:
            error = write_all(fd, data, size)
        if not error and sync:
            error = flush_file(fd)
        if fd >= 0 and close(fd) < 0 and not error:
            error = errno
        free(data)
        if not error:
            self.snapshot_offset = self.end_offset
        return error

    # -- for Python code

    def append_batch(self, const uint8_t[::1] data not None, int origin):
        """Check a batch that has its offsets and, if it is right, store what it does.

        Returns an Appended: the error code, the CachedBatch that it is a duplicate of, and (first offset,
        whether it is aborted) of the transaction that it ends.
        """
        cdef Batch batch
        cdef ProducerUpdate update
        cdef int error
        if next_batch(&data[0] if data.shape[0] else NULL, data.shape[0], &batch) != NONE or batch.size == 0:
            raise ValueError("no whole batch")
        error = self.check(&data[0], &batch, origin, &update)
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
        count[0] = 0
        if copied != NULL:
            for i in range(self.capacity):
                if self.table[i].producer_id != FREE:
                    copied[count[0]] = self.table[i]
                    count[0] += 1
        return copied

    def first_undecided_offset(self):
        """Return the first offset of all transactions that have not ended, or -1."""
        return self.first_undecided()

    def remove_expired(self, int64_t now_ms):
        """Forget the producers that have appended nothing for ``expiration_ms`` and have no transaction."""
        self.expire(now_ms)

    def snapshot(self):
        """Return the bytes of a snapshot."""
        cdef uint8_t* data
        cdef int64_t size
        if self.encode(&data, &size):
            raise MemoryError()
        try:
            return PyBytes_FromStringAndSize(<char*>data, size)
        finally:
            free(data)

    def write_snapshot(self, int directory_fd, bint sync=True):
        """Write the snapshot file of ``end_offset``, if it is after the last one. Raises OSError."""
        cdef int error
        with nogil:
            error = self.take_snapshot(directory_fd, sync)
        if error:
            raise OSError(error, "cannot write a producer snapshot")

    def load(self, const uint8_t[::1] data not None, int64_t now_ms):
        """Add the producers of a snapshot that have not expired. Raises ValueError, and adds none then."""
        check_snapshot(data)
        if not self.add_snapshot(&data[0], now_ms):
            raise MemoryError()

    cdef bint add_snapshot(self, const uint8_t* data, int64_t now_ms) noexcept nogil:
        """Add the producers of a snapshot that ``check_snapshot`` has found valid; return whether there was memory."""
        cdef Producer producer
        cdef KeptBatch last
        cdef const uint8_t* p = data + SNAPSHOT_HEADER
        cdef int64_t i
        for i in range(get_i32(data + SNAPSHOT_CHECKED)):
            memset(&producer, 0, sizeof(Producer))
            producer.producer_id = get_i64(p)
            producer.epoch = get_i16(p + 8)
            last.last_sequence = get_i32(p + 10)
            last.last_offset = get_i64(p + 14)
            last.offset_delta = get_i32(p + 22)
            last.timestamp = producer.last_timestamp = get_i64(p + 26)
            producer.coordinator_epoch = get_i32(p + 34)
            producer.txn_first_offset = max(<int64_t>NO_OFFSET, get_i64(p + 38))
            p += SNAPSHOT_ENTRY
            if is_expired(&producer, now_ms, self.expiration_ms):
                continue
            if last.last_offset >= 0:
                keep(&producer, last)
            if not self.reserve():
                return False
            self.put(&producer)
        return True


def check_snapshot(const uint8_t[::1] data not None):
    """Raise ValueError for bytes that are no valid snapshot."""
    cdef int64_t i, count
    cdef const uint8_t* p = &data[0] if data.shape[0] else NULL
    if data.shape[0] < SNAPSHOT_HEADER:
        raise ValueError(f"a snapshot of {data.shape[0]} bytes")
    if get_i16(p) != SNAPSHOT_VERSION:
        raise ValueError(f"a snapshot of version {get_i16(p)}")
    if checksum(p + SNAPSHOT_CHECKED, data.shape[0] - SNAPSHOT_CHECKED) != <uint32_t>get_i32(p + 2):
        raise ValueError("the CRC of a snapshot is wrong")
    count = get_i32(p + SNAPSHOT_CHECKED)
    if not 0 <= count <= (data.shape[0] - SNAPSHOT_HEADER) // SNAPSHOT_ENTRY:
        raise ValueError(f"a snapshot of {count} producers in {data.shape[0]} bytes")
    for i in range(count):
        if get_i64(p + SNAPSHOT_HEADER + i * SNAPSHOT_ENTRY) < 0:
            raise ValueError("a snapshot with a negative producer id")


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
