from libc.stdint cimport int32_t, int64_t, uint8_t

from ctrlchan.broker.log._batches cimport Batch
from ctrlchan.broker.log._leader_epochs cimport LeaderEpochs
from ctrlchan.broker.log._log_files cimport LogFiles
from ctrlchan.broker.log._producers cimport ProducerUpdate
from ctrlchan.broker.log._segment cimport Segment


# A transaction whose marker may be above the high watermark.
cdef struct Ended:
    int64_t first_offset
    int64_t last_offset


cdef class LogOffsets(LogFiles):
    cdef int64_t start_offset_
    cdef int64_t end_offset_
    cdef int64_t recovery_point_
    cdef int64_t high_watermark_
    # Where the high watermark is; -1: not known
    cdef int64_t watermark_segment
    cdef int64_t watermark_position
    cdef LeaderEpochs epochs
    # Transactions that consumers of READ_COMMITTED wait for: the first offset of all that have not ended, or -1; and
    # those that have ended
    cdef int64_t first_undecided
    cdef Ended* ended
    cdef int32_t ended_count
    cdef int32_t ended_room

    cdef int64_t set_high_watermark(self, int64_t offset) noexcept nogil
    cdef int64_t move_high_watermark(self, int64_t offset) noexcept nogil
    cdef int begin_epoch(self, int32_t epoch, int64_t* start_offset) noexcept nogil
    cdef void increment_start(self, int64_t offset) noexcept nogil
    cdef void clear_producers(self, int64_t end_offset) noexcept nogil
    cdef bint has_nobody_to_forget(self, int64_t end_offset) noexcept nogil
    cdef int rebuild_producers(
        self, const uint8_t* snapshot, int64_t snapshot_offset, int64_t start_offset, int64_t end_offset, int64_t now_ms
    ) noexcept nogil
    cdef tuple choose_snapshot(self, int64_t start_offset, int64_t end_offset, bint is_read)
    cdef int rebuild(self, int64_t start_offset, int64_t end_offset, int64_t now_ms) except -1
    cdef int find_end_of_epoch(self, int32_t epoch, int32_t* found_epoch, int64_t* end_offset) noexcept nogil
    cdef int64_t last_stable_offset(self) noexcept nogil
    cdef int take_update(
        self, Segment* segment, const Batch* batch, const ProducerUpdate* update
    ) noexcept nogil
    cdef int replay_batch(self, Segment* segment, const uint8_t* data, const Batch* batch) noexcept nogil
    cdef int replay(self, int64_t from_offset, int64_t end_offset) noexcept nogil
