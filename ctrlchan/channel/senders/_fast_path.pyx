"""Sends ordinary requests and takes their responses, without a Python object for each.

SEND command -> frame -> ``send`` -> ``recv`` -> the expected response -> EXPECTED report. This works for plain
TCP, a connection that is ready, a frame that the kernel takes whole, and a response that arrives whole and is
the expected one. Everything else is left to ``BrokerConnection``, through methods that both ways share: the
state is that of ``ConnectionProtocol`` in either case. ``begin_requests`` and ``take_responses`` only make it faster;
``queue_requests`` is always needed.

An exception while one broker is served is that broker's failure: ``internal_error`` takes it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.exc cimport PyErr_SetFromErrno
from cpython.ref cimport PyObject
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from ctrlchan._c.bytes cimport get_i32
from ctrlchan._c.clocks cimport monotonic_ns
from ctrlchan.channel.senders._request cimport RequestInFlight
from ctrlchan.channel.wire._records cimport Command, Report

from ctrlchan.channel.senders import states
from ctrlchan.channel.senders.states import ConnectionState
from ctrlchan.channel.wire import records
from ctrlchan.channel.wire.poller import READ

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

cdef enum:
    # Of a response: int32 size, int32 correlation id.
    RESPONSE_HEAD = 8
    # A response is nearly always a few bytes.
    RESPONSE_BYTES = 4096
    PIECE_BYTES = 4096
    LEAST_REPORT_BYTES = 4096

assert PIECE_BYTES == states.ONE_PIECE

cdef enum Done:
    # Nothing was done; the driver's Python code must do it.
    NOTHING = 0
    # Something was done, and needs nothing more.
    DONE = 1
    # The response was the expected one: the next request may begin.
    ENDED = 2

cdef int64_t NEVER = states.NEVER
cdef int READABLE = READ
cdef uint8_t SEND = records.SEND
cdef int READY = ConnectionState.READY
cdef int AWAITING = ConnectionState.AWAITING

# One thread runs in a sender's loop, and no call leaves anything here for the next.
cdef unsigned char head_buffer[PIECE_BYTES]
cdef unsigned char response_buffer[RESPONSE_BYTES]


cdef class ReportBuffer:
    """Bytes of reports that are not yet in the pipe to the parent."""

    cdef unsigned char* _data
    cdef size_t _capacity
    # Bytes before ``_begin`` are written, those up to ``_end`` are not.
    cdef size_t _begin
    cdef size_t _end

    def __dealloc__(self):
        free(self._data)

    cdef unsigned char* reserve(self, size_t size) except NULL:
        """Reserve `size` bytes at the end; the caller fills them."""
        cdef size_t capacity = max(self._capacity, <size_t>LEAST_REPORT_BYTES)
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
        memcpy(self.reserve(size), PyBytes_AS_STRING(data), size)

    def __len__(self):
        return self._end - self._begin

    def write(self, int fd):
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


cdef class SocketDriver:
    """A connection's protocol and its socket; the base of ``BrokerConnection``."""

    cdef readonly RequestInFlight protocol
    cdef public int plain_socket

    def __init__(self, RequestInFlight protocol not None):
        self.protocol = protocol
        self.plain_socket = -1


cdef Done begin_request(SocketDriver driver, int64_t now) except *:
    """Send the next request of this connection."""
    cdef RequestInFlight protocol = driver.protocol
    cdef Command* command
    cdef uint32_t size
    cdef ssize_t count
    if (
        driver.plain_socket < 0
        or protocol.state_code != READY
        or not protocol.versions_accepted
        or protocol.queue.count == 0
    ):
        return NOTHING
    command = protocol.queue.at(0)
    size = command.size if command.size <= PIECE_BYTES else command.prefix_size
    if size > PIECE_BYTES or now >= protocol.expires or protocol.is_stale():
        return NOTHING
    protocol.fill(head_buffer, size, now)
    count = send_frame(driver.plain_socket, protocol, size)
    while count < 0 and errno == EINTR:
        count = send_frame(driver.plain_socket, protocol, size)
    if count == <ssize_t>command.size:
        protocol.written(now)
    elif count >= 0 or errno == EAGAIN:
        driver.write_rest(bytearray((<char*>head_buffer)[:size]), max(count, 0))
    else:
        driver.io_failed(errno)
    return DONE


cdef ssize_t send_frame(int fd, RequestInFlight protocol, size_t size) noexcept:
    """Send the head buffer and, where that is not the whole frame, the rest from shared memory."""
    cdef iovec parts[2]
    cdef msghdr message
    cdef Command* command = protocol.queue.at(0)
    if size == command.size:
        return send(fd, head_buffer, size, 0)
    parts[0].iov_base = head_buffer
    parts[0].iov_len = size
    parts[1].iov_base = <void*>protocol.body_at(size)
    parts[1].iov_len = command.size - size
    memset(&message, 0, sizeof(message))
    message.msg_iov = parts
    message.msg_iovlen = 2
    return sendmsg(fd, &message, 0)


cdef Done take_response(SocketDriver driver, ReportBuffer reports) except *:
    """Read what the broker has sent."""
    cdef RequestInFlight protocol = driver.protocol
    cdef unsigned char* data = response_buffer
    cdef Report report
    cdef ssize_t count
    if driver.plain_socket < 0 or protocol.state_code != AWAITING or protocol.received is not None:
        return NOTHING
    count = recv(driver.plain_socket, data, RESPONSE_BYTES, 0)
    if count < 0:
        if errno != EAGAIN and errno != EINTR:
            driver.io_failed(errno)
    elif (
        count > RESPONSE_HEAD
        and get_i32(data) == count - 4
        and get_i32(data + 4) == protocol.correlation
        and protocol.accept(data + RESPONSE_HEAD, count - RESPONSE_HEAD, monotonic_ns(), &report)
    ):
        memcpy(reports.reserve(sizeof(report)), &report, sizeof(report))
        return ENDED
    else:
        driver.take(PyBytes_FromStringAndSize(<char*>data, count))
    return DONE


def queue_requests(
    bytes data not None, Py_ssize_t position, dict connections not None, list after_reports not None
):
    cdef const unsigned char* begin = <const unsigned char*>PyBytes_AS_STRING(data)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data)
    cdef const Command* command
    cdef SocketDriver driver
    while end - position >= <Py_ssize_t>sizeof(Command):
        command = <const Command*>(begin + position)
        if command.kind != SEND:
            break
        driver = connections[command.slot]
        driver.protocol.queue.put(begin + position)
        if driver.protocol.queue.count == 1:
            after_reports.append(driver)
        position += sizeof(Command)
    return position


def begin_requests(list connections not None):
    cdef list others = []
    cdef int64_t deadline = NEVER
    cdef SocketDriver driver
    cdef Done done
    for driver in connections:
        try:
            done = begin_request(driver, monotonic_ns())
        except Exception as problem:
            driver.internal_error(problem)
            done = DONE
        if done == NOTHING:
            others.append(driver)
        else:
            deadline = min(deadline, driver.protocol.deadline)
    return others, deadline


def take_responses(
    list events not None, dict by_fd not None, ReportBuffer reports not None, list after_reports not None
):
    cdef list others = []
    cdef tuple event
    cdef PyObject* found
    cdef SocketDriver driver
    cdef Done done
    for event in events:
        found = PyDict_GetItem(by_fd, event[0])
        if found == NULL or <int>event[1] != READABLE:
            others.append(event)
            continue
        driver = <SocketDriver>found
        try:
            done = take_response(driver, reports)
        except Exception as problem:
            driver.internal_error(problem)
            continue
        if done == NOTHING:
            others.append(event)
        elif done == ENDED and driver.protocol.queue.count:
            after_reports.append(driver)
    return others
