from libc.stdint cimport int32_t, int64_t

from ctrlchan.broker.log._files cimport SegmentName


# The aborted transactions of a segment. Few segments have any: the file is there, and open, from the first one on.
cdef struct TransactionIndex:
    const SegmentName* name
    int64_t base_offset
    int64_t entries
    # -1: there is no file, or it is empty
    int fd
    # The last offset of each MANYth entry, of the first ``key_count`` ones
    int64_t* keys
    int64_t key_count
    int64_t key_room


# An aborted transaction.
cdef struct AbortedEntry:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset
    int64_t last_stable_offset


cdef int open_transactions(TransactionIndex* index, const SegmentName* name, int64_t base_offset) noexcept nogil
cdef void close_transactions(TransactionIndex* index) noexcept nogil
cdef bint transactions_are_sane(const TransactionIndex* index) noexcept nogil
# Open or create the file, so that ``add_aborted`` needs no descriptor.
cdef int reserve_aborted(TransactionIndex* index) noexcept nogil
cdef int add_aborted(TransactionIndex* index, const AbortedEntry* one) noexcept nogil
cdef int read_aborted(
    TransactionIndex* index, int64_t from_offset, int64_t end_offset, AbortedEntry** found, int32_t* count,
    bint* is_last
) noexcept nogil
cdef int truncate_aborted(TransactionIndex* index, int64_t offset) noexcept nogil
# Make all entries survive a crash of the machine. A reference to the segment is enough; the mutex is not needed.
cdef int flush_transactions(TransactionIndex* index) noexcept nogil
