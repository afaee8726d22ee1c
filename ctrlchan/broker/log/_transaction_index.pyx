"""The transaction index of a segment, ``.txnindex``: its aborted transactions, in the order of their markers.

Layout of an entry (big-endian), as ``AbortedTxn``: version int16 (0), producer id, first offset, last offset, last stable
offset int64. All functions require the mutex of the log.
"""

from libc.errno cimport ENOENT
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from posix.fcntl cimport O_CREAT
from posix.unistd cimport close

from ctrlchan._c.bytes cimport get_i16, get_i64, put_i16, put_i64
from ctrlchan.broker.log._files cimport open_file, read_at, resize_file, write_at
from ctrlchan.broker.log._parts cimport DONE, NO_MEMORY

cdef enum:
    # Bytes of an entry, and where its fields are.
    ENTRY = 34
    PRODUCER_AT = 2
    FIRST_AT = 10
    LAST_AT = 18
    STABLE_AT = 26

cdef const char* KIND = ".txnindex"


cdef int close_file(int fd, int error) noexcept nogil:
    if fd >= 0:
        close(fd)
    return error


cdef int open_transactions(TransactionIndex* index, const SegmentName* name, int64_t base_offset) noexcept nogil:
    """Find how many entries the file has."""
    cdef int64_t size = 0
    cdef int fd = -1
    cdef int error = open_file(name, KIND, 0, &fd, &size)
    index.name, index.base_offset, index.entries = name, base_offset, size // ENTRY
    return close_file(fd, DONE if error == ENOENT else error)


cdef bint transactions_are_sane(const TransactionIndex* index) noexcept nogil:
    """Whether every entry can be true."""
    cdef uint8_t entry[ENTRY]
    cdef int64_t size = 0, i
    cdef int fd = -1
    cdef bint sane = index.entries == 0 or open_file(index.name, KIND, 0, &fd, &size) == DONE
    for i in range(index.entries if sane else 0):
        if (
            read_at(fd, entry, ENTRY, i * ENTRY) != DONE
            or get_i16(entry) != 0
            or get_i64(entry + LAST_AT) < index.base_offset
        ):
            sane = False
            break
    close_file(fd, DONE)
    return sane


cdef int add_aborted(TransactionIndex* index, const AbortedEntry* one) noexcept nogil:
    """Add an aborted transaction."""
    cdef uint8_t entry[ENTRY]
    cdef int64_t size = 0
    cdef int fd = -1
    cdef int error = open_file(index.name, KIND, O_CREAT, &fd, &size)
    if error == DONE:
        put_i16(entry, 0)
        put_i64(entry + PRODUCER_AT, one.producer_id)
        put_i64(entry + FIRST_AT, one.first_offset)
        put_i64(entry + LAST_AT, one.last_offset)
        put_i64(entry + STABLE_AT, one.last_stable_offset)
        error = write_at(fd, entry, ENTRY, size - size % ENTRY)
        index.entries = size // ENTRY + 1
    return close_file(fd, error)


cdef int read_aborted(
    const TransactionIndex* index, int64_t from_offset, int64_t end_offset, AbortedEntry** found, int32_t* count,
    bint* is_last
) noexcept nogil:
    """Append the aborted transactions with records between the offsets to ``found``, which the caller frees.

    ``is_last``: no later segment has more of them. Nothing is read where there is no entry.
    """
    cdef AbortedEntry* grown
    cdef AbortedEntry* one
    cdef uint8_t* entries
    cdef uint8_t* entry
    cdef int64_t size = 0, i
    cdef int fd = -1
    cdef int error
    is_last[0] = False
    if index.entries == 0:
        return DONE
    grown = <AbortedEntry*>realloc(found[0], (count[0] + index.entries) * sizeof(AbortedEntry))
    if grown == NULL:
        return NO_MEMORY
    found[0] = grown
    entries = <uint8_t*>malloc(index.entries * ENTRY)
    if entries == NULL:
        return NO_MEMORY
    error = open_file(index.name, KIND, 0, &fd, &size)
    if error == DONE:
        error = read_at(fd, entries, index.entries * ENTRY, 0)
    for i in range(index.entries if error == DONE else 0):
        entry = entries + i * ENTRY
        one = &grown[count[0]]
        one.producer_id, one.first_offset = get_i64(entry + PRODUCER_AT), get_i64(entry + FIRST_AT)
        one.last_offset, one.last_stable_offset = get_i64(entry + LAST_AT), get_i64(entry + STABLE_AT)
        if one.last_offset >= from_offset and one.first_offset < end_offset:
            count[0] += 1
        if one.last_stable_offset >= end_offset:
            is_last[0] = True
            break
    free(entries)
    return close_file(fd, error)


cdef int truncate_aborted(TransactionIndex* index, int64_t offset) noexcept nogil:
    """Remove the transactions that end at ``offset`` or above; all entries where the segment begins there."""
    cdef uint8_t entry[ENTRY]
    cdef int64_t size = 0, position = 0
    cdef int fd = -1
    cdef int error = open_file(index.name, KIND, 0, &fd, &size)
    while error == DONE and offset > index.base_offset and position + ENTRY <= size:
        error = read_at(fd, entry, ENTRY, position)
        if error == DONE and get_i64(entry + LAST_AT) >= offset:
            break
        position += ENTRY
    if error == DONE and position < size:
        error = resize_file(fd, position)
    index.entries = position // ENTRY
    return close_file(fd, DONE if error == ENOENT else error)
