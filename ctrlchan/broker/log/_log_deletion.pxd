from libc.stdint cimport int64_t

from ctrlchan.broker.log._log_reads cimport LogReads


cdef class LogDeletion(LogReads):
    # The lowest offset of a truncation
    cdef int64_t lowest_truncation
