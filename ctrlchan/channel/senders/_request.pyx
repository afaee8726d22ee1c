"""The requests of one broker in order, and the progress of the first: bytes in, bytes out, no socket.

This is the part of ``ConnectionProtocol`` that changes with each request, as C. It makes no system call and
reads no clock. The record layouts are those of ``wire/records.py``; ``protocol.py`` draws frames and responses.
"""

cimport cython
from cpython.buffer cimport PyBUF_ND, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

from ctrlchan._c.bytes cimport put_i32, put_i64
from ctrlchan.channel.wire._records cimport Command, Report

from ctrlchan.channel.senders import states
from ctrlchan.channel.senders.states import ConnectionState
from ctrlchan.channel.wire import records
from ctrlchan.channel.wire.records import COMMAND, INLINE, REPORT

assert sizeof(Command) == COMMAND.size
assert sizeof(Report) == REPORT.size
assert 8 <= INLINE == 40

cdef enum:
    # Of a frame: int32 size, int16 API key, int16 API version, int32 correlation id.
    CORRELATION_AT = 8
    LEAST_COMMANDS = 4

cdef int64_t NEVER = states.NEVER
cdef uint8_t EXPECTED = records.EXPECTED
cdef int IDLE = ConnectionState.IDLE
cdef int READY = ConnectionState.READY
cdef int SENDING = ConnectionState.SENDING
cdef int AWAITING = ConnectionState.AWAITING
cdef int HELD = ConnectionState.HELD
cdef tuple STATES = tuple(ConnectionState)


cdef class CommandQueue:
    """SEND commands in order: a deque of ``Command`` for Python, a ring of records here."""

    def __dealloc__(self):
        free(self._ring)

    cdef Command* at(self, Py_ssize_t index) noexcept:
        return &self._ring[(self._first + index) & (self._capacity - 1)]

    cdef int put(self, const unsigned char* record) except -1:
        if self.count == self._capacity:
            self._grow()
        memcpy(self.at(self.count), record, sizeof(Command))
        self.count += 1
        return 0

    cdef int _grow(self) except -1:
        cdef Py_ssize_t capacity = max(2 * self._capacity, <Py_ssize_t>LEAST_COMMANDS)
        cdef Command* ring = <Command*>realloc(self._ring, capacity * sizeof(Command))
        if ring == NULL:
            raise MemoryError
        # The ring was full: the commands that stand before its first move behind its last.
        memcpy(&ring[self._capacity], ring, self._first * sizeof(Command))
        self._ring = ring
        self._capacity = capacity
        return 0

    cdef void drop(self) noexcept:
        self._first = (self._first + 1) & (self._capacity - 1)
        self.count -= 1

    def append(self, bytes record not None):
        if PyBytes_GET_SIZE(record) != sizeof(Command):
            raise ValueError(f"a command of {len(record)} bytes")
        self.put(<const unsigned char*>PyBytes_AS_STRING(record))

    def popleft(self):
        first = self[0]
        self.drop()
        return first

    def clear(self):
        self._first = self.count = 0

    def __len__(self):
        return self.count

    def __getitem__(self, Py_ssize_t index):
        if not 0 <= index < self.count:
            raise IndexError(f"command {index} of {self.count}")
        return records.Command._make(
            COMMAND.unpack(PyBytes_FromStringAndSize(<char*>self.at(index), sizeof(Command)))
        )


@cython.no_gc
cdef class HeldBuffer:
    """Holds the memory of an object until it is freed; a typed memoryview would be 15,000 lines of C."""

    def __cinit__(self, owner, Py_ssize_t item_size):
        PyObject_GetBuffer(owner, &self.view, PyBUF_ND)
        if self.view.ndim != 1 or self.view.itemsize != item_size:
            raise ValueError(f"expected items of {item_size} bytes, got {self.view.itemsize}")

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef class RequestInFlight:
    """The requests of one broker, and the state of the first of them. The stub describes the attributes."""

    def __init__(self, slot, broker_epoch, memory, fence, request_timeout):
        self.slot = slot
        self.broker_epoch = broker_epoch
        self.memory = memory
        self._memory = HeldBuffer(memory, 1)
        self._fence = HeldBuffer(fence, sizeof(int64_t))
        self._request_timeout = request_timeout
        self.queue = CommandQueue()
        self.state_code = IDLE
        self.deadline = self.expires = NEVER
        self.versions_accepted = True

    @property
    def state(self):
        return STATES[self.state_code]

    @state.setter
    def state(self, int state):
        self.state_code = state

    cpdef bint is_stale(self):
        return self.queue.at(0).controller_epoch <= (<const int64_t*>self._fence.view.buf)[0]

    def begin(self, bytearray head not None, int64_t now):
        self.fill(head, len(head), now)

    cdef int fill(self, unsigned char* head, size_t size, int64_t now) except -1:
        cdef Command* command = self.queue.at(0)
        cdef uint64_t memory_size = self._memory.view.len
        if (
            not CORRELATION_AT + 4 <= <int64_t>size <= command.size
            or command.epoch_at + 8 > <int64_t>size
            or command.size > memory_size
            or command.offset > memory_size - command.size
        ):
            raise ValueError(
                f"a frame of {command.size} bytes at {command.offset}, which is not in the memory"
            )
        memcpy(head, <const unsigned char*>self._memory.view.buf + command.offset, size)
        put_i32(head + CORRELATION_AT, self.correlation)
        if command.epoch_at:
            put_i64(head + command.epoch_at, self.broker_epoch)
        self.state_code = SENDING
        self.first_byte_ns = now
        self.deadline = now + self._request_timeout
        return 0

    cdef const unsigned char* body_at(self, size_t prefix_size) noexcept:
        """The first request's bytes from `prefix_size` on; ``fill`` has checked that they are in the memory."""
        return <const unsigned char*>self._memory.view.buf + self.queue.at(0).offset + prefix_size

    cpdef written(self, int64_t now):
        self.state_code = AWAITING
        self.last_byte_ns = now

    def end(self, bytes body not None, int64_t now):
        cdef Report report
        if self.accept(<const unsigned char*>PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body), now, &report):
            return PyBytes_FromStringAndSize(<char*>&report, sizeof(report))
        self.state_code = HELD
        self.deadline = NEVER
        return None

    cdef int accept(self, const unsigned char* body, size_t size, int64_t now, Report* report) except -1:
        """End the first request if `body` is its expected response, and fill `report`; else return 0."""
        cdef Command* command = self.queue.at(0)
        if size == 0 or size != command.expect_size or memcmp(body, command.expect, size) != 0:
            return 0
        memset(report, 0, sizeof(Report))
        report.kind = EXPECTED
        report.inline_size = <uint16_t>size
        report.slot = self.slot
        report.sequence = command.sequence
        report.attempts = self.attempts + 1
        report.correlation_id = self.correlation
        report.first_byte_ns = self.first_byte_ns
        report.last_byte_ns = self.last_byte_ns
        report.response_ns = now
        memcpy(report.response, body, size)
        self.deadline = NEVER
        self.next_request()
        return 1

    cpdef next_request(self):
        self.queue.drop()
        self.state_code = READY
        self.attempts = 0
        self.correlation = <int32_t>((<uint32_t>self.correlation + 1) & 0x7FFFFFFF)
