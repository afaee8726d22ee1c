from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from ctrlchan.channel.wire._records cimport Command, Report


cdef class CommandQueue:
    cdef Command* _ring
    # A power of two, or 0.
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _first
    cdef Py_ssize_t count

    cdef Command* at(self, Py_ssize_t index) noexcept
    cdef int put(self, const unsigned char* record) except -1
    cdef int _grow(self) except -1
    cdef void drop(self) noexcept


cdef class HeldBuffer:
    cdef Py_buffer view


cdef class RequestInFlight:
    cdef readonly uint32_t slot
    cdef readonly int64_t broker_epoch
    cdef readonly CommandQueue queue
    cdef readonly object memory
    # A ConnectionState.
    cdef int state_code
    cdef public int64_t deadline
    cdef public int64_t expires
    cdef public uint32_t attempts
    cdef public int32_t correlation
    cdef public bint versions_accepted
    cdef readonly int64_t first_byte_ns
    cdef readonly int64_t last_byte_ns
    cdef public object received
    cdef int64_t _request_timeout
    # Frames lie in `_memory`; `_fence` is one int64, the fenced controller epoch.
    cdef HeldBuffer _memory
    cdef HeldBuffer _fence

    cpdef bint is_stale(self)
    cdef int fill(self, unsigned char* head, size_t size, int64_t now) except -1
    cdef const unsigned char* body_at(self, size_t prefix_size) noexcept
    cpdef written(self, int64_t now)
    cdef int accept(self, const unsigned char* body, size_t size, int64_t now, Report* report) except -1
    cpdef next_request(self)
