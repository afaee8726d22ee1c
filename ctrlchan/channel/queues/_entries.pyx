"""The code of the channel that runs once per request: queueing, handing over, taking reports.

A hundred thousand requests may end in a second. Each is a ``Sent`` in a ``RequestQueue``. It is handed to a
sender process as a command, comes back as a report, and ends in an ``Outcome``; no tuple or dict is made.
Code that runs for few requests (merged ones, responses to decode, failures) is in ``channel_state.py`` and
``broker_queue.py``.

``QueueTable.enqueue`` is one call of C from the first change to the last: a signal handler that raises cannot
strike in between, so an interrupted send has either queued its requests or not. Work that needs Python code
is only noted there (``unattended``, ``not_queued``, ``limited``); the dispatcher or a thread of its own does
it.

The garbage collector does not visit ``Outcome`` and ``Sent``, because a backlog of them is long. So nothing
that has ended may be part of a cycle: callback and listeners are dropped, and ``future`` is a weak reference.

Called with the channel's lock held, except ``publish``, ``Countdown`` and the methods for users. Records are
read and written in the byte order of the pipe (``records.py``).
"""

import threading
import weakref
from collections import deque
from time import monotonic_ns

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, EINTR, EPIPE, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from posix.unistd cimport write as write_fd

from ctrlchan.channel.queues._frames cimport Frame, FrameMemory
from ctrlchan.channel.wire._records cimport Command, Report

from ctrlchan._codec import UPDATE_METADATA
from ctrlchan.channel.wire import records

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    int SIGPIPE, SIG_BLOCK, SIG_SETMASK
    int sigemptyset(sigset_t*)
    int sigaddset(sigset_t*, int)
    int sigismember(const sigset_t*, int)
    int sigpending(sigset_t*)
    int sigwait(const sigset_t*, int*)
    int pthread_sigmask(int, const sigset_t*, sigset_t*)

# They make the future and the awaitable of a Sent. Their classes need those of this file.
cdef object _future_of = None
cdef object _awaitable_of = None


def wait_with(future_of, awaitable_of):
    """Let these functions make the future and the awaitable of each Sent."""
    global _future_of, _awaitable_of
    _future_of, _awaitable_of = future_of, awaitable_of


#: Held while an outcome is published and while a listener is added, so that no listener misses an outcome.
LISTENING = threading.Lock()

cdef extern from *:
    int __builtin_clzll(unsigned long long)

assert sizeof(Command) == records.COMMAND.size
assert sizeof(Report) == records.REPORT.size

cdef uint8_t SEND = records.SEND
cdef uint8_t EXPECTED = records.EXPECTED
cdef size_t REST = records.COMMAND_REST.size
assert REST == sizeof(Command) - records.COMMAND_HEAD.size
cdef int32_t UPDATE = UPDATE_METADATA

#: The deadline of a request without a time limit, in monotonic nanoseconds.
NEVER = 2**63 - 1

cdef enum:
    # A sender gets this many requests ahead, so that one wake-up moves many of them ...
    WINDOW = 64
    # ... and no more than this (1 MiB) beyond the second: requests that it does not have can still change.
    WINDOW_BYTES = 1048576
    WINDOW_LEAST = 2
    # It gets more when so few are left, and not with every single request.
    LOW_WATER = 32

    # Waiting UpdateMetadata are merged when LOOSE of them came since the last merging (or the backlog is too
    # large), and these are at least 1/LOOSE_SHARE of the waiting bytes, or LOOSE_MOST requests.
    LOOSE = 64
    LOOSE_SHARE = 8
    LOOSE_MOST = 1024


@cython.no_gc
@cython.freelist(1024)
@cython.auto_pickle(False)
cdef class Outcome:
    """The end of one request to one broker.

    ``kind`` (``OutcomeKind``) says how it ended. ``error_code`` is the response's own Kafka error code.
    ``version`` is the version that this broker was sent. ``bytes`` is the size of its frame, or of all its
    frames where the request was split. A request that was not sent has the values that it would have had.
    ``merged``: how many requests, this one included, were sent to the broker as one; they share its
    response, and each has its ``bytes``.

    - ``attempts``: how often the request was sent, 0 if it never left the queue.
    - ``sender_deaths``: how many sender processes ended while they had it.
    - ``correlation_id``: of the request on its connection; -1 without a response.

    Times are monotonic nanoseconds; without a response the three in the middle are 0:

    - ``enqueued_ns``: the channel took the request.
    - ``first_byte_ns``, ``last_byte_ns``: the last attempt wrote its first and last byte.
    - ``response_ns``: the response was complete.
    - ``completed_ns``: the channel had the outcome.
    """

    def __init__(self, Sent sent not None, result, report=None, completed_ns=0, merged=1):
        self.fill(sent, result, completed_ns)
        self.merged = merged
        if report is not None:
            self.slot = report.slot
            self.attempts += report.attempts
            self.correlation_id = report.correlation_id
            self.first_byte_ns = report.first_byte_ns
            self.last_byte_ns = report.last_byte_ns
            self.response_ns = report.response_ns

    cdef fill(self, Sent sent, result, int64_t completed_ns):
        self.request = sent.request
        self.result = result
        self.broker_id = sent.broker_id
        self.bytes = sent.bytes
        self.version = sent.version
        self.enqueued_ns = sent.enqueued_ns
        self.completed_ns = completed_ns
        self.sender_deaths = self.attempts = sent.sender_deaths
        self.correlation_id = -1
        self.merged = 1

    @property
    def kind(self):
        return (<tuple>self.result)[0]

    @property
    def error_code(self):
        """The response's own error code; 0 when there was no response."""
        return (<tuple>self.result)[1]

    @property
    def response(self):
        """The decoded response. Equal responses may be one object: treat it as read-only."""
        return (<tuple>self.result)[2]

    @property
    def detail(self):
        """The reason of the outcome, or the names of its errors; may be empty."""
        return (<tuple>self.result)[3]

    @property
    def api_key(self):
        return self.request.api_key

    @property
    def rows(self):
        """Number of partitions in the request."""
        return self.request.rows

    def __repr__(self):
        error = f" error_code={self.error_code}" if self.error_code else ""
        detail = f" ({self.detail})" if self.detail else ""
        return f"<Outcome broker {self.broker_id}: {self.kind.value}{error}{detail} {self.request!r}>"


@cython.no_gc
@cython.freelist(1024)
@cython.auto_pickle(False)
cdef class Sent:
    """One request for one broker. It is cheap: a future is made only when ``future`` is read.

    ``outcome`` is None until the request has ended and its callback, if any, has returned or failed.
    ``await sent`` gives the Outcome; a task that is cancelled there cancels the request while it is queued.

    Other fields are for the channel:

    - ``sequence``: number in the pipe to the sender, 0 until it is handed over.
    - ``version``, ``bytes``: of the frame that is sent, which coalescing may change.
    - ``is_internal``: a queue entry that the channel made in place of others
      (``coalescing/internal_entries.py``); users never hold one.
    """

    def __init__(self, broker_id, request, callback, enqueued_ns):
        self.fill(broker_id, request, callback, enqueued_ns, request.version, request.size)

    cdef fill(
        self, int64_t broker_id, request, callback, int64_t enqueued_ns, int32_t version, int64_t size
    ):
        self.broker_id = broker_id
        self.request = request
        self.callback = callback
        self.enqueued_ns = enqueued_ns
        self.version = version
        self.bytes = size

    @property
    def api_key(self):
        return self.request.api_key

    @property
    def done(self):
        return self.outcome is not None

    @property
    def future(self):
        """A future that resolves to the Outcome; it never holds an exception.

        ``future.cancel()`` cancels the request if it is still queued. A request that is cancelled in another
        way resolves its future to an Outcome of kind CANCELLED.
        """
        with LISTENING:
            future = None if self.future_ref is None else self.future_ref()
            if future is None:
                future = _future_of(self)
                self.future_ref = weakref.ref(future)
                if self.outcome is None:
                    self.listen(future)
                else:
                    future.finished(self)
            return future

    def cancel(self):
        """Cancel the request if it is still queued, and return whether it was.

        True: it ends as CANCELLED, and nothing of it is sent. False: a sender process has it, or it has
        ended. ``ControllerChannelManager.cancel`` cancels many at once.
        """
        channel = self.request.channel
        return channel is not None and channel.cancel((self,)) == 1

    def __await__(self):
        return _awaitable_of(self).__await__()

    @property
    def listeners(self):
        """The listeners that are called when the request has its outcome."""
        if self.listening is None:
            return ()
        return tuple(self.listening) if type(self.listening) is list else (self.listening,)

    cpdef listen(self, listener):
        """Add a listener. The caller holds LISTENING, and there is no outcome yet."""
        if self.listening is None:
            self.listening = listener
        elif type(self.listening) is list:
            (<list>self.listening).append(listener)
        else:
            self.listening = [self.listening, listener]

    cdef ignore(self, listener):
        """Remove a listener. The caller holds LISTENING."""
        if self.listening is listener:
            self.listening = None
        elif type(self.listening) is list and listener in <list>self.listening:
            (<list>self.listening).remove(listener)

    cpdef end(self, Outcome outcome):
        """Set the outcome that ``publish`` will make visible."""
        self.ending = outcome
        self.frame = None

    def __repr__(self):
        end = "unfinished" if self.outcome is None else self.outcome.kind.value
        return f"<Sent to broker {self.broker_id}: {end} {self.request!r}>"


cdef class Countdown:
    """Calls ``then`` once, on the channel's thread, when all these requests have their outcomes.

    ``missing``: how many have none yet. If it is 0 from the beginning, ``then`` is never called.
    """

    cdef readonly Py_ssize_t missing
    cdef object then
    cdef list sent

    def __init__(self, list sent not None, then):
        self.sent = sent
        self.then = then
        with LISTENING:
            for one in sent:
                if (<Sent?>one).outcome is None:
                    (<Sent>one).listen(self)
                    self.missing += 1

    def finished(self, sent):
        """Call ``then``; ``publish`` arranges that only the last request does."""
        self.then()

    def stop(self):
        """Stop listening."""
        with LISTENING:
            for one in self.sent:
                (<Sent>one).ignore(self)


def publish(list ended not None):
    """Make the outcomes of these requests visible, and return the listeners to call: [(listener, sent)].

    The caller calls them without holding a lock.
    """
    cdef Sent sent
    cdef list notifications = []
    with LISTENING:
        for one in ended:
            sent = <Sent?>one
            sent.outcome, sent.ending = sent.ending, None
            sent.callback = None
            listening, sent.listening = sent.listening, None
            if listening is None:
                continue
            for listener in <list>listening if type(listening) is list else (listening,):
                if type(listener) is Countdown:
                    (<Countdown>listener).missing -= 1
                    if (<Countdown>listener).missing:
                        continue
                notifications.append((listener, sent))
    return notifications


cdef class QueueTimes:
    """How long requests waited in the queue of one broker, counted when they leave it.

    ``count`` requests have left, after ``total_ns`` nanoseconds altogether. Kafka's
    ``RequestRateAndQueueTimeMs``, which ``RequestSendThread`` updates when it takes an item.
    """

    cdef void add(self, int64_t waited_ns) noexcept:
        self.count += 1
        self.total_ns += waited_ns
        self.counts[0 if waited_ns == 0 else 64 - __builtin_clzll(<unsigned long long>waited_ns)] += 1

    def histogram(self):
        """Return 64 counts: count 0 is of requests that did not wait, count i of requests that waited for at
        least 2**(i-1) and less than 2**i nanoseconds."""
        return list(self.counts)


cdef class CommandPipe:
    """The parent's end of the pipe to one sender, and the commands that are not yet written to it.

    ``commands`` is its file descriptor, -1 while there is none: commands wait until there is one. ``dirty``
    and ``full`` are lists that all pipes of a channel share: pipes with commands to write, and pipes that
    took only a part of their commands.
    """

    def __init__(self, list dirty not None, list full not None):
        self.commands = -1
        self.outgoing = []
        self.dirty = dirty
        self.full = full

    cpdef write(self, bytes record):
        """Queue a command; ``flush`` writes it."""
        if not self.outgoing and not self.blocked:
            self.dirty.append(self)
        self.outgoing.append(record)

    cpdef flush(self):
        """Write what the pipe takes; never blocks."""
        cdef bytes data
        cdef Py_ssize_t count
        if self.commands < 0 or not self.outgoing:
            return
        data = <bytes>self.outgoing[0] if len(self.outgoing) == 1 else b"".join(self.outgoing)
        count = write_some(self.commands, PyBytes_AS_STRING(data), len(data))
        if count < 0:
            # The process is gone; the end of its reports says so to the dispatcher.
            count = len(data)
        self.outgoing.clear()
        self.blocked = count < len(data)
        if self.blocked:
            self.outgoing.append(data[count:])
            self.full.append(self)

    def drop_commands(self):
        """Discard the commands that are not written yet."""
        self.outgoing.clear()
        self.blocked = False


cdef Py_ssize_t write_some(int fd, const char* data, Py_ssize_t size) noexcept:
    """Write to a pipe without blocking and without SIGPIPE, whatever the program does with that signal.

    Returns the number of bytes that the pipe took; -1 if its reader is gone.
    """
    cdef sigset_t pipe_signal, before, pending
    cdef Py_ssize_t count
    cdef int error = 0
    cdef int signal
    sigemptyset(&pipe_signal)
    sigaddset(&pipe_signal, SIGPIPE)
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &before)
    while True:
        count = write_fd(fd, data, size)
        if count >= 0:
            break
        error = errno
        if error != EINTR:
            break
    if count < 0 and error == EPIPE and not sigismember(&before, SIGPIPE):
        # The signal is pending for this thread alone: remove it.
        sigpending(&pending)
        if sigismember(&pending, SIGPIPE):
            sigwait(&pipe_signal, &signal)
    pthread_sigmask(SIG_SETMASK, &before, NULL)
    if count >= 0:
        return count
    return 0 if error == EAGAIN else -1


def flush_all(list dirty not None):
    """Write the commands of all these pipes; never blocks."""
    for pipe in dirty:
        (<CommandPipe?>pipe).flush()
    dirty.clear()


cdef class RequestQueue:
    """The unfinished requests of one broker, in order: those that wait, and those its sender has.

    ``waiting`` and ``handed`` are deques of ``Sent``; the first of ``handed`` is in flight.

    ``gate``: the last request handed over has a callback; the next one waits until that has returned.
    ``held``: no request may be handed over. ``is_out_of_memory``: the first waiting request found no room in
    shared memory. ``merger``: None: requests are not merged. ``versions``: the broker's versions of each API;
    None: it was not asked. ``most_bytes``: if more bytes wait, all requests that can be merged are merged.
    ``is_merge_due`` and ``is_hand_over_due``: ``attend`` has work.
    """

    def __init__(self, slot, sender, merger):
        self.slot = slot
        self.sender = sender
        self.merger = merger
        self.most_bytes = NEVER if merger is None else merger.most_bytes
        self.waiting = deque()
        self.handed = deque()
        self.queue_times = QueueTimes()

    def __len__(self):
        return len(self.waiting) + len(self.handed)

    cdef bint has_room(self):
        """Whether the sender may have another request."""
        cdef Py_ssize_t handed = len(self.handed)
        return handed < WINDOW_LEAST or (handed < WINDOW and self.handed_bytes < WINDOW_BYTES)

    @property
    def may_hand(self):
        """Whether there is another request that the sender may have."""
        return not (self.gate or self.held) and bool(self.waiting) and self.has_room()

    cpdef bint append(self, Sent sent) except -1:
        """Queue a request and hand it over if it needs no change. True: the caller must call ``attend``."""
        if not self.waiting and len(self.handed) < WINDOW_LEAST and not self.gate and not self.held:
            # The common case: no backlog, so the request needs no merging and no other version.
            if self.hand_at_once(sent):
                return self.is_hand_over_due or self.is_merge_due
            self.is_hand_over_due = True
        elif len(self.handed) < WINDOW_LEAST and not self.gate and not self.held:
            # A queue that waits for memory is attended when memory is free.
            self.is_hand_over_due = self.is_hand_over_due or not self.is_out_of_memory
        self.waiting.append(sent)
        self.waiting_bytes += sent.bytes
        if self.merger is not None and self.count_loose(sent):
            self.is_merge_due = True
        return self.is_hand_over_due or self.is_merge_due

    cdef bint count_loose(self, Sent sent) except -1:
        """Count a waiting request. True: there are so many, or so many bytes, that they must be merged."""
        if sent.request.api_key != UPDATE:
            self.loose = self.loose_bytes = 0
            return False
        self.loose += 1
        self.loose_bytes += sent.bytes
        if self.loose < LOOSE and self.waiting_bytes <= self.most_bytes:
            return False
        # Merging reads and writes merged requests again, so a few more bytes are no reason for it.
        return self.loose >= LOOSE_MOST or self.loose_bytes * LOOSE_SHARE >= self.waiting_bytes

    cdef bint has_version(self, Sent sent) except -1:
        """Whether the broker has the version of the request."""
        cdef object ends
        if self.versions is None:
            return True
        ends = self.versions.get(sent.request.api_key)
        return ends is not None and ends[0] <= sent.request.version <= ends[1]

    cdef bint hand_at_once(self, Sent sent) except -1:
        """Hand over a request that nothing waits before. False: ``hand`` would not hand it over either."""
        cdef Command command
        cdef bint idle = not self.handed
        cdef Frame frame = self.ready_frame(sent)
        if frame is None:
            return False
        self.put(sent, frame, &command)
        self.write_commands(&command, 1)
        if idle:
            RequestQueue.first_leaves(self, sent.enqueued_ns)
        return True

    cdef Frame ready_frame(self, Sent sent):
        """Return its frame if the request is in shared memory, in a version that the broker has, else None."""
        cdef Frame frame = sent.request.frame
        if frame is None or frame.offset < 0 or not self.has_version(sent):
            return None
        return frame

    cdef int put(self, Sent sent, Frame frame, Command* command) except -1:
        """Count the request among those of the sender, and write its command."""
        frame.pins += 1
        sent.frame = frame
        self.sequence += 1
        sent.sequence = self.sequence
        self.handed.append(sent)
        self.handed_bytes += frame.size
        command.kind = SEND
        command.expect_size = frame.expect_size
        command.epoch_at = frame.epoch_at
        command.slot = self.slot
        command.sequence = sent.sequence
        memcpy(&command.offset, PyBytes_AS_STRING(frame.rest), REST)
        self.gate = sent.callback is not None
        return 0

    cdef int write_commands(self, const Command* commands, Py_ssize_t count) except -1:
        """Queue these commands for the sender."""
        cdef bytes record = PyBytes_FromStringAndSize(<const char*>commands, count * sizeof(Command))
        if isinstance(self.sender, CommandPipe):
            # No look-up of the method.
            CommandPipe.write(<CommandPipe>self.sender, record)
        else:
            self.sender.write(record)
        return 0

    cpdef int hand(self, int most, int64_t now=0) except -1:
        """Hand over the first waiting requests, at most ``most``, and return how many were handed over.

        Stops at a request that is not in shared memory or whose version the broker does not have, and behind
        one with a callback. ``now``: monotonic nanoseconds; 0: the clock is read here.
        """
        cdef Command commands[WINDOW]
        cdef Sent sent
        cdef Frame frame
        cdef int count = 0
        cdef bint idle = not self.handed
        most = min(most, WINDOW)
        while count < most and self.waiting and not self.gate and not self.held and self.has_room():
            sent = <Sent?>self.waiting[0]
            frame = self.ready_frame(sent)
            if frame is None:
                break
            self.waiting.popleft()
            self.waiting_bytes -= frame.size
            self.put(sent, frame, &commands[count])
            count += 1
        if count:
            self.write_commands(commands, count)
            if idle:
                self.first_leaves(now if now else monotonic_ns())
        return count

    cpdef int first_leaves(self, int64_t now) except -1:
        """Note that the first request handed over, if any, is in flight from ``now`` on (monotonic ns)."""
        if self.handed:
            self.leave(<Sent>self.handed[0], now)
        return 0

    cdef int leave(self, Sent sent, int64_t now) except -1:
        """Count a request that leaves the queue: only once, also if another sender sends it again."""
        if sent.left_queue:
            return 0
        sent.left_queue = True
        if sent.is_internal:
            for one in sent.represents():
                self.leave(<Sent?>one, now)
        else:
            self.queue_times.add(max(0, now - sent.enqueued_ns))
        return 0

    cpdef int top_up(self) except -1:
        """Hand over more requests if the sender has few left."""
        if self.waiting and len(self.handed) <= LOW_WATER:
            self.hand_over()
        return 0

    cpdef Sent finish_first(self):
        """Remove and return the first handed request, which has ended; the caller releases its frame."""
        cdef Sent sent = <Sent?>self.handed.popleft()
        self.handed_bytes -= sent.frame.size
        self.attempts = 0
        return sent


cdef class QueueTable:
    """The queues of a channel, and the work that they leave for the dispatcher.

    ``by_id`` and ``by_slot``: the queues by broker id and by number in the pipes. ``memory``: where frames
    lie. ``dirty`` and ``full``: pipes with commands to write (``CommandPipe``).

    For the dispatcher: ``ended`` and ``called``, requests that have their end, without and with a callback;
    ``not_queued``, requests that no queue took; ``unattended``, queues whose ``attend`` is due; ``limited``,
    (deadline, requests) with a time limit; ``out_of_memory``, queues that wait for room in shared memory.
    ``waker``: a pipe that wakes the dispatcher, or -1. ``next_limit_ns``: the earliest deadline.
    """

    def __init__(self, FrameMemory memory not None, list dirty not None, list full not None):
        self.memory = memory
        self.dirty = dirty
        self.full = full
        self.by_id = {}
        self.by_slot = {}
        self.ended = []
        self.called = []
        self.not_queued = []
        self.unattended = {}
        self.limited = []
        self.out_of_memory = set()
        self.waker = -1
        self.next_limit_ns = NEVER

    @classmethod
    def __class_getitem__(cls, queue):
        """For type checkers: the class of the queues."""
        return cls

    cpdef wake(self):
        """Wake the dispatcher."""
        if self.waker >= 0:
            # A full pipe wakes it as well.
            write_some(self.waker, b"\0", 1)

    def enqueue(
        self, broker_ids, request, Frame frame, callback=None, int64_t deadline=NEVER, bint is_refused=False
    ):
        """Queue the request for these brokers and write what can go to the senders; returns a ``Sent`` each.

        ``frame`` holds the encoded request, None one that goes in parts. ``deadline``: monotonic nanoseconds.
        ``is_refused``: no queue takes it. None is returned, and nothing has happened, when the frame has lost
        its last user, and its bytes, since the caller looked at it.
        """
        cdef list result = []
        cdef int64_t now = monotonic_ns()
        cdef int32_t version = request.version
        cdef int64_t size = request.size
        cdef int64_t users
        cdef bint wakes = False
        cdef Sent sent
        if frame is not None and frame.offset < 0 and frame.private is None:
            return None
        for broker_id in broker_ids:
            sent = Sent.__new__(Sent)
            sent.fill(broker_id, request, callback, now, version, size)
            result.append(sent)
        users = len(result)
        if users == 0:
            return result
        if frame is not None:
            request.frame = frame
            self.memory.add_users(frame, users)
        elif request.parts is not None:
            for one in request.frames():
                self.memory.add_users(one, users)
        for one in result:
            sent = <Sent>one
            queue = None if is_refused else self.by_id.get(sent.broker_id)
            if queue is None:
                self.not_queued.append(sent)
                wakes = True
            elif (<RequestQueue?>queue).append(sent):
                self.unattended[queue] = None
                wakes = True
        if deadline != NEVER:
            self.limited.append((deadline, result))
            if deadline < self.next_limit_ns:
                self.next_limit_ns = deadline
                wakes = True
        flush_all(self.dirty)
        if wakes or self.full or self.ended or self.called:
            self.wake()
        return result

    def take_expected(self, bytes data not None, Py_ssize_t position):
        """Take EXPECTED reports from ``data[position:]`` on, and return the position behind the last one.

        Stops at a report of another kind, at an incomplete one, and at one of an internal entry.
        """
        cdef const Report* report
        cdef RequestQueue queue
        cdef Sent sent
        cdef Frame frame
        cdef Outcome outcome
        cdef const char* begin = PyBytes_AS_STRING(data)
        cdef Py_ssize_t last = len(data) - <Py_ssize_t>sizeof(Report)
        cdef int64_t now = monotonic_ns()
        while position <= last:
            report = <const Report*>(begin + position)
            if report.kind != EXPECTED:
                break
            found = self.by_slot.get(report.slot)
            if found is None:
                # The broker was removed, and its requests have ended.
                position += sizeof(Report)
                continue
            queue = <RequestQueue?>found
            sent = <Sent?>queue.handed[0]
            assert <uint64_t>sent.sequence == report.sequence
            if sent.is_internal:
                break
            position += sizeof(Report)
            frame = sent.frame
            outcome = Outcome.__new__(Outcome)
            outcome.fill(sent, frame.success, now)
            outcome.slot = report.slot
            outcome.attempts += report.attempts
            outcome.correlation_id = report.correlation_id
            outcome.first_byte_ns = report.first_byte_ns
            outcome.last_byte_ns = report.last_byte_ns
            outcome.response_ns = report.response_ns
            queue.finish_first()
            queue.first_leaves(report.response_ns)
            if queue.needs_resync and sent.request.full:
                queue.needs_resync = False
            frame.pins -= 1
            self.memory.release(frame)
            sent.end(outcome)
            if sent.callback is not None:
                self.called.append((sent, queue, False))
                continue
            self.ended.append(sent)
            queue.top_up()
            if queue.is_out_of_memory:
                self.out_of_memory.add(queue)
        return position
