from libc.errno cimport EMFILE, ENFILE
from libc.stdint cimport int32_t, int64_t

from ctrlchan.broker.log._files cimport SegmentName


# One index file. Its lookups read; nothing is mapped, so a full disk is an error and no signal.
cdef struct Index:
    const SegmentName* name
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


# Both indexes of a segment.
cdef struct Indexes:
    int64_t base_offset
    Index offsets
    Index times
    # Of the last entries; ``base_offset`` and -1 where there is none
    int64_t last_offset
    int64_t last_timestamp
    int64_t offset_of_last_timestamp


# An entry of the offset index. ``position`` -1: there is none.
cdef struct OffsetEntry:
    int64_t offset
    int64_t position


cdef inline bint no_descriptor(int error) noexcept nogil:
    """Whether no file can be opened at this moment. Appends and reads then go on without the indexes."""
    return error == EMFILE or error == ENFILE


cdef int open_indexes(Indexes* indexes, const SegmentName* name, int64_t base_offset, int64_t room) noexcept nogil
cdef void close_indexes(Indexes* indexes) noexcept nogil
cdef int flush_indexes(const Indexes* indexes) noexcept nogil
cdef bint are_sane(Indexes* indexes, int64_t segment_size) noexcept nogil
cdef bint are_full(const Indexes* indexes) noexcept nogil
cdef int64_t bytes_of(const Index* index) noexcept nogil
cdef int add_entries(
    Indexes* indexes, int64_t last_offset, int64_t position, int64_t max_timestamp, int64_t offset_of_max_timestamp
) noexcept nogil
cdef int resize_indexes(Indexes* indexes, int64_t size) noexcept nogil
cdef int finish_indexes(Indexes* indexes, int64_t max_timestamp, int64_t offset_of_max_timestamp) noexcept nogil
cdef int truncate_indexes(Indexes* indexes, int64_t offset) noexcept nogil
cdef int floor_by_offset(Indexes* indexes, int64_t offset, OffsetEntry* found) noexcept nogil
cdef int floor_by_position(Indexes* indexes, int64_t position, OffsetEntry* found) noexcept nogil
cdef int floor_by_timestamp(Indexes* indexes, int64_t timestamp, int64_t* offset) noexcept nogil
cdef int offset_above(Indexes* indexes, int64_t position, int64_t* offset) noexcept nogil
