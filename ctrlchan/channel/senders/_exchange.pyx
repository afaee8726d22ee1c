"""The way of a request through a sender process when all goes well, with no Python object of its own.

SEND command -> frame -> ``send`` -> ``recv`` -> the expected response -> EXPECTED report, as long as all is
as it nearly always is: plain TCP, a connection that is up, a frame that the kernel takes whole, a response
that comes whole and is the expected one, byte for byte. Whatever is not so is left to the state machine
(``Link`` in ``link.py``, driven by ``Lane`` in ``sender.py``), which is the same for all requests: what
happens to a request is said there, and what is done here and there is done by the same methods. Without the
three functions at the end everything works, slower.

The layouts are those of ``channel/wire/records.py``; frames and responses are drawn in ``link.py``.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.exc cimport PyErr_SetFromErrno
from cpython.ref cimport PyObject
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from ctrlchan.channel.wire._records cimport Command, Report

from ctrlchan.channel.wire import records
from ctrlchan.channel.wire.poller import READ
from ctrlchan.channel.wire.records import COMMAND, INLINE, REPORT
from ctrlchan.channel.wire import states
from ctrlchan.channel.wire.states import LinkState

cdef extern from "<unistd.h>":
    ssize_t write(int fd, const void* data, size_t size)

cdef extern from "<sys/uio.h>":
    struct iovec:
        void* iov_base
        size_t iov_len

cdef extern from "<sys/socket.h>":
    struct msghdr:
        iovec* msg_iov
        int msg_iovlen

    ssize_t send(int fd, const void* data, size_t size, int flags)
    ssize_t sendmsg(int fd, const msghdr* message, int flags)
    ssize_t recv(int fd, void* data, size_t size, int flags)

cdef extern from *:
    """
    #include <stdint.h>
    #include <time.h>

    /* The clock of time.monotonic_ns: the parent compares its own times with these. */
    static inline int64_t ctrlchan_monotonic_ns(void) {
    #ifdef __APPLE__
        return (int64_t)clock_gettime_nsec_np(CLOCK_UPTIME_RAW);
    #else
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    #endif
    }
    static inline void ctrlchan_put32(unsigned char *to, uint32_t value) {
        for (int at = 0; at < 4; at++) to[at] = (unsigned char)(value >> (24 - 8 * at));
    }
    static inline uint32_t ctrlchan_get32(const unsigned char *from) {
        uint32_t value = 0;
        for (int at = 0; at < 4; at++) value = value << 8 | from[at];
        return value;
    }
    """
    int64_t ctrlchan_monotonic_ns()
    void ctrlchan_put32(unsigned char* to, uint32_t value)
    uint32_t ctrlchan_get32(const unsigned char* data)

assert sizeof(Command) == COMMAND.size
assert sizeof(Report) == REPORT.size
assert 8 <= INLINE == 40

cdef enum:
    # Of a frame: int32 size, int16 API key, int16 API version, int32 correlation id.
    CORRELATION_AT = 8
    # Of a response: int32 size, int32 correlation id.
    RESPONSE_HEAD = 8
    # A response is nearly always a few bytes.
    RESPONSE_BYTES = 4096
    PIECE_BYTES = 4096
    LEAST_COMMANDS = 4
    LEAST_OUTBOX = 4096

assert PIECE_BYTES == states.ONE_PIECE

cdef int64_t NEVER = states.NEVER
cdef int READABLE = READ
cdef uint8_t SEND = records.SEND
cdef uint8_t EXPECTED = records.EXPECTED
cdef int IDLE = LinkState.IDLE
cdef int READY = LinkState.READY
cdef int SENDING = LinkState.SENDING
cdef int AWAITING = LinkState.AWAITING
cdef int HELD = LinkState.HELD
cdef tuple STATES = tuple(LinkState)

# One thread runs in a sender's loop; nothing stays here from one call to the next.
cdef unsigned char head_buffer[PIECE_BYTES]
cdef unsigned char response_buffer[RESPONSE_BYTES]


cdef class CommandQueue:
    """SEND commands in order: a deque of ``Command`` for Python, a ring of records here."""

    cdef Command* _ring
    # A power of two, or 0.
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _first
    cdef Py_ssize_t count

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
        # It was full: what stood before its first goes behind its last.
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
        return COMMAND.unpack(PyBytes_FromStringAndSize(<char*>self.at(index), sizeof(Command)))


cdef class Outbox:
    """Bytes of reports that are not yet in the pipe to the parent."""

    cdef unsigned char* _data
    cdef size_t _capacity
    # What is written ends at ``_begin``, what is to be written at ``_end``.
    cdef size_t _begin
    cdef size_t _end

    def __dealloc__(self):
        free(self._data)

    cdef unsigned char* room(self, size_t size) except NULL:
        """Where so many bytes more are to be put, all of them at once."""
        cdef size_t capacity = max(self._capacity, <size_t>LEAST_OUTBOX)
        cdef unsigned char* data
        if self._begin == self._end:
            self._begin = self._end = 0
        if self._data == NULL or self._capacity - self._end < size:
            while capacity - self._end < size:
                capacity *= 2
            data = <unsigned char*>realloc(self._data, capacity)
            if data == NULL:
                raise MemoryError
            self._data = data
            self._capacity = capacity
        data = self._data + self._end
        self._end += size
        return data

    def append(self, bytes data not None):
        cdef size_t size = PyBytes_GET_SIZE(data)
        memcpy(self.room(size), PyBytes_AS_STRING(data), size)

    def __len__(self):
        return self._end - self._begin

    def write(self, int fd):
        """To a non-blocking pipe, as far as it takes them; whether all are written. OSError."""
        cdef ssize_t count
        while self._begin < self._end:
            count = write(fd, self._data + self._begin, self._end - self._begin)
            if count >= 0:
                self._begin += count
            elif errno == EAGAIN:
                return False
            elif errno != EINTR:
                PyErr_SetFromErrno(OSError)
        return True


cdef class Exchange:
    """One broker's requests, and the first of them while it goes out and its response comes in.

    What of a ``Link`` changes with each request. Times are monotonic nanoseconds. ``memory``: what frames lie
    in; ``fence[0]``: the highest controller epoch that must not be sent any more.
    """

    cdef readonly uint32_t slot
    cdef readonly int64_t broker_epoch
    cdef readonly CommandQueue items
    cdef readonly object memory
    cdef int _state
    cdef public int64_t deadline
    cdef public int64_t expires
    cdef public uint32_t attempts
    cdef public int32_t correlation
    cdef public bint agreed
    cdef public int direct
    cdef readonly int64_t first_byte_ns
    cdef readonly int64_t last_byte_ns
    cdef public object received
    cdef int64_t _request_timeout
    cdef const unsigned char[::1] _memory
    cdef const int64_t[::1] _fence

    def __init__(self, slot, broker_epoch, memory, fence, request_timeout):
        self.slot = slot
        self.broker_epoch = broker_epoch
        self.memory = self._memory = memory
        self._fence = fence
        self._request_timeout = request_timeout
        self.items = CommandQueue()
        self._state = IDLE
        self.deadline = self.expires = NEVER
        self.agreed = True
        self.direct = -1

    @property
    def state(self):
        return STATES[self._state]

    @state.setter
    def state(self, int state):
        self._state = state

    cpdef bint is_stale(self):
        """Whether the first item's controller epoch is fenced: it must not be (re)sent."""
        return self.items.at(0).controller_epoch <= self._fence[0]

    def compose(self, bytearray head not None, int64_t now):
        """Begin the first item: fill ``head`` with as much of its frame, ids and epochs in their places."""
        self._compose(head, len(head), now)

    cdef int _compose(self, unsigned char* head, size_t size, int64_t now) except -1:
        cdef Command* item = self.items.at(0)
        cdef uint64_t memory_size = self._memory.shape[0]
        if (
            not CORRELATION_AT + 4 <= <int64_t>size <= item.size
            or item.epoch_at + 8 > <int64_t>size
            or item.size > memory_size
            or item.offset > memory_size - item.size
        ):
            raise ValueError(f"a frame of {item.size} bytes at {item.offset}, which is not in the memory")
        memcpy(head, &self._memory[item.offset], size)
        ctrlchan_put32(head + CORRELATION_AT, <uint32_t>self.correlation)
        if item.epoch_at:
            ctrlchan_put32(head + item.epoch_at, <uint32_t>(<uint64_t>self.broker_epoch >> 32))
            ctrlchan_put32(head + item.epoch_at + 4, <uint32_t>(self.broker_epoch & 0xFFFFFFFF))
        self._state = SENDING
        self.first_byte_ns = now
        self.deadline = now + self._request_timeout
        return 0

    cpdef written(self, int64_t now):
        """The last byte of the frame was given to the kernel."""
        self._state = AWAITING
        self.last_byte_ns = now

    def settle(self, bytes body not None, Outbox outbox not None):
        """The first item has its response, here without size and correlation id. True: it was the expected
        one, which is reported, and the next item may follow; False: the parent must say so first."""
        if self._settle(<const unsigned char*>PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body), outbox):
            return True
        self._state = HELD
        self.deadline = NEVER
        return False

    cdef int _settle(self, const unsigned char* body, size_t size, Outbox outbox) except -1:
        """1: settled; 0: it is not the expected response, and nothing has changed."""
        cdef Command* item = self.items.at(0)
        cdef Report report
        if size == 0 or size != item.expect_size or memcmp(body, item.expect, size) != 0:
            return 0
        memset(&report, 0, sizeof(report))
        report.kind = EXPECTED
        report.inline_size = <uint16_t>size
        report.slot = self.slot
        report.sequence = item.sequence
        report.attempts = self.attempts + 1
        report.correlation_id = self.correlation
        report.first_byte_ns = self.first_byte_ns
        report.last_byte_ns = self.last_byte_ns
        report.response_ns = ctrlchan_monotonic_ns()
        memcpy(report.response, body, size)
        memcpy(outbox.room(sizeof(report)), &report, sizeof(report))
        self.deadline = NEVER
        self.next()
        return 1

    cpdef next(self):
        """The first item is done with."""
        self.items.drop()
        self._state = READY
        self.attempts = 0
        self.correlation = <int32_t>((<uint32_t>self.correlation + 1) & 0x7FFFFFFF)

    cdef int _begin_here(self, int64_t now) except -1:
        """Send the next request; 0: not here, and nothing has changed."""
        cdef Command* item
        cdef uint32_t size
        cdef ssize_t count
        if self.direct < 0 or self._state != READY or not self.agreed or self.items.count == 0:
            return 0
        item = self.items.at(0)
        size = item.size if item.size <= PIECE_BYTES else item.prefix_size
        if size > PIECE_BYTES or now >= self.expires or self.is_stale():
            return 0
        self._compose(head_buffer, size, now)
        count = self._send_head(item, size)
        while count < 0 and errno == EINTR:
            count = self._send_head(item, size)
        if count == <ssize_t>item.size:
            self.written(now)
        elif count >= 0 or errno == EAGAIN:
            self.write_rest(bytearray((<char*>head_buffer)[:size]), max(count, 0))
        else:
            self.lost(errno)
        return 1

    cdef ssize_t _send_head(self, const Command* item, size_t size):
        """And what follows it in shared memory, when it is not all of the frame."""
        cdef iovec parts[2]
        cdef msghdr message
        if size == item.size:
            return send(self.direct, head_buffer, size, 0)
        parts[0].iov_base = head_buffer
        parts[0].iov_len = size
        parts[1].iov_base = <void*>&self._memory[item.offset + size]
        parts[1].iov_len = item.size - size
        memset(&message, 0, sizeof(message))
        message.msg_iov = parts
        message.msg_iovlen = 2
        return sendmsg(self.direct, &message, 0)

    cdef int _receive_here(self, Outbox outbox) except -1:
        """Read what is to be read; 0: not here, and nothing was read; 2: it was the expected response."""
        cdef unsigned char* data = response_buffer
        cdef ssize_t count
        if self.direct < 0 or self._state != AWAITING or self.received is not None:
            return 0
        count = recv(self.direct, data, RESPONSE_BYTES, 0)
        if count < 0:
            if errno != EAGAIN and errno != EINTR:
                self.lost(errno)
        elif (
            count > RESPONSE_HEAD
            and ctrlchan_get32(data) == <uint32_t>(count - 4)
            and ctrlchan_get32(data + 4) == <uint32_t>self.correlation
            and self._settle(data + RESPONSE_HEAD, count - RESPONSE_HEAD, outbox)
        ):
            return 2
        else:
            self.take(PyBytes_FromStringAndSize(<char*>data, count))
        return 1


def queue_requests(bytes data not None, Py_ssize_t position, dict lanes not None, list after_reports not None):
    """Give the SEND commands from ``position`` on to their lanes (slot -> lane), up to the first command that
    is another or not whole; where that begins. Lanes that had nothing to do are put in ``after_reports``."""
    cdef const unsigned char* begin = <const unsigned char*>PyBytes_AS_STRING(data)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data)
    cdef const Command* command
    cdef Exchange lane
    while end - position >= <Py_ssize_t>sizeof(Command):
        command = <const Command*>(begin + position)
        if command.kind != SEND:
            break
        lane = lanes[command.slot]
        lane.items.put(begin + position)
        if lane.items.count == 1:
            after_reports.append(lane)
        position += sizeof(Command)
    return position


def begin_requests(list lanes not None):
    """Begin the next request of each of these lanes: the lanes for which it could not be done here, and the
    earliest deadline of the others."""
    cdef list others = []
    cdef int64_t deadline = NEVER
    cdef Exchange lane
    cdef int how
    for lane in lanes:
        try:
            how = lane._begin_here(ctrlchan_monotonic_ns())
        except Exception as problem:
            lane.internal_error(problem)
            how = 1
        if how:
            deadline = min(deadline, lane.deadline)
        else:
            others.append(lane)
    return others, deadline


def take_responses(list events not None, dict by_fd not None, Outbox outbox not None, list after_reports not None):
    """Read the responses that these events, (descriptor, what it is ready for), announce: the events that are
    others. Lanes that may go on are put in ``after_reports``."""
    cdef list others = []
    cdef tuple event
    cdef PyObject* found
    cdef Exchange lane
    cdef int how
    for event in events:
        found = PyDict_GetItem(by_fd, event[0])
        if found == NULL or <int>event[1] != READABLE:
            others.append(event)
            continue
        lane = <Exchange>found
        try:
            how = lane._receive_here(outbox)
        except Exception as problem:
            lane.internal_error(problem)
            continue
        if how == 0:
            others.append(event)
        elif how == 2 and lane.items.count:
            after_reports.append(lane)
    return others
