"""The transaction index of a segment, ``.txnindex``: its aborted transactions, in the order of their markers.

Layout of an entry (big-endian), as ``AbortedTxn``: version int16 (0), producer id, first offset, last offset, last stable
offset int64. The last offset is the marker's, so entries ascend by it, and are searched by it: the last offset of each
64th entry is kept in memory, so a search reads one or two blocks of the file. All functions but ``flush_transactions``
require the mutex of the log.
"""

from libc.errno cimport ENOENT
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from posix.fcntl cimport O_CREAT
from posix.unistd cimport close

from ctrlchan._c.bytes cimport get_i16, get_i64, put_i16, put_i64
from ctrlchan.broker.log._files cimport flush_file, open_file, read_at, resize_file, write_at
from ctrlchan.broker.log._parts cimport DONE, NO_MEMORY

cdef enum:
    # Bytes of an entry, and where its fields are.
    ENTRY = 34
    PRODUCER_AT = 2
    FIRST_AT = 10
    LAST_AT = 18
    STABLE_AT = 26
    # Entries that are read at once, and their bytes
    MANY = 64
    MANY_BYTES = 2176

cdef const char* KIND = ".txnindex"


cdef int open_transactions(TransactionIndex* index, const SegmentName* name, int64_t base_offset) noexcept nogil:
    """Open the file, if there is one, and find how many entries it has."""
    cdef int64_t size = 0
    cdef int error
    index.name, index.base_offset, index.entries, index.fd = name, base_offset, 0, -1
    index.keys, index.key_count, index.key_room = NULL, 0, 0
    error = open_file(name, KIND, 0, &index.fd, &size)
    index.entries = size // ENTRY
    if size == 0:
        close_transactions(index)
    return DONE if error == ENOENT else error


cdef void close_transactions(TransactionIndex* index) noexcept nogil:
    """Close the file, if it is open."""
    if index.fd >= 0:
        close(index.fd)
    free(index.keys)
    index.fd, index.keys, index.key_count, index.key_room = -1, NULL, 0, 0


cdef bint transactions_are_sane(const TransactionIndex* index) noexcept nogil:
    """Whether every entry can be true, and the entries ascend."""
    cdef uint8_t entries[MANY_BYTES]
    cdef const uint8_t* entry
    cdef int64_t first = 0, many, i, last = index.base_offset - 1
    while first < index.entries:
        many = min(index.entries - first, <int64_t>MANY)
        if read_at(index.fd, entries, many * ENTRY, first * ENTRY) != DONE:
            return False
        for i in range(many):
            entry = entries + i * ENTRY
            if get_i16(entry) != 0 or get_i64(entry + LAST_AT) <= last:
                return False
            last = get_i64(entry + LAST_AT)
        first += many
    return True


cdef int reserve_aborted(TransactionIndex* index) noexcept nogil:
    """The descriptor stays open with the segment."""
    cdef int64_t size
    return open_file(index.name, KIND, O_CREAT, &index.fd, &size) if index.fd < 0 else DONE


cdef int add_aborted(TransactionIndex* index, const AbortedEntry* one) noexcept nogil:
    """Add an aborted transaction."""
    cdef uint8_t entry[ENTRY]
    cdef int error = reserve_aborted(index)
    if error == DONE:
        put_i16(entry, 0)
        put_i64(entry + PRODUCER_AT, one.producer_id)
        put_i64(entry + FIRST_AT, one.first_offset)
        put_i64(entry + LAST_AT, one.last_offset)
        put_i64(entry + STABLE_AT, one.last_stable_offset)
        error = write_at(index.fd, entry, ENTRY, index.entries * ENTRY)
    if error == DONE:
        index.entries += 1
    return error


cdef int read_keys(TransactionIndex* index) noexcept nogil:
    """Read the keys that are not in memory."""
    cdef uint8_t last[8]
    cdef int64_t count = (index.entries + MANY - 1) // MANY, room = 2 * count
    cdef int64_t* keys
    cdef int error
    if count > index.key_room:
        keys = <int64_t*>realloc(index.keys, room * sizeof(int64_t))
        if keys == NULL:
            return NO_MEMORY
        index.keys, index.key_room = keys, room
    while index.key_count < count:
        error = read_at(index.fd, last, 8, index.key_count * MANY_BYTES + LAST_AT)
        if error != DONE:
            return error
        index.keys[index.key_count] = get_i64(last)
        index.key_count += 1
    return DONE


cdef int find_block(TransactionIndex* index, int64_t offset, int64_t* first) noexcept nogil:
    """Find the first entry of the last block that begins below ``offset``, or of the first block."""
    cdef int64_t low = 0, high, middle
    cdef int error = read_keys(index)
    high = index.key_count
    while error == DONE and high - low > 1:
        middle = low + (high - low) // 2
        if index.keys[middle] < offset:
            low = middle
        else:
            high = middle
    first[0] = low * MANY
    return error


cdef int find_entry(const TransactionIndex* index, int64_t offset, int64_t* found) noexcept nogil:
    """Find the first entry that ends at or above ``offset``; the number of entries if there is none."""
    cdef uint8_t entry[ENTRY]
    cdef int64_t low = 0, high = index.entries, middle
    cdef int error
    while low < high:
        middle = low + (high - low) // 2
        error = read_at(index.fd, entry, ENTRY, middle * ENTRY)
        if error != DONE:
            return error
        if get_i64(entry + LAST_AT) < offset:
            low = middle + 1
        else:
            high = middle
    found[0] = low
    return DONE


cdef int read_aborted(
    TransactionIndex* index, int64_t from_offset, int64_t end_offset, AbortedEntry** found, int32_t* count,
    bint* is_last
) noexcept nogil:
    """Append the aborted transactions with records between the offsets to ``found``, which the caller frees.

    ``is_last``: no later segment has more of them. Nothing is read where there is no entry.
    """
    cdef uint8_t entries[MANY_BYTES]
    cdef const uint8_t* entry
    cdef AbortedEntry* grown
    cdef AbortedEntry* one
    cdef int64_t first = 0, many, i
    cdef int error
    is_last[0] = False
    if index.entries == 0:
        return DONE
    error = find_block(index, from_offset, &first)
    while error == DONE and first < index.entries and not is_last[0]:
        many = min(index.entries - first, <int64_t>MANY)
        grown = <AbortedEntry*>realloc(found[0], (count[0] + many) * sizeof(AbortedEntry))
        if grown == NULL:
            return NO_MEMORY
        found[0] = grown
        error = read_at(index.fd, entries, many * ENTRY, first * ENTRY)
        for i in range(many if error == DONE else 0):
            entry = entries + i * ENTRY
            one = &grown[count[0]]
            one.producer_id, one.first_offset = get_i64(entry + PRODUCER_AT), get_i64(entry + FIRST_AT)
            one.last_offset, one.last_stable_offset = get_i64(entry + LAST_AT), get_i64(entry + STABLE_AT)
            if one.last_offset >= from_offset and one.first_offset < end_offset:
                count[0] += 1
            if one.last_stable_offset >= end_offset:
                is_last[0] = True
                break
        first += many
    return error


cdef int truncate_aborted(TransactionIndex* index, int64_t offset) noexcept nogil:
    """Remove the transactions that end at ``offset`` or above; all entries where the segment begins there."""
    cdef int64_t left = 0
    cdef int error = DONE
    if index.fd < 0:
        return DONE
    if offset > index.base_offset:
        error = find_entry(index, offset, &left)
    if error == DONE and left < index.entries:
        error = resize_file(index.fd, left * ENTRY)
    if error == DONE:
        index.entries = left
        index.key_count = min(index.key_count, (left + MANY - 1) // MANY)
    return error


cdef int flush_transactions(TransactionIndex* index) noexcept nogil:
    # Also where nothing has changed: another thread's flush, which may fail, may be under way.
    return DONE if index.fd < 0 else flush_file(index.fd)
