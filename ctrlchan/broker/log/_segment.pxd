from libc.stdint cimport int32_t, int64_t, uint8_t

from ctrlchan.broker.log._batches cimport Batch


cdef enum:
    # Results that are no errno, which is positive.
    DONE = 0
    # The end of the file, or a batch that is longer than what is left of it.
    NOT_FOUND = -1
    # A batch whose header cannot be true.
    CORRUPT = -2
    # A batch of format 0 or 1.
    OLD_FORMAT = -3
    # An offset that is not within 2^31 of the segment's first one.
    OVERFLOW = -4
    # Recovery: an offset that is not above an earlier one.
    OUT_OF_ORDER = -5
    NO_MEMORY = -6
    # The log was closed, or an earlier error has taken it offline.
    OFFLINE = -7

    # Readers of one segment that are remembered
    READERS = 8
    # Of the longest suffix of a file, .deleted or .cleaned
    SUFFIX_BYTES = 16


cdef struct Segment


# One index file. Its lookups read; nothing is mapped, so a full disk is an error and no signal.
cdef struct Index:
    Segment* segment
    # The end of the file's name: .index or .timeindex
    const char* kind
    # -1: not open. A partition without traffic needs no descriptor.
    int fd
    # The file had more bytes than whole entries when it was opened with its segment.
    bint is_ragged
    # Bytes of an entry
    int32_t width
    int32_t entries
    # Entries that the file has room for, or gets room for when it is opened
    int32_t capacity


# Where a reader goes on, as far as it reads in order.
cdef struct Reader:
    # The offset that follows what was read; -1: unused
    int64_t offset
    # Where the batch begins that has it
    int64_t position


# One segment. Counted references: one of the log, one of each range that is being sent.
cdef struct Segment:
    int64_t base_offset
    int64_t references
    int fd
    # Bytes of the .log file
    int64_t size
    Index offsets
    Index times
    # Of the last entries; base_offset and -1 where there is none
    int64_t last_indexed_offset
    int64_t last_indexed_timestamp
    int64_t offset_of_last_indexed_timestamp
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
    # Entries of .txnindex
    int64_t aborted
    # Folder and 20 digits
    char* path
    char suffix[SUFFIX_BYTES]


# Reads the headers of a file's batches one after another.
cdef struct Scan:
    int fd
    int64_t position
    int64_t end
    int64_t buffered_from
    int64_t buffered
    uint8_t buffer[4096]


# An entry of .txnindex: an aborted transaction.
cdef struct AbortedEntry:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset
    int64_t last_stable_offset


ctypedef int (*OnBatch)(void* context, const uint8_t* data, const Batch* batch) noexcept nogil

cdef int pread_all(int fd, uint8_t* data, int64_t size, int64_t position) noexcept nogil
cdef void start_scan(Scan* scan, int fd, int64_t position, int64_t end) noexcept nogil
cdef int scan_next(Scan* scan, Batch* batch, int64_t* position) noexcept nogil

cdef Segment* open_segment(
    const char* folder, int64_t base_offset, const char* suffix, int64_t index_interval_bytes, int64_t index_bytes,
    int64_t now_ms, int* error
) noexcept nogil
cdef void acquire(Segment* segment) noexcept nogil
cdef void release(Segment* segment) noexcept nogil
cdef void close_indexes(Segment* segment) noexcept nogil
cdef bint indexes_are_sane(Segment* segment) noexcept nogil
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
cdef int offset_above(Segment* segment, int64_t position, int64_t* offset) noexcept nogil
cdef int find_timestamp(Segment* segment, int64_t timestamp, int64_t from_offset, int64_t* position) noexcept nogil
cdef int next_offset_of(Segment* segment, int64_t* offset) noexcept nogil
cdef bint ends_whole(Segment* segment) noexcept nogil
cdef int find_end(Segment* segment, int64_t* offset, int64_t* end) noexcept nogil
cdef int truncate_segment(Segment* segment, int64_t offset, int64_t now_ms, int64_t* removed) noexcept nogil
cdef int recover_segment(Segment* segment, OnBatch on_batch, void* context, int64_t* removed) noexcept nogil
cdef int resize_indexes(Segment* segment, int64_t size) noexcept nogil
cdef int make_inactive(Segment* segment) noexcept nogil
cdef int flush_segment(Segment* segment) noexcept nogil
cdef int change_suffix(Segment* segment, const char* suffix) noexcept nogil
cdef bint aborted_are_sane(Segment* segment) noexcept nogil
cdef int add_aborted(
    Segment* segment, int64_t producer_id, int64_t first_offset, int64_t last_offset, int64_t last_stable_offset
) noexcept nogil
cdef int read_aborted(
    Segment* segment, int64_t from_offset, int64_t end_offset, AbortedEntry** found, int32_t* count, bint* is_last
) noexcept nogil
cdef int truncate_aborted(Segment* segment, int64_t offset) noexcept nogil
cdef int remove_files(const char* folder, int64_t base_offset) noexcept nogil
cdef int move_segment(Segment* segment, const char* folder) noexcept nogil
cdef int64_t largest_timestamp(Segment* segment) noexcept nogil
