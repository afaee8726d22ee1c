from libc.stdint cimport int32_t, int64_t, uint32_t

from ctrlchan.channel.queues._frames cimport Frame, FrameMemory
from ctrlchan.channel.wire._records cimport Command


cdef class Outcome:
    cdef readonly object request
    # A RequestResult.
    cdef object result
    cdef readonly int64_t broker_id
    cdef readonly int64_t bytes
    cdef readonly int64_t enqueued_ns
    cdef readonly int64_t first_byte_ns
    cdef readonly int64_t last_byte_ns
    cdef readonly int64_t response_ns
    cdef readonly int64_t completed_ns
    # Of the broker's generation, 0 without a response.
    cdef uint32_t slot
    cdef readonly int32_t version
    cdef readonly int32_t attempts
    cdef readonly int32_t correlation_id
    cdef readonly int32_t sender_deaths
    cdef readonly int32_t merged

    cdef fill(self, Sent sent, result, int64_t completed_ns)


cdef class Sent:
    cdef readonly object request
    cdef public object callback
    cdef readonly Outcome outcome
    # Set by ``end``; becomes ``outcome`` in ``publish``.
    cdef readonly Outcome ending
    # None, one, or a list of several; changed only while LISTENING is held.
    cdef object listening
    # A weak reference: finished requests are part of no cycle.
    cdef object future_ref
    cdef readonly Frame frame
    cdef readonly int64_t broker_id
    cdef readonly int64_t enqueued_ns
    cdef public int64_t sequence
    cdef public int64_t bytes
    cdef public int32_t version
    cdef public int32_t sender_deaths
    cdef public bint is_internal
    # The request was in flight at least once.
    cdef readonly bint left_queue

    cdef fill(
        self, int64_t broker_id, request, callback, int64_t enqueued_ns, int32_t version, int64_t size
    )
    cpdef listen(self, listener)
    cdef ignore(self, listener)
    cpdef end(self, Outcome outcome)


cdef class QueueTimes:
    cdef int64_t counts[64]
    cdef readonly int64_t count
    cdef readonly int64_t total_ns

    cdef void add(self, int64_t waited_ns) noexcept


cdef class CommandPipe:
    cdef public int commands
    # The pipe is full; the dispatcher flushes when it no longer is.
    cdef public bint blocked
    cdef list outgoing
    cdef list dirty
    cdef list full

    cpdef write(self, bytes record)
    cpdef flush(self)


cdef class RequestQueue:
    cdef readonly QueueTimes queue_times
    cdef readonly uint32_t slot
    cdef public object sender
    cdef readonly object merger
    cdef public object versions
    cdef readonly object waiting
    cdef readonly object handed
    cdef public int64_t waiting_bytes
    cdef public int64_t handed_bytes
    cdef public int64_t sequence
    # UpdateMetadata that came since the last merging at the end of ``waiting``.
    cdef public int64_t loose
    cdef public int64_t loose_bytes
    cdef readonly int64_t most_bytes
    cdef public int32_t attempts
    cdef public bint gate
    cdef public bint held
    cdef public bint is_out_of_memory
    cdef public bint is_hand_over_due
    cdef public bint is_merge_due
    cdef public bint needs_resync

    cdef bint has_room(self)
    cdef bint has_version(self, Sent sent) except -1
    cdef bint count_loose(self, Sent sent) except -1
    cdef bint hand_at_once(self, Sent sent) except -1
    cdef Frame ready_frame(self, Sent sent)
    cdef int put(self, Sent sent, Frame frame, Command* command) except -1
    cdef int write_commands(self, const Command* commands, Py_ssize_t count) except -1
    cpdef bint append(self, Sent sent) except -1
    cpdef int hand(self, int most, int64_t now=*) except -1
    cpdef int first_leaves(self, int64_t now) except -1
    cdef int leave(self, Sent sent, int64_t now) except -1
    cpdef int top_up(self) except -1
    cpdef Sent finish_first(self)


cdef class QueueTable:
    cdef readonly FrameMemory memory
    cdef readonly list dirty
    cdef readonly list full
    cdef readonly dict by_id
    cdef readonly dict by_slot
    cdef public list ended
    cdef public list called
    cdef public list not_queued
    cdef public dict unattended
    cdef public list limited
    cdef readonly set out_of_memory
    cdef public int waker
    cdef public int64_t next_limit_ns

    cpdef wake(self)
