from libc.stdint cimport int32_t, int64_t, uint8_t

from ctrlchan.broker.log._batches cimport Batch
from ctrlchan.broker.log._files cimport SegmentName
from ctrlchan.broker.log._indexes cimport Indexes
from ctrlchan.broker.log._transaction_index cimport TransactionIndex


cdef enum:
    # Readers of one segment that are remembered
    READERS = 8


# Where a reader goes on, as far as it reads in order.
cdef struct Reader:
    # The offset that follows what was read; -1: unused
    int64_t offset
    # Where the batch begins that has it
    int64_t position


# One segment. Counted references: one of the log, one of each range that is being sent.
cdef struct Segment:
    SegmentName name
    int64_t base_offset
    int64_t references
    int fd
    # Bytes of the .log file
    int64_t size
    Indexes indexes
    TransactionIndex transactions
    int64_t max_timestamp
    int64_t offset_of_max_timestamp
    int64_t bytes_since_index
    # Largest timestamp of the first batch, for segment.ms; -2: not read yet
    int64_t first_timestamp
    int64_t created_ms
    int64_t roll_jitter_ms
    # A batch near the end: readers of new records begin here.
    int64_t recent_offset
    int64_t recent_position
    Reader readers[READERS]
    # The one that a new reader replaces
    int32_t next_reader
    int64_t index_interval_bytes
    int64_t index_bytes
    # Whether the file has more disk space than its size (preallocate)
    bint is_reserved


# Reads the headers of a file's batches one after another.
cdef struct Scan:
    int fd
    int64_t position
    int64_t end
    int64_t buffered_from
    int64_t buffered
    uint8_t buffer[4096]


ctypedef int (*OnBatch)(void* context, const uint8_t* data, const Batch* batch) noexcept nogil

cdef void start_scan(Scan* scan, int fd, int64_t position, int64_t end) noexcept nogil
cdef int scan_next(Scan* scan, Batch* batch, int64_t* position) noexcept nogil

cdef Segment* open_segment(
    const char* folder, int64_t base_offset, const char* suffix, int64_t index_interval_bytes, int64_t index_bytes,
    int64_t now_ms, int* error
) noexcept nogil
cdef void acquire(Segment* segment) noexcept nogil
cdef void release(Segment* segment) noexcept nogil
cdef int append(
    Segment* segment, const uint8_t* data, int64_t size, int64_t first_offset, int64_t last_offset,
    int64_t max_timestamp, int64_t offset_of_max_timestamp
) noexcept nogil
cdef bint should_roll(
    Segment* segment, int64_t more, int64_t max_bytes, int64_t max_ms, int64_t now_ms, int64_t max_timestamp,
    int64_t last_offset
) noexcept nogil
cdef int find_offset(Segment* segment, int64_t offset, Batch* batch, int64_t* position) noexcept nogil
cdef int find_batches(
    Segment* segment, int64_t offset, int64_t max_bytes, int64_t limit, int64_t limit_offset, bint whole_first,
    int64_t* position, int64_t* end
) noexcept nogil
cdef int find_timestamp(Segment* segment, int64_t timestamp, int64_t from_offset, int64_t* position) noexcept nogil
cdef int next_offset_of(Segment* segment, int64_t* offset) noexcept nogil
cdef bint ends_whole(Segment* segment) noexcept nogil
cdef int truncate_segment(Segment* segment, int64_t offset, int64_t now_ms, int64_t* removed) noexcept nogil
cdef int recover_segment(Segment* segment, OnBatch on_batch, void* context, int64_t* removed) noexcept nogil
cdef int reserve_segment(Segment* segment, int64_t size) noexcept nogil
cdef int make_inactive(Segment* segment) noexcept nogil
cdef int flush_segment(Segment* segment) noexcept nogil
cdef int64_t largest_timestamp(Segment* segment) noexcept nogil
