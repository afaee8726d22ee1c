# The Python objects of partitions, each around its PartitionState.

from libc.stdint cimport int16_t, int32_t, int64_t

from ctrlchan._c.clock_functions cimport Clock
from ctrlchan.broker.replica._partition_state cimport PartitionState, Table


cdef class Partition

cdef class PartitionTable:
    cdef Table table
    cdef Clock clock
    # Without: ``serve_events`` does what the thread does
    cdef bint has_thread
    # (topic, index) -> Partition
    cdef dict found
    # Removed partitions that may be pinned
    cdef list removed
    cdef object isr_wanted
    cdef object storage_failed
    # Guards the appends that wait, of all partitions, and the start of the thread
    cdef object lock
    cdef object thread
    # A heap of (deadline in monotonic nanoseconds, number, append)
    cdef list deadlines
    cdef int64_t numbers

    cdef Partition _add(self, str topic, int32_t partition, bytes topic_id)
    cdef _start(self)


# An append from Python that waits for the high watermark. is_short: the future gives three fields of the result.
cdef class WaitingAppend:
    cdef Partition partition
    cdef int64_t required_offset
    cdef object result
    cdef object future
    cdef int16_t error
    cdef bint is_short

    cdef finish(self)


cdef class Partition:
    cdef PartitionState state
    cdef PartitionTable table
    cdef bytes name
    cdef readonly str topic
    # Appends that wait for the high watermark; guarded by the table's lock
    cdef list waiting
    # By API, Produce and Fetch: records that were written anew, in how many nanoseconds, and the bytes that this needed.
    # Changed with the GIL.
    cdef int64_t conversions[2][3]
    # Listeners to the low watermark; guarded by the table's lock
    cdef list low_watermark_listeners

    cdef void _set_tells_low_watermark(self, bint tells) noexcept
    cdef object _append(self, data, int origin, int64_t guard, int required_acks, int kind, int64_t* required_offset, bint* is_acknowledged)
    cdef object _begin(self, bint is_short, data, int origin, int64_t guard, int required_acks, int64_t timeout_ms, int kind)
    cdef object _wait_for_acks(self, result, bint is_short, int64_t required_offset, int64_t timeout_ms)
