"""One segment of a log: ``.log``, ``.index``, ``.timeindex`` and ``.txnindex``, without the GIL.

Layouts (big-endian), as ``LogSegment``, ``OffsetIndex`` and ``TimeIndex``:

    .log        record batches
    .index      relative offset int32, position int32: the last offset of an append, and where it begins
    .timeindex  timestamp int64, relative offset int32: the largest timestamp so far, and its offset
    .txnindex   version int16, producer id, first offset, last offset, last stable offset int64: an aborted transaction

An index has an entry for each index.interval.bytes. The indexes of the active segment have room for
segment.index.bytes from their first use on; they are cut to their entries when the segment is rolled or closed. All functions require the
mutex of the log, but ``acquire``, ``release`` and ``flush_segment``. They return 0, a positive errno, or one of the
negative results in the .pxd.
"""

from libc.errno cimport EINTR, EIO, EMFILE, ENFILE, ENOENT, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, strlen
from posix.fcntl cimport O_CLOEXEC, O_CREAT, O_RDWR, open
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close, pread

from ctrlchan._c.atomics cimport add_and_get
from ctrlchan._c.bytes cimport get_i32, get_i64, put_i32, put_i64
from ctrlchan.broker.log._batches cimport HEADER_BYTES, OFFSET_AND_LENGTH_BYTES, Batch, has_valid_crc, read_batch
from ctrlchan.broker.log._files cimport (
    PATH_BYTES,
    check_disk,
    delete_file,
    flush_file,
    rename_path,
    resize_file,
    write_at,
)

cdef enum:
    # Bytes of an entry.
    OFFSET_ENTRY = 8
    TIME_ENTRY = 12
    ABORTED_ENTRY = 34
    ABORTED_PRODUCER_AT = 2
    ABORTED_FIRST_AT = 10
    ABORTED_LAST_AT = 18
    ABORTED_STABLE_AT = 26
    # Where the relative offset of an entry is.
    OFFSET_AT = 0
    TIME_OFFSET_AT = 8
    # Bytes of a header up to the magic byte, and where that is.
    TO_MAGIC = 17
    MAGIC_AT = 16
    # The smallest length that Kafka's readers take for one (a record of format 0).
    SMALLEST_LENGTH = 14
    # Entries that a search reads at once.
    BLOCK = 256
    NOT_READ = -2
    FIRST_RECOVERY_BUFFER = 0x100000
    FILE_MODE = 0o644

cdef int64_t MAX_INT32 = 0x7fffffff
cdef int64_t LOWEST = -0x7fffffffffffffff
# A delta of int32 can be added to it.
cdef int64_t MOST_OFFSET = 0x7fffffff7fffffff


# -- files


cdef int pread_all(int fd, uint8_t* data, int64_t size, int64_t position) noexcept nogil:
    """Read ``size`` bytes at ``position``; EIO where the file ends before."""
    cdef ssize_t got
    while size > 0:
        got = pread(fd, data, size, position)
        if got < 0:
            if errno == EINTR:
                continue
            return errno
        if got == 0:
            return EIO
        data, size, position = data + got, size - got, position + got
    return DONE


cdef int open_file(Segment* segment, const char* kind, int flags, int* fd, int64_t* size) noexcept nogil:
    cdef char path[PATH_BYTES]
    cdef struct_stat status
    cdef int fault = check_disk() if flags & O_CREAT else 0
    if fault != 0:
        return fault
    snprintf(path, PATH_BYTES, "%s%s%s", segment.path, kind, segment.suffix)
    fd[0] = open(path, O_RDWR | O_CLOEXEC | flags, FILE_MODE)
    if fd[0] < 0:
        return errno
    if fstat(fd[0], &status) != 0:
        return errno
    size[0] = status.st_size
    return DONE


cdef char* path_of(const char* folder, int64_t base_offset) noexcept nogil:
    cdef size_t size = strlen(folder) + 22
    cdef char* path = <char*>malloc(size)
    if path != NULL:
        snprintf(path, size, "%s/%020lld", folder, <long long>base_offset)
    return path


cdef Segment* open_segment(
    const char* folder, int64_t base_offset, const char* suffix, int64_t index_interval_bytes, int64_t index_bytes,
    int64_t now_ms, int* error
) noexcept nogil:
    """Open the files of a segment, and create those that are not there. NULL: ``error`` says why.

    The caller has one reference.
    """
    cdef int64_t size
    cdef Segment* segment = <Segment*>calloc(1, sizeof(Segment))
    error[0] = NO_MEMORY
    if segment == NULL:
        return NULL
    segment.references = 1
    segment.fd = segment.offsets.fd = segment.times.fd = -1
    segment.base_offset = base_offset
    segment.index_interval_bytes, segment.index_bytes = index_interval_bytes, index_bytes
    segment.created_ms = now_ms
    segment.first_timestamp = NOT_READ
    forget_readers(segment)
    segment.path = path_of(folder, base_offset)
    if segment.path == NULL:
        release(segment)
        return NULL
    snprintf(segment.suffix, SUFFIX_BYTES, "%s", suffix)
    error[0] = open_file(segment, ".log", O_CREAT, &segment.fd, &segment.size)
    if error[0] == DONE:
        error[0] = open_index(segment, &segment.offsets, ".index", OFFSET_ENTRY)
    if error[0] == DONE:
        error[0] = open_index(segment, &segment.times, ".timeindex", TIME_ENTRY)
    if error[0] == DONE:
        error[0] = read_last_entries(segment)
    if error[0] == DONE:
        error[0] = count_aborted(segment)
    if error[0] != DONE:
        release(segment)
        return NULL
    close_indexes(segment)
    segment.max_timestamp = segment.last_indexed_timestamp
    segment.offset_of_max_timestamp = segment.offset_of_last_indexed_timestamp
    return segment


cdef int open_index(Segment* segment, Index* index, const char* kind, int32_t width) noexcept nogil:
    """Open an index file: one of another size than whole entries counts as its whole entries."""
    cdef int64_t size = 0
    cdef bint created
    cdef int error
    index.segment, index.kind, index.width = segment, kind, width
    error = open_file(segment, kind, 0, &index.fd, &size)
    created = error == ENOENT
    if created:
        error = open_file(segment, kind, O_CREAT, &index.fd, &size)
    # A new index of a segment that has records is incomplete until recovery; it has no entry.
    index.entries = index.capacity = <int32_t>(size // width)
    index.is_ragged = size % width != 0
    if created and segment.size == 0:
        index.capacity = <int32_t>(segment.index_bytes // width)
    return error


cdef void close_indexes(Segment* segment) noexcept nogil:
    """Give the descriptors of both indexes back, until they are used. What was written to them must be flushed before."""
    if segment.offsets.fd >= 0:
        close(segment.offsets.fd)
    if segment.times.fd >= 0:
        close(segment.times.fd)
    segment.offsets.fd = segment.times.fd = -1


cdef int use_index(Index* index) noexcept nogil:
    """Open the file of an index if it is not open, and give it room."""
    cdef int64_t size = 0
    cdef int error
    if index.fd >= 0:
        return DONE
    error = open_file(index.segment, index.kind, O_CREAT, &index.fd, &size)
    if error != DONE:
        return error
    return resize_index(index, <int64_t>index.capacity * index.width)


cdef void acquire(Segment* segment) noexcept nogil:
    """Keep the segment's files open until ``release``."""
    add_and_get(&segment.references, 1)


cdef void release(Segment* segment) noexcept nogil:
    """Give one reference back; the last one closes the files."""
    if add_and_get(&segment.references, -1) > 0:
        return
    if segment.fd >= 0:
        close(segment.fd)
    close_indexes(segment)
    free(segment.path)
    free(segment)


# -- index files


cdef inline bint no_descriptor(int error) noexcept nogil:
    """Whether no file can be opened at this moment. Appends and reads then go on without the index."""
    return error == EMFILE or error == ENFILE


cdef int resize_index(Index* index, int64_t size) noexcept nogil:
    """Give the file room for ``size`` bytes, rounded down to whole entries, and at least for those it has."""
    cdef int64_t capacity = max(size // index.width, <int64_t>index.entries)
    cdef int error
    index.capacity = <int32_t>capacity
    if index.fd < 0:
        return use_index(index) if index.is_ragged else DONE
    error = resize_file(index.fd, capacity * index.width)
    if error == DONE:
        index.is_ragged = False
    return error


cdef int cut_index(Index* index, int32_t entries) noexcept nogil:
    """Remove the entries from ``entries`` on. What they leave is zeros, so that no old entry comes back."""
    cdef int error
    if entries == index.entries and index.fd < 0:
        return DONE
    error = use_index(index)
    if error != DONE:
        return error
    index.entries = entries
    error = resize_file(index.fd, <int64_t>entries * index.width)
    return error if error != DONE else resize_file(index.fd, <int64_t>index.capacity * index.width)


cdef int read_entry(Index* index, int32_t slot, uint8_t* entry) noexcept nogil:
    cdef int error = use_index(index)
    return error if error != DONE else pread_all(index.fd, entry, index.width, <int64_t>slot * index.width)


cdef inline int64_t key_of(const uint8_t* entry, int at, bint wide) noexcept nogil:
    return get_i64(entry + at) if wide else get_i32(entry + at)


cdef int floor_entry(
    Index* index, int at, bint wide, int64_t target, int32_t* slot, uint8_t* entry
) noexcept nogil:
    """Find the last entry whose field at ``at`` is not above ``target``: ``slot`` (-1: not found) and its bytes."""
    # One more: the entry before them may be the one.
    cdef uint8_t block[(BLOCK + 1) * TIME_ENTRY]
    cdef int32_t low = 0, high = index.entries, middle, first
    cdef int error = use_index(index)
    if error != DONE:
        return error
    # The entry is in [low - 1, high - 1]: all before low are not above the target, all from high on are.
    while high - low > BLOCK:
        # Readers ask for new records most of the time: the last block comes first.
        middle = high - BLOCK if high == index.entries else (low + high) // 2
        error = read_entry(index, middle, entry)
        if error != DONE:
            return error
        if key_of(entry, at, wide) <= target:
            low = middle + 1
        else:
            high = middle
    first = low - 1 if low > 0 else 0
    error = pread_all(index.fd, block, <int64_t>(high - first) * index.width, <int64_t>first * index.width)
    if error != DONE:
        return error
    while low < high:
        middle = (low + high) // 2
        if key_of(block + (middle - first) * index.width, at, wide) <= target:
            low = middle + 1
        else:
            high = middle
    slot[0] = low - 1
    if low > 0:
        memcpy(entry, block + (low - 1 - first) * index.width, index.width)
    return DONE


cdef int read_last_entries(Segment* segment) noexcept nogil:
    """Read the last entries of both indexes."""
    cdef uint8_t entry[TIME_ENTRY]
    cdef int error
    segment.last_indexed_offset = segment.offset_of_last_indexed_timestamp = segment.base_offset
    segment.last_indexed_timestamp = -1
    if segment.offsets.entries > 0:
        error = read_entry(&segment.offsets, segment.offsets.entries - 1, entry)
        if error != DONE:
            return error
        segment.last_indexed_offset = segment.base_offset + get_i32(entry)
    if segment.times.entries > 0:
        error = read_entry(&segment.times, segment.times.entries - 1, entry)
        if error != DONE:
            return error
        segment.last_indexed_timestamp = get_i64(entry)
        segment.offset_of_last_indexed_timestamp = segment.base_offset + get_i32(entry + TIME_OFFSET_AT)
    return DONE


cdef bint indexes_are_sane(Segment* segment) noexcept nogil:
    """Whether both indexes have whole entries, the last of which can be true."""
    cdef uint8_t entry[TIME_ENTRY]
    if segment.offsets.is_ragged or segment.times.is_ragged:
        return False
    if segment.offsets.entries > 0:
        if segment.last_indexed_offset < segment.base_offset:
            return False
        if read_entry(&segment.offsets, segment.offsets.entries - 1, entry) != DONE:
            return False
        if not 0 < get_i32(entry + 4) < segment.size:
            return False
    if segment.times.entries > 0:
        if segment.offset_of_last_indexed_timestamp < segment.base_offset:
            return False
        if read_entry(&segment.times, 0, entry) != DONE or segment.last_indexed_timestamp < get_i64(entry):
            return False
    return True


cdef int index_offset(Segment* segment, int64_t offset, int64_t position) noexcept nogil:
    """Add an entry to the offset index, or nothing if the index is full: it is sparse."""
    cdef uint8_t entry[OFFSET_ENTRY]
    cdef int error
    if segment.offsets.entries >= segment.offsets.capacity:
        return DONE
    if segment.offsets.entries > 0 and offset <= segment.last_indexed_offset:
        return OUT_OF_ORDER
    error = use_index(&segment.offsets)
    if error != DONE:
        return error
    put_i32(entry, <int32_t>(offset - segment.base_offset))
    put_i32(entry + 4, <int32_t>position)
    error = write_at(segment.offsets.fd, entry, OFFSET_ENTRY, <int64_t>segment.offsets.entries * OFFSET_ENTRY)
    if error != DONE:
        return error
    segment.offsets.entries += 1
    segment.last_indexed_offset = offset
    return DONE


cdef int index_timestamp(Segment* segment, bint last) noexcept nogil:
    """Add the largest timestamp to the time index if it is new. ``last``: into the place kept for closing."""
    cdef uint8_t entry[TIME_ENTRY]
    cdef int64_t timestamp = segment.max_timestamp, offset = segment.offset_of_max_timestamp
    cdef int error
    if timestamp <= segment.last_indexed_timestamp:
        return DONE
    if segment.times.entries >= segment.times.capacity - (not last):
        return DONE
    if segment.times.entries > 0 and offset < segment.offset_of_last_indexed_timestamp:
        return OUT_OF_ORDER
    error = use_index(&segment.times)
    if error != DONE:
        return error
    put_i64(entry, timestamp)
    put_i32(entry + TIME_OFFSET_AT, <int32_t>(offset - segment.base_offset))
    error = write_at(segment.times.fd, entry, TIME_ENTRY, <int64_t>segment.times.entries * TIME_ENTRY)
    if error != DONE:
        return error
    segment.times.entries += 1
    segment.last_indexed_timestamp, segment.offset_of_last_indexed_timestamp = timestamp, offset
    return DONE


cdef int resize_indexes(Segment* segment, int64_t size) noexcept nogil:
    """Give both indexes room for ``size`` bytes."""
    cdef int error = resize_index(&segment.offsets, size)
    return error if error != DONE else resize_index(&segment.times, size)


cdef int make_inactive(Segment* segment) noexcept nogil:
    """Put the largest timestamp into the time index and cut both indexes to their entries."""
    cdef int error
    if segment.times.entries >= segment.times.capacity:
        error = resize_index(&segment.times, <int64_t>(segment.times.entries + 1) * TIME_ENTRY)
        if error != DONE:
            return error
    error = index_timestamp(segment, True)
    return error if error > 0 else resize_indexes(segment, 0)


# -- appending


cdef int append(
    Segment* segment, const uint8_t* data, int64_t size, int64_t first_offset, int64_t last_offset,
    int64_t max_timestamp, int64_t offset_of_max_timestamp
) noexcept nogil:
    """Write checked batches behind the others. After an error the file is as it was, if the disk lets it."""
    cdef int64_t position = segment.size
    cdef int error
    if not 0 <= last_offset - segment.base_offset <= MAX_INT32:
        return OVERFLOW
    error = write_at(segment.fd, data, size, position)
    if error == DONE:
        if max_timestamp > segment.max_timestamp:
            segment.max_timestamp, segment.offset_of_max_timestamp = max_timestamp, offset_of_max_timestamp
        if segment.bytes_since_index > segment.index_interval_bytes:
            error = index_offset(segment, last_offset, position)
            if error == DONE:
                error = index_timestamp(segment, False)
            if no_descriptor(error):
                error = DONE
            segment.bytes_since_index = 0
    if error != DONE:
        # The log goes offline after this error. If truncating fails, recovery truncates the file.
        resize_file(segment.fd, position)
        return error
    if position == 0:
        segment.first_timestamp = max_timestamp
    segment.bytes_since_index += size
    segment.size += size
    segment.recent_offset, segment.recent_position = first_offset, position
    return DONE


cdef bint should_roll(
    Segment* segment, int64_t more, int64_t max_bytes, int64_t max_ms, int64_t now_ms, int64_t max_timestamp,
    int64_t last_offset
) noexcept nogil:
    """Whether ``more`` bytes with these records must begin a new segment."""
    cdef Scan scan
    cdef Batch batch
    cdef int64_t position, waited
    if segment.size > max_bytes - more:
        return True
    if segment.size > 0:
        if segment.first_timestamp == NOT_READ:
            start_scan(&scan, segment.fd, 0, segment.size)
            if scan_next(&scan, &batch, &position) == DONE:
                segment.first_timestamp = batch.max_timestamp
        if segment.first_timestamp >= 0:
            waited = max_timestamp - segment.first_timestamp
        else:
            waited = now_ms - segment.created_ms
        if waited > max_ms - segment.roll_jitter_ms:
            return True
    return (
        segment.offsets.entries >= segment.offsets.capacity
        or segment.times.entries >= segment.times.capacity - 1
        or not 0 <= last_offset - segment.base_offset <= MAX_INT32
    )


# -- looking up


cdef void start_scan(Scan* scan, int fd, int64_t position, int64_t end) noexcept nogil:
    """Begin to read headers at ``position``; no byte from ``end`` on is looked at."""
    scan.fd, scan.position, scan.end = fd, position, end
    scan.buffered_from = scan.buffered = 0


cdef int scan_next(Scan* scan, Batch* batch, int64_t* position) noexcept nogil:
    """Read the next header and its position. NOT_FOUND: no whole batch is left."""
    cdef int64_t left = scan.end - scan.position
    cdef int32_t length
    cdef uint8_t* data
    cdef int error
    if left <= TO_MAGIC:
        return NOT_FOUND
    # The whole header, or what the file has of it.
    if (
        scan.position < scan.buffered_from
        or scan.position + min(left, <int64_t>HEADER_BYTES) > scan.buffered_from + scan.buffered
    ):
        scan.buffered_from = scan.position
        scan.buffered = min(left, <int64_t>sizeof(scan.buffer))
        error = pread_all(scan.fd, scan.buffer, scan.buffered, scan.position)
        if error != DONE:
            scan.buffered = 0
            return error
    data = scan.buffer + (scan.position - scan.buffered_from)
    length = get_i32(data + 8)
    if length < SMALLEST_LENGTH:
        return CORRUPT
    if length > left - OFFSET_AND_LENGTH_BYTES:
        return NOT_FOUND
    if data[MAGIC_AT] < 2:
        return OLD_FORMAT
    if data[MAGIC_AT] > 2 or length + OFFSET_AND_LENGTH_BYTES < HEADER_BYTES:
        return CORRUPT
    read_batch(data, batch)
    if not 0 <= batch.base_offset <= MOST_OFFSET or batch.last_offset_delta < 0:
        return CORRUPT
    position[0] = scan.position
    scan.position += batch.size
    return DONE


cdef void forget_readers(Segment* segment) noexcept nogil:
    """Forget all positions: batches have moved or are gone."""
    cdef int32_t i
    segment.recent_offset = -1
    for i in range(READERS):
        segment.readers[i].offset = -1


cdef void remember_reader(Segment* segment, int64_t offset, int64_t next_offset, int64_t position) noexcept nogil:
    """Note that a reader of ``offset`` goes on at ``next_offset``, which the batch at ``position`` has; -1: elsewhere."""
    cdef int32_t i
    for i in range(READERS):
        if segment.readers[i].offset == offset:
            break
    else:
        i = segment.next_reader
        segment.next_reader = (i + 1) % READERS
    segment.readers[i].offset, segment.readers[i].position = next_offset, position


cdef int start_near(Segment* segment, int64_t offset, Scan* scan) noexcept nogil:
    """Begin to read headers at the nearest known batch that does not begin above ``offset``."""
    cdef uint8_t entry[TIME_ENTRY]
    cdef Batch batch
    cdef int64_t at
    cdef int32_t slot = -1
    cdef int error
    start_scan(scan, segment.fd, 0, segment.size)
    if 0 <= segment.recent_offset <= offset:
        scan.position = segment.recent_position
        return DONE
    for slot in range(READERS):
        if segment.readers[slot].offset == offset:
            scan.position = segment.readers[slot].position
            return DONE
    if segment.offsets.entries == 0:
        return DONE
    slot = -1
    error = floor_entry(&segment.offsets, OFFSET_AT, False, offset - segment.base_offset, &slot, entry)
    if error != DONE or slot < 0:
        return DONE if no_descriptor(error) else error
    at = get_i32(entry + 4)
    # An index is not trusted: where no such batch begins, the segment is read from its start.
    if 0 <= at < segment.size:
        scan.position = at
        if scan_next(scan, &batch, &at) != DONE or not segment.base_offset <= batch.base_offset <= offset:
            at = 0
        scan.position = at
    return DONE


cdef int scan_to(Scan* scan, int64_t offset, Batch* batch, int64_t* position) noexcept nogil:
    """Go on to the first batch whose last offset is not below ``offset``."""
    cdef int error = DONE
    while True:
        error = scan_next(scan, batch, position)
        if error != DONE or batch.base_offset + batch.last_offset_delta >= offset:
            return error


cdef int find_offset(Segment* segment, int64_t offset, Batch* batch, int64_t* position) noexcept nogil:
    """Find the first batch whose last offset is not below ``offset``."""
    cdef Scan scan
    cdef int error = start_near(segment, offset, &scan)
    return error if error != DONE else scan_to(&scan, offset, batch, position)


cdef int find_batches(
    Segment* segment, int64_t offset, int64_t max_bytes, int64_t limit, int64_t limit_offset, bint whole_first,
    int64_t* position, int64_t* end
) noexcept nogil:
    """Find the whole batches from the one that holds ``offset``, at most ``max_bytes``, none from ``limit`` on.

    ``limit_offset``: of the batch at ``limit``, -1 where it is in another segment. ``whole_first``: the first batch may
    have more than ``max_bytes``. ``end`` is ``position`` if no batch fits.
    """
    cdef Scan scan
    cdef Batch batch
    cdef int64_t at, next_offset
    cdef int error = start_near(segment, offset, &scan)
    if error == DONE:
        error = scan_to(&scan, offset, &batch, position)
    if error != DONE:
        return error
    end[0] = position[0]
    if whole_first:
        max_bytes = max(max_bytes, <int64_t>batch.size)
    if position[0] >= limit or max_bytes < batch.size:
        return DONE
    if max_bytes >= limit - position[0]:
        end[0] = limit
        remember_reader(segment, offset, limit_offset, limit)
        return DONE
    next_offset = batch.base_offset + batch.last_offset_delta + 1
    scan.end = position[0] + max_bytes
    if max_bytes > <int64_t>sizeof(scan.buffer):
        error = skip_by_index(segment, &scan, &next_offset)
    while error == DONE:
        end[0] = scan.position
        error = scan_next(&scan, &batch, &at)
        if error == DONE:
            next_offset = batch.base_offset + batch.last_offset_delta + 1
    if error == NOT_FOUND:
        remember_reader(segment, offset, next_offset, end[0])
        return DONE
    return error


cdef int skip_by_index(Segment* segment, Scan* scan, int64_t* next_offset) noexcept nogil:
    """Go on at the last batch before the end of ``scan`` that the offset index has, if it is ahead."""
    cdef uint8_t entry[OFFSET_ENTRY]
    cdef Batch batch
    cdef int64_t at, before = scan.position, end = scan.end
    cdef int32_t slot = -1
    cdef int error = DONE
    if segment.offsets.entries > 0:
        error = floor_entry(&segment.offsets, 4, False, end, &slot, entry)
    if error != DONE or slot < 0 or not before < get_i32(entry + 4) <= end:
        return DONE if no_descriptor(error) else error
    scan.position, scan.end = get_i32(entry + 4), segment.size
    if (
        scan_next(scan, &batch, &at) == DONE
        and batch.base_offset + batch.last_offset_delta <= segment.base_offset + get_i32(entry)
    ):
        before, next_offset[0] = at, batch.base_offset
    scan.position, scan.end = before, end
    return DONE


cdef int offset_above(Segment* segment, int64_t position, int64_t* offset) noexcept nogil:
    """Find an offset that all records before ``position`` are below, by the offset index; -1: the index ends before."""
    cdef uint8_t entry[OFFSET_ENTRY]
    cdef int32_t slot = -1
    cdef int error = DONE
    offset[0] = -1
    if segment.offsets.entries > 0:
        error = floor_entry(&segment.offsets, 4, False, position - 1, &slot, entry)
    if error == DONE and slot + 1 < segment.offsets.entries:
        error = read_entry(&segment.offsets, slot + 1, entry)
        if error == DONE:
            offset[0] = segment.base_offset + get_i32(entry)
    return error


cdef int find_timestamp(Segment* segment, int64_t timestamp, int64_t from_offset, int64_t* position) noexcept nogil:
    """Find where to begin the search for the first record of ``timestamp`` or later at ``from_offset`` or above."""
    cdef uint8_t entry[TIME_ENTRY]
    cdef Scan scan
    cdef int32_t slot = -1
    cdef int64_t offset = segment.base_offset
    cdef int error
    if segment.times.entries > 0:
        error = floor_entry(&segment.times, 0, True, timestamp, &slot, entry)
        if error != DONE and not no_descriptor(error):
            return error
        if slot >= 0:
            offset += get_i32(entry + TIME_OFFSET_AT)
    error = start_near(segment, max(offset, from_offset), &scan)
    position[0] = scan.position
    return error


cdef int next_offset_of(Segment* segment, int64_t* offset) noexcept nogil:
    """Find the offset behind the last whole batch: the segment's base offset if it has no batch."""
    cdef int64_t end
    return find_end(segment, offset, &end)


cdef bint ends_whole(Segment* segment) noexcept nogil:
    """Whether the file ends where its last batch does."""
    cdef int64_t offset, end
    return find_end(segment, &offset, &end) == DONE and end == segment.size


cdef int find_end(Segment* segment, int64_t* offset, int64_t* end) noexcept nogil:
    """Find the offset behind the last whole batch, and where that batch ends."""
    cdef Scan scan
    cdef Batch batch
    cdef int64_t position
    cdef int error = start_near(segment, segment.last_indexed_offset, &scan)
    if error != DONE:
        return error
    offset[0] = segment.base_offset
    while True:
        error = scan_next(&scan, &batch, &position)
        if error == NOT_FOUND:
            end[0] = scan.position
            return DONE
        if error != DONE:
            return error
        offset[0] = batch.base_offset + batch.last_offset_delta + 1


cdef int64_t largest_timestamp(Segment* segment) noexcept nogil:
    """Return the largest timestamp, or when the file was written last where no record has one."""
    cdef struct_stat status
    if segment.max_timestamp >= 0:
        return segment.max_timestamp
    if fstat(segment.fd, &status) != 0:
        return 0
    return <int64_t>status.st_mtime * 1000


# -- truncation and recovery


cdef int truncate_index(Segment* segment, Index* index, int at, int64_t offset) noexcept nogil:
    """Remove the entries of ``offset`` and above."""
    cdef uint8_t entry[TIME_ENTRY]
    cdef int32_t slot = -1
    cdef int64_t relative = offset - segment.base_offset
    cdef int error
    if index.entries == 0:
        return DONE
    error = floor_entry(index, at, False, relative, &slot, entry)
    if error != DONE:
        return error
    if slot >= 0 and get_i32(entry + at) == relative:
        slot -= 1
    return cut_index(index, slot + 1)


cdef int truncate_segment(Segment* segment, int64_t offset, int64_t now_ms, int64_t* removed) noexcept nogil:
    """Remove the batches that hold ``offset`` or more. The segment is the active one afterwards."""
    cdef Batch batch
    cdef Scan scan
    cdef int64_t position = segment.size
    cdef int found = find_offset(segment, offset, &batch, &position)
    cdef int error
    removed[0] = 0
    if found != DONE and found != NOT_FOUND:
        # Recovery truncates a segment to its first offset where no header can be read.
        if offset > segment.base_offset:
            return found
        position = 0
    forget_readers(segment)
    error = truncate_index(segment, &segment.offsets, OFFSET_AT, offset)
    if error == DONE:
        error = truncate_index(segment, &segment.times, TIME_OFFSET_AT, offset)
    if error == DONE:
        error = truncate_aborted(segment, offset)
    if error == DONE:
        error = resize_indexes(segment, segment.index_bytes)
    if error == DONE:
        error = read_last_entries(segment)
    if error != DONE:
        return error
    if found != NOT_FOUND:
        error = resize_file(segment.fd, position)
        if error != DONE:
            return error
        removed[0] = segment.size - position
        segment.size = position
    if segment.size == 0:
        segment.created_ms, segment.first_timestamp = now_ms, NOT_READ
    segment.bytes_since_index = 0
    if segment.max_timestamp < 0:
        return DONE
    # The largest timestamp that is left: of the index, or of the batches behind its last entry.
    segment.max_timestamp = segment.last_indexed_timestamp
    segment.offset_of_max_timestamp = segment.offset_of_last_indexed_timestamp
    error = start_near(segment, segment.offset_of_last_indexed_timestamp, &scan)
    if error != DONE:
        return error
    while scan_next(&scan, &batch, &position) == DONE:
        if batch.max_timestamp > segment.max_timestamp:
            segment.max_timestamp = batch.max_timestamp
            segment.offset_of_max_timestamp = batch.base_offset + batch.last_offset_delta
    return DONE


cdef int recover_segment(Segment* segment, OnBatch on_batch, void* context, int64_t* removed) noexcept nogil:
    """Read all batches, write both indexes anew, and truncate the file at the first invalid batch.

    ``on_batch`` gets each valid batch with its bytes. Any result but 0 ends the recovery: CORRUPT after this
    batch, as Kafka does it for a control record that cannot be read; the others as an error.
    """
    cdef Scan scan
    cdef Batch batch
    cdef int64_t position = 0, valid = 0, indexed = 0, last, capacity = FIRST_RECOVERY_BUFFER
    cdef int64_t buffered_from = 0, buffered = 0
    cdef uint8_t* buffer
    cdef uint8_t* larger
    cdef int error, ending = DONE
    error = cut_index(&segment.offsets, 0)
    if error == DONE:
        error = cut_index(&segment.times, 0)
    if error == DONE:
        error = truncate_aborted(segment, LOWEST)
    if error == DONE:
        error = resize_indexes(segment, segment.index_bytes)
    if error == DONE:
        error = read_last_entries(segment)
    if error != DONE:
        return error
    segment.max_timestamp, segment.offset_of_max_timestamp = -1, segment.base_offset
    forget_readers(segment)
    segment.first_timestamp = NOT_READ
    buffer = <uint8_t*>malloc(capacity)
    if buffer == NULL:
        return NO_MEMORY
    start_scan(&scan, segment.fd, 0, segment.size)
    while True:
        ending = scan_next(&scan, &batch, &position)
        if ending != DONE:
            break
        if position + batch.size > buffered_from + buffered:
            if batch.size > capacity:
                larger = <uint8_t*>realloc(buffer, batch.size)
                if larger == NULL:
                    ending = NO_MEMORY
                    break
                buffer, capacity = larger, batch.size
            buffered_from, buffered = position, min(capacity, segment.size - position)
            ending = pread_all(segment.fd, buffer, buffered, position)
            if ending != DONE:
                break
        if not has_valid_crc(buffer + (position - buffered_from), &batch):
            ending = CORRUPT
            break
        last = batch.base_offset + batch.last_offset_delta
        if not 0 <= last - segment.base_offset <= MAX_INT32:
            ending = OVERFLOW
            break
        if batch.max_timestamp > segment.max_timestamp:
            segment.max_timestamp, segment.offset_of_max_timestamp = batch.max_timestamp, last
        if valid - indexed > segment.index_interval_bytes:
            ending = index_offset(segment, last, valid)
            if ending == DONE:
                ending = index_timestamp(segment, False)
            if ending != DONE:
                break
            indexed = valid
        valid += batch.size
        ending = on_batch(context, buffer + (position - buffered_from), &batch)
        if ending != DONE:
            break
    free(buffer)
    # A file that ends within a batch, and a batch that is not valid, are what recovery is for. A log that really has
    # batches of an old format was refused when it was opened.
    if ending != NOT_FOUND and ending != CORRUPT and ending != OLD_FORMAT:
        return ending
    removed[0] = segment.size - valid
    if removed[0] > 0:
        error = resize_file(segment.fd, valid)
        if error != DONE:
            return error
    segment.size = valid
    segment.bytes_since_index = 0
    return make_inactive(segment)


# -- flushing and renaming


cdef int flush_segment(Segment* segment) noexcept nogil:
    """Make all bytes survive a crash of the machine. A reference is enough; the mutex is not needed."""
    cdef int error = flush_file(segment.fd)
    # Nothing was written to an index that was not opened.
    if error == DONE and segment.offsets.fd >= 0:
        error = flush_file(segment.offsets.fd)
    if error == DONE and segment.times.fd >= 0:
        error = flush_file(segment.times.fd)
    return error


cdef int change_suffix(Segment* segment, const char* suffix) noexcept nogil:
    """Rename all files: ``suffix`` takes the place of the present one. A missing file is no error."""
    cdef char old[PATH_BYTES]
    cdef char new[PATH_BYTES]
    cdef const char** kinds = [".log", ".index", ".timeindex", ".txnindex"]
    cdef int i, error
    for i in range(4):
        snprintf(old, PATH_BYTES, "%s%s%s", segment.path, kinds[i], segment.suffix)
        snprintf(new, PATH_BYTES, "%s%s%s", segment.path, kinds[i], suffix)
        error = rename_path(old, new)
        if error != DONE and error != ENOENT:
            return error
    snprintf(segment.suffix, SUFFIX_BYTES, "%s", suffix)
    return DONE


cdef int add_aborted(
    Segment* segment, int64_t producer_id, int64_t first_offset, int64_t last_offset, int64_t last_stable_offset
) noexcept nogil:
    """Add an aborted transaction to the transaction index; the file is there from the first one on."""
    cdef uint8_t entry[ABORTED_ENTRY]
    cdef int64_t size = 0
    cdef int fd = -1
    cdef int error = open_file(segment, ".txnindex", O_CREAT, &fd, &size)
    if error == DONE:
        entry[0] = entry[1] = 0
        put_i64(entry + ABORTED_PRODUCER_AT, producer_id)
        put_i64(entry + ABORTED_FIRST_AT, first_offset)
        put_i64(entry + ABORTED_LAST_AT, last_offset)
        put_i64(entry + ABORTED_STABLE_AT, last_stable_offset)
        error = write_at(fd, entry, ABORTED_ENTRY, size - size % ABORTED_ENTRY)
        segment.aborted = size // ABORTED_ENTRY + 1
    if fd >= 0:
        close(fd)
    return error


cdef int count_aborted(Segment* segment) noexcept nogil:
    """Note how many aborted transactions the transaction index has."""
    cdef int64_t size = 0
    cdef int fd = -1
    cdef int error = open_file(segment, ".txnindex", 0, &fd, &size)
    segment.aborted = size // ABORTED_ENTRY
    if fd >= 0:
        close(fd)
    return DONE if error == ENOENT else error


cdef bint aborted_are_sane(Segment* segment) noexcept nogil:
    """Whether every entry of the transaction index can be true."""
    cdef uint8_t entry[ABORTED_ENTRY]
    cdef int64_t size = 0, i
    cdef int fd = -1
    cdef bint sane = segment.aborted == 0 or open_file(segment, ".txnindex", 0, &fd, &size) == DONE
    for i in range(segment.aborted if sane else 0):
        if pread_all(fd, entry, ABORTED_ENTRY, i * ABORTED_ENTRY) != DONE or entry[0] != 0 or entry[1] != 0:
            sane = False
        elif get_i64(entry + ABORTED_LAST_AT) < segment.base_offset:
            sane = False
    if fd >= 0:
        close(fd)
    return sane


cdef int read_aborted(
    Segment* segment, int64_t from_offset, int64_t end_offset, AbortedEntry** found, int32_t* count, bint* is_last
) noexcept nogil:
    """Append the aborted transactions with records between the offsets to ``found``, which the caller frees.

    ``is_last``: no later segment has more of them. Nothing is read where the transaction index is empty.
    """
    cdef AbortedEntry* grown
    cdef AbortedEntry* one
    cdef uint8_t* entries
    cdef uint8_t* entry
    cdef int64_t size = 0, i
    cdef int fd = -1
    cdef int error
    is_last[0] = False
    if segment.aborted == 0:
        return DONE
    grown = <AbortedEntry*>realloc(found[0], (count[0] + segment.aborted) * sizeof(AbortedEntry))
    if grown == NULL:
        return NO_MEMORY
    found[0] = grown
    entries = <uint8_t*>malloc(segment.aborted * ABORTED_ENTRY)
    if entries == NULL:
        return NO_MEMORY
    error = open_file(segment, ".txnindex", 0, &fd, &size)
    if error == DONE:
        error = pread_all(fd, entries, segment.aborted * ABORTED_ENTRY, 0)
    for i in range(segment.aborted if error == DONE else 0):
        entry = entries + i * ABORTED_ENTRY
        one = &grown[count[0]]
        one.producer_id = get_i64(entry + ABORTED_PRODUCER_AT)
        one.first_offset = get_i64(entry + ABORTED_FIRST_AT)
        one.last_offset = get_i64(entry + ABORTED_LAST_AT)
        one.last_stable_offset = get_i64(entry + ABORTED_STABLE_AT)
        if one.last_offset >= from_offset and one.first_offset < end_offset:
            count[0] += 1
        if one.last_stable_offset >= end_offset:
            is_last[0] = True
            break
    if fd >= 0:
        close(fd)
    free(entries)
    return error


cdef int truncate_aborted(Segment* segment, int64_t offset) noexcept nogil:
    """Remove the aborted transactions that end at ``offset`` or above from the transaction index, if there is one."""
    cdef uint8_t entry[ABORTED_ENTRY]
    cdef int64_t size = 0, position = 0
    cdef int fd = -1
    cdef int error = open_file(segment, ".txnindex", 0, &fd, &size)
    while error == DONE and position + ABORTED_ENTRY <= size:
        error = pread_all(fd, entry, ABORTED_ENTRY, position)
        if error == DONE and get_i64(entry + ABORTED_LAST_AT) >= offset:
            break
        position += ABORTED_ENTRY
    if error == DONE and position < size:
        error = resize_file(fd, position)
    segment.aborted = position // ABORTED_ENTRY
    if fd >= 0:
        close(fd)
    return DONE if error == ENOENT else error


cdef int remove_files(const char* folder, int64_t base_offset) noexcept nogil:
    """Delete the files of a segment that is not in the log: what a crash has left."""
    cdef char file[PATH_BYTES]
    cdef const char** kinds = [".log", ".index", ".timeindex", ".txnindex"]
    cdef int i
    cdef int error = DONE
    for i in range(4):
        snprintf(file, PATH_BYTES, "%s/%020lld%s", folder, <long long>base_offset, kinds[i])
        if error == DONE:
            error = delete_file(file)
    return error


cdef int move_segment(Segment* segment, const char* folder) noexcept nogil:
    """Record that the folder of the segment has a new name."""
    cdef char* path = path_of(folder, segment.base_offset)
    if path == NULL:
        return NO_MEMORY
    free(segment.path)
    segment.path = path
    return DONE
