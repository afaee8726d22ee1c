"""The offset index and the time index of a segment: ``.index`` and ``.timeindex``.

Layouts (big-endian), as ``OffsetIndex`` and ``TimeIndex``:

    .index      relative offset int32, position int32: the last offset of an append, and where it begins
    .timeindex  timestamp int64, relative offset int32: the largest timestamp so far, and its offset

The indexes of the active segment have room for segment.index.bytes from their first use on; they are cut to their
entries when the segment is rolled or closed. All functions require the mutex of the log.
"""

from libc.errno cimport ENOENT
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy
from posix.fcntl cimport O_CREAT
from posix.unistd cimport close

from ctrlchan._c.bytes cimport get_i32, get_i64, put_i32, put_i64
from ctrlchan.broker.log._files cimport SegmentName, flush_file, open_file, read_at, resize_file, write_at
from ctrlchan.broker.log._parts cimport DONE, OUT_OF_ORDER

cdef enum:
    # Bytes of an entry.
    OFFSET_ENTRY = 8
    TIME_ENTRY = 12
    # Where the fields of an entry are.
    OFFSET_AT = 0
    POSITION_AT = 4
    TIMESTAMP_AT = 0
    TIME_OFFSET_AT = 8
    # Entries that a search reads at once.
    BLOCK = 256


# -- one file


cdef int open_index(Index* index, const SegmentName* name, const char* kind, int32_t width, int64_t room) noexcept nogil:
    """Open an index file: one of another size than whole entries counts as its whole entries."""
    cdef int64_t size = 0
    cdef int error
    index.name, index.kind, index.width = name, kind, width
    error = open_file(name, kind, 0, &index.fd, &size)
    index.entries = index.capacity = <int32_t>(size // width)
    index.is_ragged = size % width != 0
    if error == ENOENT:
        error = open_file(name, kind, O_CREAT, &index.fd, &size)
        index.capacity = <int32_t>(room // width)
    return error


cdef void close_index(Index* index) noexcept nogil:
    if index.fd >= 0:
        close(index.fd)
    index.fd = -1


cdef int use_index(Index* index) noexcept nogil:
    """Open the file of an index if it is not open, and give it room."""
    cdef int64_t size = 0
    cdef int error
    if index.fd >= 0:
        return DONE
    error = open_file(index.name, index.kind, O_CREAT, &index.fd, &size)
    return error if error != DONE else resize_index(index, <int64_t>index.capacity * index.width)


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
    """Remove the entries from ``entries`` on, and write zeros there, so that no old entry comes back."""
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
    return error if error != DONE else read_at(index.fd, entry, index.width, <int64_t>slot * index.width)


cdef int add_entry(Index* index, const uint8_t* entry) noexcept nogil:
    cdef int error = use_index(index)
    if error == DONE:
        error = write_at(index.fd, entry, index.width, <int64_t>index.entries * index.width)
    if error == DONE:
        index.entries += 1
    return error


cdef inline int64_t key_of(const uint8_t* entry, int at, bint wide) noexcept nogil:
    return get_i64(entry + at) if wide else get_i32(entry + at)


cdef int floor_entry(Index* index, int at, bint wide, int64_t target, int32_t* slot, uint8_t* entry) noexcept nogil:
    """Find the last entry whose field at ``at`` is not above ``target``: ``slot`` (-1: not found) and its bytes."""
    # One more: the entry before them may be the one.
    cdef uint8_t block[(BLOCK + 1) * TIME_ENTRY]
    cdef int32_t low = 0, high = index.entries, middle, first
    cdef int error
    slot[0] = -1
    if high == 0:
        return DONE
    error = use_index(index)
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
    error = read_at(index.fd, block, <int64_t>(high - first) * index.width, <int64_t>first * index.width)
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


cdef int truncate_index(Index* index, int at, int64_t relative) noexcept nogil:
    """Remove the entries of a relative offset and above; all entries where that is 0, whatever they are."""
    cdef uint8_t entry[TIME_ENTRY]
    cdef int32_t slot = -1
    cdef int error
    if relative > 0:
        error = floor_entry(index, at, False, relative, &slot, entry)
        if error != DONE:
            return error
        if slot >= 0 and get_i32(entry + at) == relative:
            slot -= 1
    return cut_index(index, slot + 1)


# -- both files


cdef int open_indexes(Indexes* indexes, const SegmentName* name, int64_t base_offset, int64_t room) noexcept nogil:
    """Find the entries of both files. ``room``: the size of a file that must be created."""
    cdef int error = open_index(&indexes.offsets, name, ".index", OFFSET_ENTRY, room)
    indexes.base_offset = base_offset
    if error == DONE:
        error = open_index(&indexes.times, name, ".timeindex", TIME_ENTRY, room)
    if error == DONE:
        error = read_last_entries(indexes)
    close_indexes(indexes)
    return error


cdef void close_indexes(Indexes* indexes) noexcept nogil:
    """Close the descriptors of both indexes until the next use. The caller has flushed both files."""
    close_index(&indexes.offsets)
    close_index(&indexes.times)


cdef int flush_indexes(const Indexes* indexes) noexcept nogil:
    """Make all entries survive a crash of the machine. Nothing was written to an index that is not open."""
    cdef int error = flush_file(indexes.offsets.fd) if indexes.offsets.fd >= 0 else DONE
    return flush_file(indexes.times.fd) if error == DONE and indexes.times.fd >= 0 else error


cdef int read_last_entries(Indexes* indexes) noexcept nogil:
    cdef uint8_t entry[TIME_ENTRY]
    cdef int error
    indexes.last_offset = indexes.offset_of_last_timestamp = indexes.base_offset
    indexes.last_timestamp = -1
    if indexes.offsets.entries > 0:
        error = read_entry(&indexes.offsets, indexes.offsets.entries - 1, entry)
        if error != DONE:
            return error
        indexes.last_offset = indexes.base_offset + get_i32(entry + OFFSET_AT)
    if indexes.times.entries > 0:
        error = read_entry(&indexes.times, indexes.times.entries - 1, entry)
        if error != DONE:
            return error
        indexes.last_timestamp = get_i64(entry + TIMESTAMP_AT)
        indexes.offset_of_last_timestamp = indexes.base_offset + get_i32(entry + TIME_OFFSET_AT)
    return DONE


cdef bint are_sane(Indexes* indexes, int64_t segment_size) noexcept nogil:
    """Whether both indexes have whole entries, the last of which can be true."""
    cdef uint8_t entry[TIME_ENTRY]
    if indexes.offsets.is_ragged or indexes.times.is_ragged:
        return False
    if indexes.offsets.entries > 0:
        if indexes.last_offset < indexes.base_offset:
            return False
        if read_entry(&indexes.offsets, indexes.offsets.entries - 1, entry) != DONE:
            return False
        if not 0 < get_i32(entry + POSITION_AT) < segment_size:
            return False
    if indexes.times.entries > 0:
        if indexes.offset_of_last_timestamp < indexes.base_offset:
            return False
        if read_entry(&indexes.times, 0, entry) != DONE or indexes.last_timestamp < get_i64(entry + TIMESTAMP_AT):
            return False
    return True


cdef bint are_full(const Indexes* indexes) noexcept nogil:
    """Whether an index is full. The last place of the time index is for the entry of the end."""
    return (
        indexes.offsets.entries >= indexes.offsets.capacity or indexes.times.entries >= indexes.times.capacity - 1
    )


cdef int64_t bytes_of(const Index* index) noexcept nogil:
    """Return the bytes of all entries."""
    return <int64_t>index.entries * index.width


# -- adding and removing


cdef int add_entries(
    Indexes* indexes, int64_t last_offset, int64_t position, int64_t max_timestamp, int64_t offset_of_max_timestamp
) noexcept nogil:
    """Add an append to the offset index, and the largest timestamp to the time index. A full index stays: it is sparse."""
    cdef uint8_t entry[OFFSET_ENTRY]
    cdef int error
    if indexes.offsets.entries < indexes.offsets.capacity:
        if indexes.offsets.entries > 0 and last_offset <= indexes.last_offset:
            return OUT_OF_ORDER
        put_i32(entry + OFFSET_AT, <int32_t>(last_offset - indexes.base_offset))
        put_i32(entry + POSITION_AT, <int32_t>position)
        error = add_entry(&indexes.offsets, entry)
        if error != DONE:
            return error
        indexes.last_offset = last_offset
    # One place is kept for ``finish_indexes``.
    return add_timestamp(indexes, max_timestamp, offset_of_max_timestamp, indexes.times.capacity - 1)


cdef int add_timestamp(Indexes* indexes, int64_t timestamp, int64_t offset, int32_t capacity) noexcept nogil:
    """Add the largest timestamp to the time index if it is new."""
    cdef uint8_t entry[TIME_ENTRY]
    cdef int error
    if timestamp <= indexes.last_timestamp or indexes.times.entries >= capacity:
        return DONE
    if indexes.times.entries > 0 and offset < indexes.offset_of_last_timestamp:
        return OUT_OF_ORDER
    put_i64(entry + TIMESTAMP_AT, timestamp)
    put_i32(entry + TIME_OFFSET_AT, <int32_t>(offset - indexes.base_offset))
    error = add_entry(&indexes.times, entry)
    if error == DONE:
        indexes.last_timestamp, indexes.offset_of_last_timestamp = timestamp, offset
    return error


cdef int resize_indexes(Indexes* indexes, int64_t size) noexcept nogil:
    """Give both indexes room for ``size`` bytes."""
    cdef int error = resize_index(&indexes.offsets, size)
    return error if error != DONE else resize_index(&indexes.times, size)


cdef int finish_indexes(Indexes* indexes, int64_t max_timestamp, int64_t offset_of_max_timestamp) noexcept nogil:
    """Put the largest timestamp of the segment into the time index and cut both indexes to their entries."""
    cdef int error
    if indexes.times.entries >= indexes.times.capacity:
        error = resize_index(&indexes.times, <int64_t>(indexes.times.entries + 1) * TIME_ENTRY)
        if error != DONE:
            return error
    error = add_timestamp(indexes, max_timestamp, offset_of_max_timestamp, indexes.times.capacity)
    return error if error > 0 else resize_indexes(indexes, 0)


cdef int truncate_indexes(Indexes* indexes, int64_t offset) noexcept nogil:
    """Remove the entries of ``offset`` and above; all of them where the segment begins there."""
    cdef int64_t relative = max(offset - indexes.base_offset, <int64_t>0)
    cdef int error = truncate_index(&indexes.offsets, OFFSET_AT, relative)
    if error == DONE:
        error = truncate_index(&indexes.times, TIME_OFFSET_AT, relative)
    return error if error != DONE else read_last_entries(indexes)


# -- looking up


cdef int floor_by_offset(Indexes* indexes, int64_t offset, OffsetEntry* found) noexcept nogil:
    """Find the last entry that is not above ``offset``."""
    return floor_of(indexes, OFFSET_AT, offset - indexes.base_offset, found)


cdef int floor_by_position(Indexes* indexes, int64_t position, OffsetEntry* found) noexcept nogil:
    """Find the last entry that does not begin behind ``position``."""
    return floor_of(indexes, POSITION_AT, position, found)


cdef int floor_of(Indexes* indexes, int at, int64_t target, OffsetEntry* found) noexcept nogil:
    cdef uint8_t entry[TIME_ENTRY]
    cdef int32_t slot = -1
    cdef int error = floor_entry(&indexes.offsets, at, False, target, &slot, entry)
    found.position = -1
    if error == DONE and slot >= 0:
        found.offset, found.position = indexes.base_offset + get_i32(entry + OFFSET_AT), get_i32(entry + POSITION_AT)
    return DONE if no_descriptor(error) else error


cdef int floor_by_timestamp(Indexes* indexes, int64_t timestamp, int64_t* offset) noexcept nogil:
    """Find the offset of the last entry that is not above ``timestamp``; the segment's first one without an entry."""
    cdef uint8_t entry[TIME_ENTRY]
    cdef int32_t slot = -1
    cdef int error = floor_entry(&indexes.times, TIMESTAMP_AT, True, timestamp, &slot, entry)
    offset[0] = indexes.base_offset
    if error == DONE and slot >= 0:
        offset[0] += get_i32(entry + TIME_OFFSET_AT)
    return DONE if no_descriptor(error) else error


cdef int offset_above(Indexes* indexes, int64_t position, int64_t* offset) noexcept nogil:
    """Find an offset that all records before ``position`` are below; -1: the offset index ends before."""
    cdef uint8_t entry[TIME_ENTRY]
    cdef int32_t slot = -1
    cdef int error = floor_entry(&indexes.offsets, POSITION_AT, False, position - 1, &slot, entry)
    offset[0] = -1
    if error == DONE and slot + 1 < indexes.offsets.entries:
        error = read_entry(&indexes.offsets, slot + 1, entry)
        if error == DONE:
            offset[0] = indexes.base_offset + get_i32(entry + OFFSET_AT)
    return error
