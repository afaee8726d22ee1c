"""Snapshots of the producers of a log: what they look like, and their files, ``<end offset>.snapshot``.

Layout, big-endian: version int16 (1), CRC-32C uint32 of all bytes after itself, count int32; for each producer: id int64,
epoch int16, last sequence int32, last offset int64, offset delta int32, timestamp int64, coordinator epoch int32, first
offset of the transaction int64 (-1 without one). Their order is that of Kafka's hash map, so that the same appends give
the same bytes; not where a map of 64 buckets or more has nine producers in one, of which Java makes a tree. Source:
``ProducerStateManager``.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport ENAMETOOLONG, ENOMEM, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memset
from posix.fcntl cimport O_CLOEXEC, O_CREAT, O_TRUNC, O_WRONLY, open
from posix.unistd cimport close

from ctrlchan._c.bytes cimport get_i16, get_i32, get_i64, put_i16, put_i32, put_i64
from ctrlchan.broker.log._batches cimport checksum
from ctrlchan.broker.log._files cimport PATH_BYTES, check_disk, flush_file, write_all
from ctrlchan.broker.log._parts cimport require_mutex
from ctrlchan.broker.log._producers cimport (
    KeptBatch,
    Producer,
    ProducerStates,
    is_expired,
    java_bucket,
    keep,
    last_batch,
)

import os

from ctrlchan.broker.log import names

cdef enum:
    FREE = -1
    NONE_YET = -1

    VERSION = 1
    HEADER = 10
    # The CRC covers all from here on.
    CHECKED = 6
    ENTRY = 46
    FILE_MODE = 0o644


# -- bytes


cdef struct Place:
    int64_t bucket
    const Producer* producer


cdef int by_place(const void* left, const void* right) noexcept nogil:
    cdef const Place* a = <const Place*>left
    cdef const Place* b = <const Place*>right
    if a.bucket != b.bucket:
        return -1 if a.bucket < b.bucket else 1
    return -1 if a.producer.arrival < b.producer.arrival else 1


cdef int encode(ProducerStates states, uint8_t** data, int64_t* size) noexcept nogil:
    """Write a snapshot into new memory, which the caller frees; return 0 or ENOMEM."""
    cdef int64_t i, n = 0
    cdef uint8_t* p
    cdef const Producer* producer
    cdef const KeptBatch* last
    cdef Place* places = <Place*>malloc(max(1, states.count) * sizeof(Place))
    size[0] = HEADER + ENTRY * states.count
    data[0] = <uint8_t*>malloc(size[0])
    if places == NULL or data[0] == NULL:
        free(places)
        free(data[0])
        data[0] = NULL
        return ENOMEM
    for i in range(states.capacity):
        if states.table[i].producer_id != FREE:
            places[n].bucket = java_bucket(states.table[i].producer_id, states.java_capacity)
            places[n].producer = &states.table[i]
            n += 1
    qsort(places, n, sizeof(Place), &by_place)
    p = data[0]
    put_i16(p, VERSION)
    put_i32(p + CHECKED, <int32_t>n)
    p += HEADER
    for i in range(n):
        producer = places[i].producer
        last = last_batch(producer)
        put_i64(p, producer.producer_id)
        put_i16(p + 8, producer.epoch)
        put_i32(p + 10, last.last_sequence if last != NULL else NONE_YET)
        put_i64(p + 14, last.last_offset if last != NULL else NONE_YET)
        put_i32(p + 22, last.offset_delta if last != NULL else 0)
        put_i64(p + 26, producer.last_timestamp)
        put_i32(p + 34, producer.coordinator_epoch)
        put_i64(p + 38, producer.txn_first_offset)
        p += ENTRY
    put_i32(data[0] + 2, <int32_t>checksum(data[0] + CHECKED, size[0] - CHECKED))
    free(places)
    return 0


def encode_snapshot(ProducerStates states not None):
    """Return the bytes of a snapshot."""
    cdef uint8_t* data
    cdef int64_t size
    if encode(states, &data, &size):
        raise MemoryError()
    try:
        return PyBytes_FromStringAndSize(<char*>data, size)
    finally:
        free(data)


def check_snapshot(const uint8_t[::1] data not None):
    """Raise ValueError for bytes that are no valid snapshot."""
    cdef int64_t i, count
    cdef const uint8_t* p = &data[0] if data.shape[0] else NULL
    if data.shape[0] < HEADER:
        raise ValueError(f"a snapshot of {data.shape[0]} bytes")
    if get_i16(p) != VERSION:
        raise ValueError(f"a snapshot of version {get_i16(p)}")
    if checksum(p + CHECKED, data.shape[0] - CHECKED) != <uint32_t>get_i32(p + 2):
        raise ValueError("the CRC of a snapshot is wrong")
    count = get_i32(p + CHECKED)
    if not 0 <= count <= (data.shape[0] - HEADER) // ENTRY:
        raise ValueError(f"a snapshot of {count} producers in {data.shape[0]} bytes")
    for i in range(count):
        if get_i64(p + HEADER + i * ENTRY) < 0:
            raise ValueError("a snapshot with a negative producer id")


def load_snapshot(ProducerStates states not None, const uint8_t[::1] data not None, int64_t now_ms):
    """Add the producers of a snapshot that have not expired. Raises ValueError, and adds none then."""
    check_snapshot(data)
    if add_snapshot(states, &data[0], now_ms):
        raise MemoryError()


cdef int add_snapshot(ProducerStates states, const uint8_t* data, int64_t now_ms) noexcept nogil:
    cdef Producer producer
    cdef KeptBatch last
    cdef const uint8_t* p = data + HEADER
    cdef int64_t i
    require_mutex(states.mutex)
    for i in range(get_i32(data + CHECKED)):
        memset(&producer, 0, sizeof(Producer))
        producer.producer_id = get_i64(p)
        producer.epoch = get_i16(p + 8)
        last.last_sequence = get_i32(p + 10)
        last.last_offset = get_i64(p + 14)
        last.offset_delta = get_i32(p + 22)
        last.timestamp = producer.last_timestamp = get_i64(p + 26)
        producer.coordinator_epoch = get_i32(p + 34)
        producer.txn_first_offset = max(<int64_t>NONE_YET, get_i64(p + 38))
        p += ENTRY
        if is_expired(&producer, now_ms, states.expiration_ms):
            continue
        if last.last_offset >= 0:
            keep(&producer, last)
        if not states.load(&producer):
            return ENOMEM
    return 0 if states.sort_open() else ENOMEM


# -- files


cdef int take_snapshot(ProducerStates states, const char* folder, bint sync) noexcept nogil:
    cdef char path[PATH_BYTES]
    cdef uint8_t* data
    cdef int64_t size
    cdef int fd, error
    require_mutex(states.mutex)
    if states.end_offset <= states.snapshot_offset:
        return 0
    if snprintf(path, PATH_BYTES, "%s/%020lld.snapshot", folder, <long long>states.end_offset) >= PATH_BYTES:
        return ENAMETOOLONG
    error = check_disk()
    if not error:
        error = encode(states, &data, &size)
    if error:
        return error
    fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, FILE_MODE)
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
        states.snapshot_offset = states.end_offset
    return error


def write_snapshot(ProducerStates states not None, folder):
    """Write the snapshot file of ``end_offset``, if it is after the last one. Raises OSError."""
    cdef bytes path = os.fsencode(folder)
    cdef int error = take_snapshot(states, path, True)
    if error:
        raise OSError(error, os.strerror(error), path)


def path_of(folder, offset):
    """Return the path of the snapshot of an offset."""
    return folder / f"{names.segment_name(offset)}{names.SNAPSHOT_SUFFIX}"


def snapshot_offsets(folder):
    """Return the offsets of all snapshot files, ascending."""
    return sorted(
        offset
        for name in os.listdir(folder)
        if name.endswith(names.SNAPSHOT_SUFFIX) and (offset := names.offset_of(name)) is not None
    )


def remove_snapshots(folder, offsets):
    """Delete the snapshot files of some offsets."""
    for offset in offsets:
        path_of(folder, offset).unlink(missing_ok=True)


def remove_stray_snapshots(folder, bases):
    """Delete the snapshots where no segment begins, but the last one where that is behind all segments."""
    stray = [offset for offset in snapshot_offsets(folder) if offset not in bases]
    last = max(stray, default=-1)
    remove_snapshots(folder, [offset for offset in stray if offset != last or last < max(bases)])


def flush_snapshots(folder, first, end):
    """Flush the snapshots from the offset ``first`` to ``end``, which is the last one."""
    for offset in snapshot_offsets(folder):
        if first <= offset <= end:
            with path_of(folder, offset).open("rb") as file:
                os.fsync(file.fileno())


cdef tuple choose_snapshot(folder, int64_t start_offset, int64_t end_offset, bint is_read):
    """Other snapshots, which are not between the offsets, are deleted, and, as in Kafka, invalid ones that are read."""
    offsets = snapshot_offsets(folder)
    snapshots = [offset for offset in offsets if start_offset < offset <= end_offset]
    remove_snapshots(folder, [offset for offset in offsets if not start_offset < offset <= end_offset])
    while snapshots:
        newest = snapshots.pop()
        if not is_read:
            return newest, None
        path = path_of(folder, newest)
        data = path.read_bytes()
        try:
            check_snapshot(data)
        except ValueError:
            # The one before it, or all batches, will do.
            path.unlink()
            continue
        return newest, data
    return -1, None
