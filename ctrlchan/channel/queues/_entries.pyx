"""The entries of the channel's books as C structs, and the loops that touch every one of them.

A hundred thousand requests may end in a second. Each is a ``Sent`` in a ``RequestQueue``, is told to a sender
process as a command, comes back as a report, and ends in an ``Outcome``; what is done for every single one is
done here, without a tuple or a dict for it. Whatever is done for a few of them (what stands for others, what
must be judged, what fails) is in ``channel_state.py`` and ``broker_queue.py``.

``Frame``, ``Outcome`` and ``Sent`` are not looked at by the garbage collector, which would go through a
backlog again and again. So nothing that has ended may be part of a cycle: the callback and the listeners are
let go, and ``future`` is known by a weak reference.

Called with the channel's lock held, but for ``publish``, ``Countdown`` and what users call. Records are read
and written as they lie in the pipe (``records.py``): little-endian.
"""

import threading
import weakref
from collections import deque
from time import monotonic_ns

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ctrlchan.channel.wire._records cimport Command, Report

from ctrlchan.channel.wire import records

#: Held while an outcome is published and while somebody begins to listen for one, so that nobody misses it.
LISTENING = threading.Lock()

cdef extern from *:
    int __builtin_clzll(unsigned long long)

assert sizeof(Command) == records.COMMAND.size
assert sizeof(Report) == records.REPORT.size

cdef uint8_t SEND = records.SEND
cdef uint8_t EXPECTED = records.EXPECTED
cdef size_t REST = records.COMMAND_REST.size
assert REST == sizeof(Command) - records.COMMAND_HEAD.size
cdef Py_ssize_t R_SLOT = records.R_SLOT
cdef Py_ssize_t R_ATTEMPTS = records.R_ATTEMPTS
cdef Py_ssize_t R_CORRELATION = records.R_CORRELATION
cdef Py_ssize_t R_FIRST_BYTE = records.R_FIRST_BYTE
cdef Py_ssize_t R_LAST_BYTE = records.R_LAST_BYTE
cdef Py_ssize_t R_RESPONSE = records.R_RESPONSE

cdef enum:
    # A sender is told of this many requests ahead, so that one wake-up moves many of them ...
    WINDOW = 64
    # ... and of no more than this (1 MiB) beyond the second: what it was not told of can still be changed.
    WINDOW_BYTES = 1048576
    WINDOW_LEAST = 2
    # It is told of more when so few are left, and not with every single request.
    LOW_WATER = 32


@cython.no_gc
@cython.auto_pickle(False)
cdef class Frame:
    """A request as it goes out, but for correlation id and broker epoch; lies in shared or private memory.

    ``size`` bytes, of which ``prefix_size`` differ from broker to broker, the broker epoch at ``epoch_at``
    (0: none). ``expect``: the response that means ``success``; empty: every response must be judged.

    ``users``: requests to single brokers that have no outcome yet, or that a sender may still be writing.
    ``pins``: those of them that a sender was told of; while there are any the frame cannot move.
    ``offset``: in shared memory, or -1; then ``private`` may hold it, a bytearray or None.
    """

    def __init__(
        self, size, prefix_size, epoch_at, controller_epoch, bytes expect not None=b"", success=None
    ):
        self.size = size
        self.prefix_size = prefix_size
        self.epoch_at = epoch_at
        self.controller_epoch = controller_epoch
        self.expect = expect
        self.expect_size = len(expect)
        self.success = success
        self.offset = -1

    def place(self, int64_t offset):
        """It lies in shared memory now."""
        self.private = None
        self.offset = offset
        self.rest = records.COMMAND_REST.pack(
            offset, self.size, self.prefix_size, self.controller_epoch, self.expect, 0
        )


@cython.no_gc
@cython.freelist(1024)
@cython.auto_pickle(False)
cdef class Outcome:
    """The end of one request to one broker.

    ``version`` and ``bytes`` are those of what went to the broker, or would have gone: the version that this
    broker has, the size of the whole frame, or frames where it was split. ``merged``: how many requests went
    to this broker as one, this among them, and share its response; all of them tell its bytes.

    ``attempts``: how often it was tried, 0 when it never left the queue; ``sender_deaths``: how many sender
    processes ended with it on their hands. ``correlation_id``: on the connection that brought the response.

    Times are monotonic nanoseconds: ``enqueued_ns`` when it was given to the channel, ``first_byte_ns`` and
    ``last_byte_ns`` when those of the last attempt were written, ``response_ns`` when the response was
    complete, ``completed_ns`` when its end was known here. Without a response the three in the middle are 0,
    and the correlation id is -1.
    """

    def __init__(self, Sent sent not None, verdict, report=None, completed_ns=0, merged=1):
        self.fill(sent, verdict, completed_ns)
        self.merged = merged
        if report is not None:
            self.slot = report[R_SLOT]
            self.attempts += report[R_ATTEMPTS]
            self.correlation_id = report[R_CORRELATION]
            self.first_byte_ns = report[R_FIRST_BYTE]
            self.last_byte_ns = report[R_LAST_BYTE]
            self.response_ns = report[R_RESPONSE]

    cdef fill(self, Sent sent, verdict, int64_t completed_ns):
        self.request = sent.request
        self.verdict = verdict
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
        return (<tuple>self.verdict)[0]

    @property
    def error_code(self):
        """The response's own error code; 0 when there was no response."""
        return (<tuple>self.verdict)[1]

    @property
    def response(self):
        """The decoded response. Equal responses may be one object: treat it as read-only."""
        return (<tuple>self.verdict)[2]

    @property
    def detail(self):
        """Why it ended so, where neither kind nor error code says it."""
        return (<tuple>self.verdict)[3]

    @property
    def api_key(self):
        return self.request.api_key

    @property
    def rows(self):
        """Partitions the request spoke of."""
        return self.request.rows

    def __repr__(self):
        error = f" error_code={self.error_code}" if self.error_code else ""
        detail = f" ({self.detail})" if self.detail else ""
        return f"<Outcome broker {self.broker_id}: {self.kind.value}{error}{detail} {self.request!r}>"


@cython.no_gc
@cython.freelist(1024)
@cython.auto_pickle(False)
cdef class Sent:
    """A request on its way to one broker. Cheap on purpose: a future is made only when it is asked for.

    ``outcome`` is None until the request has ended and its callback, if any, has returned or failed.
    ``await sent`` gives the Outcome; a task that is cancelled there cancels the request while it is queued.

    The channel's own: ``sequence`` is 0 until a sender is told of it, ``version`` and ``bytes`` are those of
    what goes (``rewriting`` may change them), a ``joint`` one stands for others and is never one that users
    hold.
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
        """Resolves to the Outcome; it never holds an exception. ``future.cancel()`` cancels the request when
        it is still queued; other ways to cancel it resolve the future to an Outcome of kind CANCELLED."""
        from ctrlchan.channel.future import SentFuture

        with LISTENING:
            future = None if self.future_ref is None else self.future_ref()
            if future is None:
                future = SentFuture(self)
                self.future_ref = weakref.ref(future)
                if self.outcome is None:
                    self.listen(future)
                else:
                    future.finished(self)
            return future

    def cancel(self):
        """True when the request was still queued: it ends as CANCELLED, and nothing of it was or is sent.
        False when a sender process had it in hand, or it had ended. ``channel.cancel`` for many at once."""
        channel = self.request.channel
        return channel is not None and channel.cancel((self,)) == 1

    def __await__(self):
        from ctrlchan.channel.aio import outcome_of

        return outcome_of(self).__await__()

    @property
    def listeners(self):
        """Who will be told."""
        if self.listening is None:
            return ()
        return tuple(self.listening) if type(self.listening) is list else (self.listening,)

    cpdef listen(self, listener):
        """The caller holds LISTENING and has seen that there is no outcome yet."""
        if self.listening is None:
            self.listening = listener
        elif type(self.listening) is list:
            (<list>self.listening).append(listener)
        else:
            self.listening = [self.listening, listener]

    cdef ignore(self, listener):
        """The caller holds LISTENING."""
        if self.listening is listener:
            self.listening = None
        elif type(self.listening) is list and listener in <list>self.listening:
            (<list>self.listening).remove(listener)

    cpdef end(self, Outcome outcome):
        """It ends so, as soon as somebody publishes it."""
        self.ending = outcome
        self.frame = None

    def __repr__(self):
        end = "unfinished" if self.outcome is None else self.outcome.kind.value
        return f"<Sent to broker {self.broker_id}: {end} {self.request!r}>"


cdef class Countdown:
    """Calls ``then`` once, on the channel's thread, when all of some requests have their outcomes.

    ``missing``: how many have none; nothing is called when that is 0 from the beginning.
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
        """Told by ``publish`` with the last of them only."""
        self.then()

    def stop(self):
        """Listen no longer."""
        with LISTENING:
            for one in self.sent:
                (<Sent>one).ignore(self)


def publish(list ended not None):
    """These ``Sent`` have the outcomes that ``end`` gave them, for everybody to see.

    Returns whom to tell, outside of any lock: [(listener, sent)].
    """
    cdef Sent sent
    cdef list tell = []
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
                tell.append((listener, sent))
    return tell


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
        """64 counts: the first of requests that did not wait, number i of those that waited for at least
        2**(i-1) and less than 2**i nanoseconds."""
        return list(self.counts)


cdef class RequestQueue:
    """The unfinished requests of one broker, in order: ``waiting``, which its sender was not told of, and
    ``handed``, the first of which is in flight. Both are deques of ``Sent``.

    ``gate``: the last request handed over has a callback: nothing follows until that has returned. ``held``:
    the sender takes nothing. ``starved``: the first waiting request found no room in shared memory.
    ``merger``: None: requests go as they are. ``versions``: those the broker has, None: it was not asked.
    """

    def __init__(self, slot, sender, merger):
        self.slot = slot
        self.sender = sender
        self.merger = merger
        self.waiting = deque()
        self.handed = deque()
        self.queue_times = QueueTimes()

    def __len__(self):
        return len(self.waiting) + len(self.handed)

    cdef bint has_room(self):
        """Whether the sender may be told of another request."""
        cdef Py_ssize_t handed = len(self.handed)
        return handed < WINDOW_LEAST or (handed < WINDOW and self.handed_bytes < WINDOW_BYTES)

    @property
    def may_hand(self):
        """Whether there is another request that the sender may be told of."""
        return not (self.gate or self.held) and bool(self.waiting) and self.has_room()

    cpdef int append(self, Sent sent) except -1:
        self.waiting.append(sent)
        self.waiting_bytes += sent.bytes
        if len(self.handed) < WINDOW_LEAST and not self.gate and not self.held:
            # Nothing to be merged with, and nothing to be found out: most requests, where nothing piles up.
            if len(self.waiting) > 1 or self.versions is not None or self.hand(1, sent.enqueued_ns) == 0:
                self.hand_over()
        if self.merger is not None and self.waiting:
            self.count_loose(sent)
        return 0

    cpdef int hand(self, int most, int64_t now=0) except -1:
        """Tell the sender of up to so many of the first waiting requests as they are; of none behind one that
        does not lie in shared memory, or whose callback must have returned before. How many they were.
        ``now``: monotonic nanoseconds; 0: the clock is read here."""
        cdef Command commands[WINDOW]
        cdef Command* command
        cdef Sent sent
        cdef Frame frame
        cdef int count = 0
        cdef object waiting = self.waiting
        cdef object handed = self.handed
        cdef bint idle = not handed
        most = min(most, WINDOW)
        while count < most and waiting and not self.gate and not self.held and self.has_room():
            sent = <Sent?>waiting.popleft()
            frame = sent.request.frame
            if frame is None or frame.offset < 0:
                waiting.appendleft(sent)
                break
            frame.pins += 1
            sent.frame = frame
            self.sequence += 1
            sent.sequence = self.sequence
            handed.append(sent)
            self.waiting_bytes -= frame.size
            self.handed_bytes += frame.size
            command = &commands[count]
            command.kind = SEND
            command.expect_size = frame.expect_size
            command.epoch_at = frame.epoch_at
            command.slot = self.slot
            command.sequence = sent.sequence
            memcpy(&command.offset, PyBytes_AS_STRING(frame.rest), REST)
            count += 1
            self.gate = sent.callback is not None
        if count:
            self.sender.write(PyBytes_FromStringAndSize(<char*>commands, count * sizeof(Command)))
            if idle:
                self.first_leaves(now if now else monotonic_ns())
        return count

    cpdef int first_leaves(self, int64_t now) except -1:
        """The first request handed over, if any, is in flight from ``now`` on, monotonic nanoseconds."""
        if self.handed:
            self.leave(<Sent>self.handed[0], now)
        return 0

    cdef int leave(self, Sent sent, int64_t now) except -1:
        """Count a request that leaves the queue; once, also when another sender process sends it again."""
        if sent.left_queue:
            return 0
        sent.left_queue = True
        if sent.joint:
            for one in sent.represents():
                self.leave(<Sent?>one, now)
        else:
            self.queue_times.add(max(0, now - sent.enqueued_ns))
        return 0

    cpdef int top_up(self) except -1:
        """There is one less in the sender's hands."""
        if self.waiting and len(self.handed) <= LOW_WATER:
            self.hand_over()
        return 0

    cpdef Sent finish_first(self):
        """The first request has its end; the caller releases its frame."""
        cdef Sent sent = <Sent?>self.handed.popleft()
        self.handed_bytes -= sent.frame.size
        self.attempts = 0
        return sent


def enqueue(dict by_id not None, broker_ids, request, callback, set starved not None):
    """Queue the request for these brokers: a ``Sent`` for each, and those of them that no queue is for.

    ``by_id``: broker id -> RequestQueue; ``starved``: takes those that have found no room.
    """
    cdef list result = []
    cdef list strays = []
    cdef int64_t now = monotonic_ns()
    cdef int32_t version = request.version
    cdef int64_t size = request.size
    cdef Sent sent
    for broker_id in broker_ids:
        sent = Sent.__new__(Sent)
        sent.fill(broker_id, request, callback, now, version, size)
        result.append(sent)
        queue = by_id.get(broker_id)
        if queue is None:
            strays.append(sent)
        else:
            (<RequestQueue?>queue).append(sent)
            if (<RequestQueue>queue).starved:
                starved.add(queue)
    return result, strays


def take_expected(
    bytes data not None,
    Py_ssize_t position,
    dict by_slot not None,
    memory,
    list ended not None,
    list called not None,
    set starved not None,
):
    """Take the reports from ``data[position:]`` on that say nothing but EXPECTED. Where the first begins that
    is another one, or is not whole, or tells of an entry that stands for others.

    ``by_slot``: slot -> RequestQueue; ``memory`` frees frames without users; ``ended`` takes the ``Sent`` that
    have their end, ``called`` (sent, queue, False) of those that have a callback.
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
        found = by_slot.get(report.slot)
        if found is None:
            # Its requests have ended with it.
            position += sizeof(Report)
            continue
        queue = <RequestQueue?>found
        sent = <Sent?>queue.handed[0]
        assert <uint64_t>sent.sequence == report.sequence
        if sent.joint:
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
        frame.users -= 1
        if frame.users == 0:
            memory.free(frame)
        sent.end(outcome)
        if sent.callback is not None:
            called.append((sent, queue, False))
            continue
        ended.append(sent)
        queue.top_up()
        if queue.starved:
            starved.add(queue)
    return position
