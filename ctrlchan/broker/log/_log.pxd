from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from ctrlchan.broker.log._batches cimport Appended, Batch
from ctrlchan.broker.log._producers cimport ProducerStates, ProducerUpdate
from ctrlchan.broker.log._segment cimport AbortedEntry, Segment

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass


cdef enum Isolation:
    # Up to where a reader may read.
    LOG_END = 0
    HIGH_WATERMARK = 1
    LAST_STABLE_OFFSET = 2


# Whole batches of one file, and the offsets of the log when they were found. ``segment`` is NULL where ``size`` is 0;
# otherwise it has one reference of the reader's, who gives it back with ``release``.
cdef struct Range:
    Segment* segment
    int fd
    int64_t position
    int64_t size
    int64_t start_offset
    int64_t end_offset
    int64_t high_watermark
    int64_t last_stable_offset
    # More could be read but for ``max_bytes``
    bint is_cut
    # More can be read from a later segment
    bint is_older


# The first offset of a leader epoch.
cdef struct EpochStart:
    int32_t epoch
    int64_t offset


# A transaction whose marker may be above the high watermark.
cdef struct Ended:
    int64_t first_offset
    int64_t last_offset


cdef class Log:
    cdef pthread_mutex_t mutex
    cdef Segment** segments
    cdef int32_t count
    cdef int32_t room
    cdef int64_t start_offset_
    cdef int64_t end_offset_
    cdef int64_t recovery_point_
    cdef int64_t high_watermark_
    # Where the high watermark is; -1: not known
    cdef int64_t watermark_segment
    cdef int64_t watermark_position
    cdef int32_t latest_epoch
    # What ``epochs`` has, for code without the GIL
    cdef EpochStart* starts
    cdef int32_t start_count
    cdef readonly ProducerStates producers
    # Transactions that consumers of READ_COMMITTED wait for: the first offset of all that have not ended, or -1; and
    # those that have ended
    cdef int64_t first_undecided
    cdef Ended* ended
    cdef int32_t ended_count
    cdef int32_t ended_room
    # The errno or result that took the log offline, 0 while it is online
    cdef int failure
    cdef bint closed_
    # Of the configuration
    cdef int64_t segment_bytes, roll_ms, jitter_ms, index_bytes, index_interval_bytes, flush_messages, flush_ms
    # When the log was flushed last, and when the next removed file is to be deleted
    cdef int64_t flushed_ms
    cdef int64_t next_deletion_ms
    # How often segments were removed or batches truncated, and the lowest offset of a truncation
    cdef int64_t changes
    cdef int64_t lowest_truncation
    # A part of the log waits for ``flush``: a rolled segment, or flush.messages
    cdef bint wants_flush_
    cdef readonly object folder
    cdef readonly object config
    cdef readonly object epochs
    cdef bytes folder_bytes
    cdef const char* c_folder
    cdef uint64_t seed
    # Due time and path of each file that waits for its deletion
    cdef list deleted
    # What an error of recovery was raised with
    cdef object raised

    cdef int append_leader(
        self, uint8_t* data, Appended* appended, int32_t leader_epoch, int origin, int64_t now_ms
    ) noexcept nogil
    cdef int append_follower(self, uint8_t* data, Appended* appended, int64_t now_ms) noexcept nogil
    cdef int read_range(
        self, int64_t offset, int64_t max_bytes, Isolation isolation, bint whole_first, Range* found
    ) noexcept nogil
    cdef int find_aborted(
        self, int64_t offset, const Range* records, AbortedEntry** found, int32_t* count
    ) noexcept nogil
    cdef int find_end_of_epoch(self, int32_t epoch, int32_t* found_epoch, int64_t* end_offset) noexcept nogil
    cdef int64_t set_high_watermark(self, int64_t offset) noexcept nogil

    cdef void lock(self) noexcept
    cdef void unlock(self) noexcept
    cdef int check_online(self) except -1
    cdef int check(self, int result) except -1
    cdef int fail(self, int result) noexcept nogil
    cdef Segment* active(self) noexcept nogil
    cdef int32_t floor_segment(self, int64_t offset) noexcept nogil
    cdef int add_segment(self, Segment* segment) noexcept nogil
    cdef Segment* new_segment(self, int64_t base_offset, int64_t now_ms, int* error) noexcept nogil
    cdef int roll_segment(self, int64_t base_offset, int64_t now_ms) noexcept nogil
    cdef int write_batches(self, const uint8_t* data, Appended* appended, int origin, int64_t now_ms) noexcept nogil
    cdef int check_producers(
        self, const uint8_t* data, Appended* appended, int origin, ProducerUpdate* update
    ) noexcept nogil
    cdef int update_producers(
        self, const uint8_t* data, const Appended* appended, int origin, const ProducerUpdate* update
    ) noexcept nogil
    cdef int take_update(
        self, Segment* segment, const Batch* batch, const ProducerUpdate* update
    ) noexcept nogil
    cdef int replay_batch(self, Segment* segment, const uint8_t* data, const Batch* batch) noexcept nogil
    cdef int replay(self, int64_t from_offset, int64_t end_offset) noexcept nogil
    cdef int take_snapshot(self, bint sync) noexcept nogil
    cdef int64_t last_stable_offset(self) noexcept nogil
    cdef int assign_epochs(self, const uint8_t* data, int64_t size) noexcept nogil
    cdef int assign_epoch(self, int32_t epoch, int64_t start_offset) noexcept nogil
    cdef int copy_epochs(self) except -1
    cdef int collect_aborted(
        self, int64_t from_offset, int64_t end_offset, AbortedEntry** found, int32_t* count
    ) noexcept nogil
    cdef int locate(self, int64_t offset, int64_t* base_offset, int64_t* position) noexcept nogil
    cdef int find_range(
        self, int64_t offset, int64_t max_bytes, Isolation isolation, bint whole_first, Range* found
    ) noexcept nogil
    cdef int64_t move_high_watermark(self, int64_t offset) noexcept nogil
    cdef int64_t size_locked(self) noexcept nogil
    cdef object remove_segments(self, int32_t first, int32_t end)
    cdef int _recover_segment(self, int32_t i, int64_t start_offset, int64_t now_ms, int64_t* removed) except -100
