from libc.stdint cimport int32_t, int64_t

from ctrlchan.broker.log._files cimport SegmentName


# The aborted transactions of a segment. Few segments have any: the file is there from the first one on.
cdef struct TransactionIndex:
    const SegmentName* name
    int64_t base_offset
    int64_t entries


# An aborted transaction.
cdef struct AbortedEntry:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset
    int64_t last_stable_offset


cdef int open_transactions(TransactionIndex* index, const SegmentName* name, int64_t base_offset) noexcept nogil
cdef bint transactions_are_sane(const TransactionIndex* index) noexcept nogil
cdef int add_aborted(TransactionIndex* index, const AbortedEntry* one) noexcept nogil
cdef int read_aborted(
    const TransactionIndex* index, int64_t from_offset, int64_t end_offset, AbortedEntry** found, int32_t* count,
    bint* is_last
) noexcept nogil
cdef int truncate_aborted(TransactionIndex* index, int64_t offset) noexcept nogil
