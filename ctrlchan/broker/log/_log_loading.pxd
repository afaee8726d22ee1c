from libc.stdint cimport int32_t, int64_t

from ctrlchan.broker.log._log_offsets cimport LogOffsets


cdef class LogLoading(LogOffsets):
    cdef int _recover_segment(self, int32_t i, int64_t start_offset, int64_t now_ms, int64_t* removed) except -100
