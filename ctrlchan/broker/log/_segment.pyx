"""One segment of a log: the batches in its ``.log`` file, and where they begin, without the GIL.

Source: ``LogSegment``. Its indexes (``_indexes``) have an entry for each index.interval.bytes; its aborted transactions are
in ``_transaction_index``. All functions require the mutex of the log, but ``acquire``, ``release`` and ``flush_segment``.
They return a result: 0, a positive errno, or one of the negative numbers in ``_parts.pxd``.
"""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from posix.fcntl cimport O_CREAT
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close

from ctrlchan._c.atomics cimport add_and_get
from ctrlchan._c.bytes cimport get_i32
from ctrlchan.broker.log._batches cimport (
    FORMAT_2,
    HEADER_BYTES,
    MAGIC_AT,
    OFFSET_AND_LENGTH_BYTES,
    Batch,
    has_valid_crc,
    header_bytes,
    read_batch,
)
from ctrlchan.broker.log._files cimport SUFFIX_BYTES, flush_file, open_file, read_at, reserve_file, resize_file, set_path, write_at
from ctrlchan.broker.log._indexes cimport (
    OffsetEntry,
    add_entries,
    are_full,
    close_indexes,
    finish_indexes,
    floor_by_offset,
    floor_by_position,
    floor_by_timestamp,
    flush_indexes,
    no_descriptor,
    open_indexes,
    resize_indexes,
    truncate_indexes,
)
from ctrlchan.broker.log._parts cimport CORRUPT, DONE, NOT_FOUND, NO_MEMORY, OVERFLOW
from ctrlchan.broker.log._transaction_index cimport (
    close_transactions,
    flush_transactions,
    open_transactions,
    truncate_aborted,
)

cdef enum:
    # Bytes of a header up to the magic byte.
    TO_MAGIC = 17
    # The smallest length that Kafka's readers take for one (a record of format 0).
    SMALLEST_LENGTH = 14
    NOT_READ = -2
    FIRST_RECOVERY_BUFFER = 0x100000

cdef int64_t MAX_INT32 = 0x7fffffff
# A delta of int32 can be added to it.
cdef int64_t MOST_OFFSET = 0x7fffffff7fffffff


# -- files


cdef Segment* open_segment(
    const char* folder, int64_t base_offset, const char* suffix, int64_t index_interval_bytes, int64_t index_bytes,
    int64_t now_ms, int* error
) noexcept nogil:
    """Open the files of a segment, and create those that are not there. NULL: ``error`` says why.

    The caller has one reference.
    """
    cdef Segment* segment = <Segment*>calloc(1, sizeof(Segment))
    error[0] = NO_MEMORY
    if segment == NULL:
        return NULL
    segment.references = 1
    segment.fd = segment.indexes.offsets.fd = segment.indexes.times.fd = segment.transactions.fd = -1
    segment.base_offset = base_offset
    segment.index_interval_bytes, segment.index_bytes = index_interval_bytes, index_bytes
    segment.created_ms = now_ms
    segment.first_timestamp = NOT_READ
    forget_readers(segment)
    snprintf(segment.name.suffix, SUFFIX_BYTES, "%s", suffix)
    error[0] = set_path(&segment.name, folder, base_offset)
    if error[0] == DONE:
        error[0] = open_file(&segment.name, ".log", O_CREAT, &segment.fd, &segment.size)
    if error[0] == DONE:
        # New indexes of a segment that has records are incomplete until recovery: they have no room.
        error[0] = open_indexes(&segment.indexes, &segment.name, base_offset, 0 if segment.size else index_bytes)
    if error[0] == DONE:
        error[0] = open_transactions(&segment.transactions, &segment.name, base_offset)
    if error[0] != DONE:
        release(segment)
        return NULL
    take_indexed_timestamp(segment)
    return segment


cdef void take_indexed_timestamp(Segment* segment) noexcept nogil:
    """Take the largest timestamp from the time index."""
    segment.max_timestamp = segment.indexes.last_timestamp
    segment.offset_of_max_timestamp = segment.indexes.offset_of_last_timestamp


cdef void acquire(Segment* segment) noexcept nogil:
    """Keep the segment's files open until ``release``."""
    add_and_get(&segment.references, 1)


cdef void release(Segment* segment) noexcept nogil:
    """Give one reference back; the last one closes the files."""
    if add_and_get(&segment.references, -1) > 0:
        return
    if segment.fd >= 0:
        close(segment.fd)
    close_indexes(&segment.indexes)
    close_transactions(&segment.transactions)
    free(segment.name.path)
    free(segment)


# -- appending


cdef int append(
    Segment* segment, const uint8_t* data, int64_t size, int64_t first_offset, int64_t last_offset,
    int64_t max_timestamp, int64_t offset_of_max_timestamp
) noexcept nogil:
    """Write checked batches at the end. After an error the file is cut to its former end, if the disk allows."""
    cdef int64_t position = segment.size
    cdef int error
    if not 0 <= last_offset - segment.base_offset <= MAX_INT32:
        return OVERFLOW
    error = write_at(segment.fd, data, size, position)
    if error == DONE:
        if max_timestamp > segment.max_timestamp:
            segment.max_timestamp, segment.offset_of_max_timestamp = max_timestamp, offset_of_max_timestamp
        if segment.bytes_since_index > segment.index_interval_bytes:
            error = add_entries(
                &segment.indexes, last_offset, position, segment.max_timestamp, segment.offset_of_max_timestamp
            )
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
    return are_full(&segment.indexes) or not 0 <= last_offset - segment.base_offset <= MAX_INT32


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
        error = read_at(scan.fd, scan.buffer, scan.buffered, scan.position)
        if error != DONE:
            scan.buffered = 0
            return error
    data = scan.buffer + (scan.position - scan.buffered_from)
    length = get_i32(data + 8)
    if length < SMALLEST_LENGTH:
        return CORRUPT
    if length > left - OFFSET_AND_LENGTH_BYTES:
        return NOT_FOUND
    if data[MAGIC_AT] > FORMAT_2 or length + OFFSET_AND_LENGTH_BYTES < header_bytes(<int8_t>data[MAGIC_AT]):
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
    cdef OffsetEntry entry
    cdef int32_t i
    cdef bint is_old
    cdef int error
    start_scan(scan, segment.fd, 0, segment.size)
    if 0 <= segment.recent_offset <= offset:
        scan.position = segment.recent_position
        return DONE
    for i in range(READERS):
        if segment.readers[i].offset == offset:
            scan.position = segment.readers[i].position
            return DONE
    error = floor_by_offset(&segment.indexes, offset, &entry)
    # An index is not trusted: where no such batch begins, the segment is read from its start.
    if error == DONE and starts_at(segment, &entry, offset, scan, &is_old):
        return DONE
    if error == DONE and is_old:
        # Before Kafka 0.11 an index had the first offset of a compressed entry, whose header has the last one. The
        # entry of the index before it is for offsets below.
        error = floor_by_offset(&segment.indexes, entry.offset - 1, &entry)
        if error == DONE and starts_at(segment, &entry, offset, scan, &is_old):
            return DONE
    scan.position = 0
    return error


cdef inline bint starts_at(
    Segment* segment, const OffsetEntry* entry, int64_t offset, Scan* scan, bint* is_old
) noexcept nogil:
    """Begin at the batch of an index entry; return whether one begins there, and not above ``offset``.

    ``is_old``: there is none that does, but a batch of format 0 or 1.
    """
    cdef Batch batch
    cdef int64_t at
    is_old[0] = False
    if not 0 <= entry.position < segment.size:
        return False
    scan.position = entry.position
    if scan_next(scan, &batch, &at) != DONE:
        return False
    scan.position = at
    is_old[0] = batch.magic < FORMAT_2
    return segment.base_offset <= batch.base_offset <= offset


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
    cdef OffsetEntry entry
    cdef Batch batch
    cdef int64_t at, before = scan.position, end = scan.end
    cdef int error = floor_by_position(&segment.indexes, end, &entry)
    if error != DONE or not before < entry.position <= end:
        return error
    scan.position, scan.end = entry.position, segment.size
    if scan_next(scan, &batch, &at) == DONE and batch.base_offset + batch.last_offset_delta <= entry.offset:
        before, next_offset[0] = at, batch.base_offset
    scan.position, scan.end = before, end
    return DONE


cdef int find_timestamp(Segment* segment, int64_t timestamp, int64_t from_offset, int64_t* position) noexcept nogil:
    """Find where to begin the search for the first record of ``timestamp`` or later at ``from_offset`` or above."""
    cdef Scan scan
    cdef int64_t offset
    cdef int error = floor_by_timestamp(&segment.indexes, timestamp, &offset)
    if error == DONE:
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
    cdef int error = start_near(segment, segment.indexes.last_offset, &scan)
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


cdef int cut_indexes(Segment* segment, int64_t offset) noexcept nogil:
    """Remove what the indexes know of ``offset`` and above. They have room for the active segment afterwards."""
    cdef int error = truncate_indexes(&segment.indexes, offset)
    forget_readers(segment)
    segment.bytes_since_index = 0
    if error == DONE:
        error = truncate_aborted(&segment.transactions, offset)
    return error if error != DONE else resize_indexes(&segment.indexes, segment.index_bytes)


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
    error = cut_indexes(segment, offset)
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
    if segment.max_timestamp < 0:
        return DONE
    # The largest timestamp that is left: of the index, or of the batches behind its last entry.
    take_indexed_timestamp(segment)
    error = start_near(segment, segment.offset_of_max_timestamp, &scan)
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
    error = cut_indexes(segment, segment.base_offset)
    if error != DONE:
        return error
    take_indexed_timestamp(segment)
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
            ending = read_at(segment.fd, buffer, buffered, position)
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
            ending = add_entries(
                &segment.indexes, last, valid, segment.max_timestamp, segment.offset_of_max_timestamp
            )
            if ending != DONE:
                break
            indexed = valid
        valid += batch.size
        ending = on_batch(context, buffer + (position - buffered_from), &batch)
        if ending != DONE:
            break
    free(buffer)
    # A file that ends within a batch, and a batch that is not valid, are what recovery is for.
    if ending != NOT_FOUND and ending != CORRUPT:
        return ending
    removed[0] = segment.size - valid
    if removed[0] > 0:
        error = resize_file(segment.fd, valid)
        if error != DONE:
            return error
    segment.size = valid
    return make_inactive(segment)


# -- flushing and rolling


cdef int reserve_segment(Segment* segment, int64_t size) noexcept nogil:
    """Reserve disk space for ``size`` bytes of batches."""
    cdef int error = reserve_file(segment.fd, size)
    segment.is_reserved = error == DONE
    return error


cdef int make_inactive(Segment* segment) noexcept nogil:
    """Cut the indexes of a segment that gets no more batches, and give back the disk space that it does not use."""
    cdef int error
    if segment.is_reserved:
        error = resize_file(segment.fd, segment.size)
        if error != DONE:
            return error
        segment.is_reserved = False
    return finish_indexes(&segment.indexes, segment.max_timestamp, segment.offset_of_max_timestamp)


cdef int flush_segment(Segment* segment) noexcept nogil:
    """Make all bytes survive a crash of the machine. A reference is enough; the mutex is not needed."""
    cdef int error = flush_file(segment.fd)
    if error == DONE:
        error = flush_indexes(&segment.indexes)
    return error if error != DONE else flush_transactions(&segment.transactions)
