cimport cython
from libc.stdint cimport int32_t, int64_t

from ctrlchan.broker.log._leader_epochs cimport LeaderEpochs
from ctrlchan.broker.log._local_log cimport LocalLog
from ctrlchan.broker.log._producers cimport ProducerStates
from ctrlchan.broker.log._segments cimport Segments, SegmentSettings


@cython.final
cdef class LogLoader:
    cdef Segments segments
    cdef LeaderEpochs epochs
    cdef ProducerStates producers
    # Of the checkpoints
    cdef int64_t start_offset
    cdef int64_t recovery_point
    # The first offsets of segments whose files are to be deleted
    cdef list removed
    cdef object folder
    cdef int64_t now_ms

    cdef LocalLog load(self, const SegmentSettings* settings, bint clean)
    cdef int load_producers(self, int64_t end_offset, bint clean) except -1
    cdef list open_segments(self)
    cdef int recover_from(self, int32_t first) except -1
    cdef int recover(self, int32_t i, int64_t* removed) except -100
    cdef int rebuild(self, int64_t end_offset) except -1
    cdef int remove_from(self, int32_t first) except -1
    cdef int check(self, int result) except -1
