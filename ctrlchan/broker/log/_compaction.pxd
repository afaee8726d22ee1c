from libc.stdint cimport int32_t, int64_t

from ctrlchan.broker.log._segment cimport Segment
from ctrlchan.broker.log._segments cimport Segments


# A SegmentInfo.
cdef struct Info:
    int64_t base_offset
    int64_t size
    int64_t first_timestamp
    int64_t largest_timestamp
    int64_t modified_ns
    int64_t index_bytes
    int64_t time_index_bytes


# A segment that has no place in a log yet: no mutex is needed.
cdef class CleanedSegment:
    # NULL: it has found its place in a log
    cdef Segment* segment
    cdef object folder

    cdef int check(self, int result) except -1


cdef CleanedSegment create_cleaned(Segments segments, folder, int64_t base_offset)
# Describe all segments in memory that the caller frees. Requires the mutex of the log. Returns a result.
cdef int copy_infos(Segments segments, Info** infos, int32_t* count) noexcept nogil
cdef list describe_infos(Info* infos, int32_t count)
