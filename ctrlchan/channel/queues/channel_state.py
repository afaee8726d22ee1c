"""The state of a channel, guarded by one lock.

It holds the connected brokers, their queues of unfinished requests, and the frames that senders may still
read. Nothing here blocks, calls back or logs: ended requests and log lines are left for the dispatcher.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Hashable, Iterable, Mapping, Sequence
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ctrlchan._codec import LEADER_AND_ISR, UPDATE_METADATA
from ctrlchan.channel.coalescing.adapter import Adapter
from ctrlchan.channel.coalescing.collapser import Collapser
from ctrlchan.channel.coalescing.internal_entries import CollapsedEntry, MergedEntry, RequestPart
from ctrlchan.channel.coalescing.merger import Merger
from ctrlchan.channel.config import ChannelConfig
from ctrlchan.channel.observability.log_contexts import (
    LOST_CONNECTIONS,
    client_log,
    manager_log,
    sender_log,
)
from ctrlchan.channel.observability.recorder import Recorder
from ctrlchan.channel.outcome import Outcome, OutcomeCallback, OutcomeKind, RequestResult, Sent
from ctrlchan.channel.processes.sender_pool import SenderHandle, SenderPool
from ctrlchan.channel.queues._entries import NEVER, QueueTable
from ctrlchan.channel.queues.broker_queue import BrokerQueue
from ctrlchan.channel.queues.frames import evaluate_response
from ctrlchan.channel.queues.shared_memory import ALL_FENCED, Frame, SharedMemory
from ctrlchan.channel.queues.time_limits import TimeLimits
from ctrlchan.channel.request import ControlRequest
from ctrlchan.channel.target import Target
from ctrlchan.channel.wire.records import (
    CONNECTED,
    EXPECTED,
    FAILED,
    IDLE,
    PIECE,
    READY,
    REMOVED,
    REPORT,
    RESPONSE,
    STALE,
    STARTED,
    VERSIONS,
    Report,
)
from ctrlchan.errors import ChannelClosedError, ErrorCode, IllegalStateError
from ctrlchan.log_context import ContextLogger
from ctrlchan.protocol import API_NAMES
from ctrlchan.rate_limit import LogRateLimit
from ctrlchan.security.failure import Failure

if TYPE_CHECKING:
    from ctrlchan.channel.queues.full_state import FullState

__all__ = ["Called", "ChannelState", "Note", "check_new_term"]

OFFLINE: Final = RequestResult(OutcomeKind.BROKER_GONE, detail="the broker is offline")
REMOVED_BROKER: Final = RequestResult(OutcomeKind.BROKER_GONE, detail="the broker was removed")
SHUT_DOWN: Final = RequestResult(OutcomeKind.BROKER_GONE, detail="the channel was shut down")
TOO_LARGE: Final = RequestResult(
    OutcomeKind.TOO_LARGE, detail="larger than max_request_bytes, or than half the shared memory"
)
FAILED_CHANNEL: Final = RequestResult(OutcomeKind.BROKER_GONE, detail="the channel's thread has failed")
FENCED: Final = RequestResult(OutcomeKind.FENCED, detail="the controller epoch is fenced")
CANCELLED: Final = RequestResult(OutcomeKind.CANCELLED, detail="cancelled before it was sent")
TIME_OVER: Final = RequestResult(OutcomeKind.CANCELLED, detail="not sent within its time limit")
RESIGNED: Final = RequestResult(OutcomeKind.FENCED, detail="the controller has resigned")


#: An ended request with a callback: (sent, the queue that waits until the callback has returned, whether the
#: sender waits too).
Called: TypeAlias = tuple[Sent, BrokerQueue | None, bool]


class Note(NamedTuple):
    """A log line, which the dispatcher formats and writes without the lock."""

    log: ContextLogger
    level: int
    message: str
    arguments: tuple[object, ...]


class ChannelState(QueueTable["BrokerQueue"]):
    """The brokers, queues and frames of a channel.

    Every method except ``__init__``, ``wake`` and ``check_open`` is called with ``lock`` held.
    """

    memory: SharedMemory

    def __init__(
        self, config: ChannelConfig, controller_epoch: int, recorder: Recorder | None = None
    ) -> None:
        memory = SharedMemory(config.shared_memory_bytes)
        self.pool = SenderPool(config, memory.fd)
        super().__init__(memory, self.pool.dirty, self.pool.full)
        self.lock = threading.Lock()
        self.config = config
        self.controller_epoch = controller_epoch
        #: Records outcomes for journal and metrics. None if there is neither.
        self.recorder = recorder
        self.merger = Merger(config, memory) if config.merge_update_metadata else None
        self.collapser = Collapser(config, memory) if config.merge_update_metadata else None
        self._adapter = Adapter(config, memory, self._refuse) if config.negotiate else None
        self._last_slot = 0
        #: Brokers that were added and cannot be connected to: why, by broker id.
        self.left_out: dict[int, str] = {}
        # Frames of ended requests that a sender may still be writing, by slot.
        self._frames_in_use: dict[int, list[Frame]] = {}
        self.limits = TimeLimits()
        self.notes: list[Note] = []
        self.log = sender_log(config.controller_id)
        self._manager_log = manager_log(config.controller_id)
        # Limit the warnings about brokers that cannot be reached, and about brokers that are not registered.
        self._failing = LogRateLimit()
        self._offline = LogRateLimit()
        self.closed = False
        #: The exception that ended the dispatcher.
        self.failure: BaseException | None = None

    def check_open(self) -> None:
        """Raise ChannelClosedError if the channel is closed."""
        if self.closed:
            if self.failure is not None:
                raise ChannelClosedError(f"the channel's thread has failed: {self.failure!r}")
            raise ChannelClosedError("the channel was shut down")

    def note(self, level: int, message: str, *arguments: object, log: ContextLogger | None = None) -> None:
        """Leave a log line for the dispatcher. ``log``: whose line it is, None for ``self.log``."""
        log = log or self.log
        if log.isEnabledFor(level):
            self.notes.append(Note(log, level, message, arguments))

    # -- brokers

    def add(self, targets: Sequence[Target]) -> None:
        """Add these brokers. A known broker with another epoch or endpoint becomes a new generation.

        Raises ChannelError if the system has no pipes or processes for them; then nothing has changed.
        """
        wanted = {target.broker_id: target for target in targets}
        new = [target for target in wanted.values() if not self._has(target)]
        for target, sender in zip(new, self.pool.senders_for([one.broker_id for one in new]), strict=True):
            self.note(
                logging.DEBUG,
                "Controller %d trying to connect to broker %d",
                self.config.controller_id,
                target.broker_id,
                log=self._manager_log,
            )
            if target.broker_id in self.by_id:
                self.remove(target.broker_id, REMOVED_BROKER)
            self.left_out.pop(target.broker_id, None)
            self._last_slot += 1
            queue = BrokerQueue(
                self._last_slot, target, sender, self.memory, self.merger, self._adapter, self.collapser
            )
            sender.queues[queue.slot] = queue
            self.by_id[target.broker_id] = queue
            self.by_slot[queue.slot] = queue
            if self.recorder is not None:
                self.recorder.generation(queue.slot, target.broker_id, target.epoch)
        self.start_senders()

    def leave_out(self, brokers: Mapping[int, str]) -> None:
        """Note brokers that cannot be connected to, with the reasons; remove those that were added before."""
        for broker_id, reason in brokers.items():
            if broker_id in self.by_id:
                self.remove(broker_id, RequestResult(OutcomeKind.BROKER_GONE, detail=reason))
            if self.left_out.get(broker_id) != reason:
                self.note(logging.WARNING, "Broker %d is left out: %s", broker_id, reason)
            self.left_out[broker_id] = reason

    def _has(self, target: Target) -> bool:
        queue = self.by_id.get(target.broker_id)
        return queue is not None and queue.target == target

    def _begin(self, sender: SenderHandle) -> None:
        """Register the sender's brokers with it, and hand over their requests."""
        sender.takes_requests = True
        for slot in sender.queues:
            self.by_slot[slot].begin()
            self._note_memory(self.by_slot[slot])

    def start_senders(self) -> None:
        """Start the sender processes whose start time has come."""
        for sender in self.pool.start():
            self._begin(sender)
        for sender, problem in self.pool.problems:
            self.note(
                logging.ERROR,
                "Sender process %d of %s cannot start: %s. Next attempt in %.1f s.",
                sender.number,
                self._served_by(sender),
                problem,
                max(0.0, sender.start_at - monotonic()),
            )
        self.pool.problems.clear()

    def remove(self, broker_id: int, result: RequestResult) -> None:
        """Remove a broker; its unfinished requests end with this result at once."""
        queue = self.by_id.pop(broker_id)
        sender = queue.sender
        del self.by_slot[queue.slot]
        del sender.queues[queue.slot]
        self.out_of_memory.discard(queue)
        self.unattended.pop(queue, None)
        self._end_waiting(queue, result)
        frames = []
        now = monotonic_ns()
        while queue.handed:
            sent = queue.finish_first()
            frame = sent.request.frame
            assert frame is not None
            # The sender may be writing this frame now.
            frames.append(frame)
            self._end(sent, result, None, now)
        if sender.takes_requests:
            self._frames_in_use[queue.slot] = frames
            sender.leaving.add(queue.slot)
            queue.leave()
        if sender.broker_id >= 0:
            # The sender has no other broker. Its frames in use are released when it has ended.
            self.pool.end(sender)

    def _end_waiting(self, queue: BrokerQueue, result: RequestResult) -> None:
        now = monotonic_ns()
        while queue.waiting:
            sent = queue.take_waiting()
            self._release(sent)
            self._end(sent, result, None, now)

    # -- sending

    def send(
        self,
        broker_ids: Sequence[int],
        request: ControlRequest,
        frame: Frame | None,
        callback: OutcomeCallback | None,
        deadline: int = NEVER,
    ) -> list[Sent] | None:
        """Queue a request (``enqueue``); if it is fenced or has no frame, no queue takes it."""
        is_refused = request.controller_epoch <= self.memory.fence or (frame is None and not request.parts)
        return self.enqueue(broker_ids, request, frame, callback, deadline, is_refused)

    def end_not_queued(self) -> None:
        """End the requests that no queue took."""
        refused, self.not_queued = self.not_queued, []
        now = monotonic_ns()
        for sent in refused:
            request = sent.request
            self._release(sent)
            if request.frame is None and not request.parts:
                result = TOO_LARGE
                queue = self.by_id.get(sent.broker_id)
                if queue is not None:
                    queue.mark(metadata=request.api_key == UPDATE_METADATA)
            elif request.controller_epoch <= self.memory.fence:
                result = self._fenced_result()
            elif sent.broker_id in self.left_out:
                result = RequestResult(OutcomeKind.BROKER_GONE, detail=self.left_out[sent.broker_id])
            else:
                result = OFFLINE
                unsaid = self._offline.admit(sent.broker_id, now)
                if unsaid is not None:
                    self.note(
                        logging.WARNING,
                        "Not sending request %s with controllerId=%d, controllerEpoch=%d to broker %d, "
                        "since it is offline.%s",
                        API_NAMES.get(request.api_key, request.api_key),
                        self.config.controller_id,
                        request.controller_epoch,
                        sent.broker_id,
                        unsaid,
                        log=self._manager_log,
                    )
            self._end(sent, result, None, now)

    def attend(self) -> None:
        """Do the work that ``enqueue`` left: end requests that no queue took, merge, hand over."""
        if self.not_queued:
            self.end_not_queued()
        while self.unattended:
            queue, _ = self.unattended.popitem()
            queue.attend()
            self._note_memory(queue)

    def _note_memory(self, queue: BrokerQueue) -> None:
        if queue.is_out_of_memory:
            self.out_of_memory.add(queue)

    def cancel(self, sent: Iterable[Sent], result: RequestResult = CANCELLED) -> int:
        """End those requests that were never handed over, and return how many."""
        chosen: dict[BrokerQueue, set[Sent]] = {}
        for one in sent:
            if one.sequence == 0:
                queue = self.by_id.get(one.broker_id)
                if queue is not None and queue.waiting:
                    chosen.setdefault(queue, set()).add(one)
        now = monotonic_ns()
        count = 0
        for queue, wanted in chosen.items():
            for one in queue.withdraw(wanted):
                self._release(one)
                self._end(one, result, None, now)
                count += len(one.members) if isinstance(one, MergedEntry) else 1
            if not queue.is_out_of_memory:
                self.out_of_memory.discard(queue)
        return count

    def check_limits(self, now: int) -> None:
        """End the waiting requests whose time limit has passed. ``now``: monotonic nanoseconds."""
        for deadline, sent in self.limited:
            self.limits.add(deadline, sent)
        self.limited.clear()
        if self.limits.next_ns <= now:
            self.cancel(self.limits.due(now), TIME_OVER)
        self.next_limit_ns = self.limits.next_ns

    def fence(self, controller_epoch: int) -> None:
        """Send nothing more of this controller epoch or an older one."""
        if controller_epoch <= self.memory.fence:
            return
        self.memory.fence = controller_epoch
        for queue in self.by_id.values():
            # Requests that a sender has are reported by it: as STALE, or with their response.
            kept = []
            now = monotonic_ns()
            while queue.waiting:
                sent = queue.take_waiting()
                if sent.request.controller_epoch <= controller_epoch:
                    self._release(sent)
                    self._end(sent, FENCED, None, now)
                else:
                    kept.append(sent)
            for sent in kept:
                if queue.append(sent):
                    self.unattended[queue] = None
        self.attend()

    def new_term(self, controller_epoch: int) -> None:
        """Go on with this controller epoch, and fence all older ones. Raises IllegalStateError."""
        if self.resigned:
            raise IllegalStateError("the controller has resigned")
        check_new_term(controller_epoch, max(self.controller_epoch, self.memory.fence))
        self.controller_epoch = controller_epoch
        self.fence(controller_epoch - 1)

    def resign(self) -> None:
        """Fence every epoch and end all unfinished requests now, also those that are partly sent."""
        self.memory.fence = ALL_FENCED
        for broker_id in list(self.by_id):
            self.remove(broker_id, RESIGNED)

    @property
    def fenced(self) -> bool:
        """Whether the present term is fenced."""
        return self.memory.fence >= self.controller_epoch

    @property
    def resigned(self) -> bool:
        return self.memory.fence == ALL_FENCED

    def _fenced_result(self) -> RequestResult:
        return RESIGNED if self.resigned else FENCED

    # -- outcomes

    def _end(
        self,
        sent: Sent,
        result: RequestResult,
        report: Report | None,
        now: int,
        queue: BrokerQueue | None = None,
        go: bool = False,
    ) -> None:
        """Give a request its outcome, and leave it for the dispatcher to publish.

        ``queue``: waits until the callback has returned; ``go``: its sender waits too.
        """
        if sent.is_internal:
            self._end_internal(sent, result, report, now, queue, go)
            return
        sent.end(Outcome(sent, result, report, now))
        if sent.callback is None:
            self.ended.append(sent)
        else:
            self.called.append((sent, queue, go))

    @property
    def has_ends(self) -> bool:
        """Whether there are outcomes to publish."""
        return bool(self.ended or self.called)

    def _end_internal(
        self,
        sent: Sent,
        result: RequestResult,
        report: Report | None,
        now: int,
        queue: BrokerQueue | None,
        go: bool,
    ) -> None:
        """End the requests that this internal entry replaced."""
        if isinstance(sent, RequestPart):
            split_request = sent.split_request
            split_request.take(sent, result, report)
            if split_request.missing == 0:
                original, result = split_request.sent, split_request.result
                own = self.by_id.get(sent.broker_id)
                if own is not None and original.request.full and result.kind is OutcomeKind.ACKNOWLEDGED:
                    own.needs_resync = False
                self._end(original, result, split_request.report, now, queue, go)
            return
        assert isinstance(sent, MergedEntry)
        sent.settle()
        if sent.request.knowledge is not None and result.kind is OutcomeKind.ACKNOWLEDGED:
            own = self.by_id.get(sent.broker_id)
            if own is not None:
                own.acknowledged(sent.request)
        # The queue waits until the last of their callbacks has returned.
        called = [member for member in sent.members if member.callback is not None]
        for member in sent.members:
            if member.is_internal:
                # A part of a request, at another version.
                self._end(member, result, report, now, queue, go)
                continue
            member.end(Outcome(member, result, report, now, len(sent.members)))
            if member.callback is None:
                self.ended.append(member)
            elif member is called[-1]:
                self.called.append((member, queue, go))
            else:
                self.called.append((member, None, False))

    # -- full states

    @property
    def has_ready(self) -> bool:
        """Whether any broker is ready for a full state."""
        return self.collapser is not None and bool(self.collapser.ready)

    def take_ready(self) -> list[tuple[BrokerQueue, CollapsedEntry]]:
        """Return the entries for which full states must be made now."""
        if self.collapser is None:
            return []
        queues = list(self.collapser.ready)
        self.collapser.ready.clear()
        taken = []
        for ready in queues:
            queue = self.by_slot.get(ready.slot)
            if queue is not None:
                entry = queue.take_ready()
                if entry is not None:
                    taken.append((queue, entry))
                else:
                    # The entry was cancelled meanwhile.
                    self._hand_over(queue)
        return taken

    def provide(
        self,
        entries: Iterable[tuple[BrokerQueue, CollapsedEntry]],
        full_state: FullState,
        known: Hashable | None,
    ) -> None:
        """Make requests of this full state for those entries that still wait for it. Raises ProtocolError.

        ``known``: the ``knowledge`` that the brokers have acknowledged (``FullStateSource``).
        """
        assert self.collapser is not None
        for queue, entry in entries:
            if self.by_id.get(queue.target.broker_id) is not queue:
                continue
            made = self.collapser.make(entry, full_state, known)
            if queue.provide(entry, made):
                self.note(
                    logging.INFO,
                    "Sending %s %r in place of %d requests that waited for it",
                    queue.target,
                    made,
                    len(entry.members),
                )
            else:
                for frame in made.frames():
                    if frame.users == 0:
                        self.memory.free(frame)
            self._hand_over(queue)

    def cannot_provide(
        self, entries: Iterable[tuple[BrokerQueue, CollapsedEntry]], result: RequestResult
    ) -> None:
        """End those entries that still wait for a full state: it could not be made."""
        for queue, entry in entries:
            if (
                self.by_id.get(queue.target.broker_id) is queue
                and queue.waiting
                and queue.waiting[0] is entry
            ):
                queue.take_waiting()
                queue.mark(metadata=True)
                self._end(entry, result, None, monotonic_ns())
                self._hand_over(queue)

    def _hand_over(self, queue: BrokerQueue) -> None:
        queue.hand_over()
        self._note_memory(queue)

    def _refuse(self, sent: Sent, result: RequestResult) -> None:
        """End a request that no version of its broker can carry."""
        self._release(sent)
        self._end(sent, result, None, monotonic_ns())

    def _release(self, sent: Sent) -> None:
        request = sent.request
        if request.frame is not None or request.parts is not None:
            for frame in request.frames():
                self.memory.release(frame)

    # -- reports of senders

    def take_reports(self, sender: SenderHandle, data: bytes) -> None:
        """Take all complete reports in ``data``, and keep the rest as ``sender.unread``."""
        position, end = 0, len(data)
        while True:
            before = position
            position = self.take_expected(data, position)
            if position > before:
                self._note_response(sender)
            if end - position < REPORT.size:
                break
            report = Report._make(REPORT.unpack_from(data, position))
            following = report.following
            if end - position < REPORT.size + following:
                break
            position += REPORT.size
            self._take_other(sender, report, data[position : position + following])
            position += following
        sender.unread = data[position:]

    def _note_response(self, sender: SenderHandle) -> None:
        """Note that the sender has brought a response: its failures in a row are over."""
        if not sender.has_responded:
            sender.has_responded = True
            if sender.failures:
                self.note(
                    logging.INFO,
                    "Sender process %d (pid %d) of %s works, after %d that ended without a response.",
                    sender.number,
                    sender.pid,
                    self._served_by(sender),
                    sender.failures,
                )
                sender.failures = 0

    def _served_by(self, sender: SenderHandle) -> str:
        return ", ".join(str(self.by_slot[slot].target) for slot in sender.queues)

    def _take_internal(self, queue: BrokerQueue, report: Report) -> None:
        """End the first request, an internal entry, which has the expected response."""
        sent = self._finish_first(queue, report.response_ns)
        frame = sent.frame
        assert frame is not None
        assert frame.success is not None
        assert sent.sequence == report.sequence
        if sent.request.full:
            queue.needs_resync = False
        called = sent.callback is not None
        self._end(sent, frame.success, report, monotonic_ns(), queue if called else None)
        if not called:
            self._top_up(queue)

    def _top_up(self, queue: BrokerQueue) -> None:
        queue.top_up()
        self._note_memory(queue)

    def _take_response(self, queue: BrokerQueue, report: Report) -> None:
        """End the first request with a response that must be decoded.

        The sender sends the next request only after GO, and this one again after AGAIN.
        """
        sent = queue.handed[0]
        result = evaluate_response(sent.request, queue.take_response(report))
        if result is None:
            queue.again(report.sequence)
            return
        self._mark(queue, sent.request, result)
        self._finish_first(queue, monotonic_ns())
        if sent.callback is not None:
            self._end(sent, result, report, monotonic_ns(), queue, True)
        else:
            self._end(sent, result, report, monotonic_ns())
            queue.go(report.sequence)
            self._top_up(queue)

    def _finish_first(self, queue: BrokerQueue, now: int) -> Sent:
        """Remove the first request; the next one is in flight from ``now`` on."""
        sent = queue.finish_first()
        queue.first_leaves(now)
        frame = sent.frame
        assert frame is not None
        frame.pins -= 1
        self.memory.release(frame)
        return sent

    def _mark(self, queue: BrokerQueue, request: ControlRequest, result: RequestResult) -> None:
        """Fence or mark the broker as the result requires (``BrokerQueue.mark``)."""
        if result.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
            self.note(
                logging.ERROR,
                "Broker %s has a newer controller than epoch %d: nothing more is sent.",
                queue.target,
                request.controller_epoch,
            )
            self.fence(request.controller_epoch)
        elif result.kind is not OutcomeKind.ACKNOWLEDGED:
            if not _has_newer_leader_epochs(request, result):
                # A stale broker epoch means that the broker has restarted: its metadata cache is gone.
                fenced = result.kind is OutcomeKind.FENCED
                queue.mark(metadata=fenced or request.api_key == UPDATE_METADATA)
        elif request.full:
            queue.needs_resync = False

    def _take_other(self, sender: SenderHandle, report: Report, following: bytes) -> None:
        """Take one report of any kind; ``following``: the bytes behind it."""
        kind, slot = report.kind, report.slot
        if kind in (READY, STARTED):
            sender.pid = report.sequence
            if kind == READY and not sender.takes_requests:
                self._begin(sender)
            return
        if kind == REMOVED:
            sender.leaving.discard(slot)
            self._release_frames_in_use(slot)
            return
        queue = self.by_slot.get(slot)
        if queue is None:
            return
        if kind == EXPECTED:
            self._note_response(sender)
            self._take_internal(queue, report)
        elif kind == PIECE:
            queue.pieces.append(following)
        elif kind == RESPONSE:
            self._note_response(sender)
            self._take_response(queue, report)
        elif kind == STALE:
            sent = self._finish_first(queue, monotonic_ns())
            self._end(sent, FENCED, None, monotonic_ns(), queue if sent.callback is not None else None)
            self._top_up(queue)
        elif kind == VERSIONS:
            ranges = json.loads(following).items()
            queue.resume(report.sequence, {int(api): (lowest, highest) for api, (lowest, highest) in ranges})
            self._note_memory(queue)
        elif kind == CONNECTED:
            queue.state = "connected"
            if not queue.handed:
                queue.attempts = 0
            self.note(
                logging.INFO,
                "Controller %d connected to %s for sending state change requests",
                self.config.controller_id,
                queue.target,
            )
        elif kind == IDLE:
            queue.state = "disconnected"
            self._note_lost(queue, Failure.NONE)
        elif kind == FAILED:
            self._note_failure(queue, report, following.decode(errors="replace"))

    def _note_lost(self, queue: BrokerQueue, failure: Failure) -> None:
        """Say of a connection what Kafka's client says."""
        target, line = queue.target, LOST_CONNECTIONS.get(failure)
        if line is not None:
            level, message = line
            values = target.broker_id, f"{target.host}:{target.port}", queue.last_problem()
            log = client_log(self.config.controller_id, target.broker_id)
            self.note(level, message, *values[: message.count("%")], log=log)

    def _note_failure(self, queue: BrokerQueue, report: Report, detail: str) -> None:
        was_connected = queue.state == "connected"
        queue.state = "backing off"
        queue.pieces.clear()
        queue.attempts = report.attempts
        queue.last_error = Failure(report.failure)
        queue.last_errno = report.errno
        queue.last_detail, _, traceback = detail.partition("\n")
        if traceback:
            self.note(
                logging.ERROR, "Serving broker %s failed in the sender process:\n%s", queue.target, traceback
            )
        # Only attempts 1, 2, 4, 8 ... are important: a broker that is away for a day must not fill the log.
        is_important = queue.attempts & (queue.attempts - 1) == 0
        unsaid = self._failing.admit(queue.target.broker_id, monotonic_ns(), important=is_important)
        if unsaid is None:
            return
        self._note_lost(queue, queue.last_error)
        if not (was_connected and queue.handed):
            self.note(
                logging.WARNING,
                "Controller %d's connection to broker %s was unsuccessful, attempt %d: %s.%s",
                self.config.controller_id,
                queue.target,
                queue.attempts,
                queue.last_problem(),
                unsaid,
            )
        else:
            self.note(
                logging.WARNING,
                "Controller %d epoch %d fails to send request %r to broker %s, attempt %d: %s. "
                "Reconnecting to broker.%s",
                self.config.controller_id,
                queue.handed[0].request.controller_epoch,
                queue.handed[0].request,
                queue.target,
                queue.attempts,
                queue.last_problem(),
                unsaid,
            )

    def callback_returned(self, queue: BrokerQueue, sent: Sent, go: bool) -> None:
        """Open the queue's gate. ``go``: its sender waits for GO."""
        if self.by_id.get(queue.target.broker_id) is not queue:
            return
        queue.gate = False
        if go:
            queue.go(sent.sequence)
        self._hand_over(queue)

    def use_free_memory(self) -> None:
        """Hand over requests that waited for room in shared memory."""
        for queue in list(self.out_of_memory):
            queue.hand_over()
            if not queue.is_out_of_memory:
                self.out_of_memory.discard(queue)

    # -- ended senders

    def sender_ended(self, sender: SenderHandle) -> None:
        """Hand the unfinished requests of an ended sender to a new one."""
        self.pool.forget(sender)
        sender.close()
        if sender.queues and not self.closed:
            self._replace(sender)
        for slot in sender.leaving:
            self._release_frames_in_use(slot)

    def _replace(self, sender: SenderHandle) -> None:
        successor = self.pool.replace(sender)
        delay = successor.start_at - monotonic()
        detail = f"{successor.failures} in a row without a response" if successor.failures > 1 else ""
        self.note(
            logging.ERROR,
            "Sender process %d (pid %d) of %s ended%s; its requests are sent again.%s",
            sender.number,
            sender.pid,
            self._served_by(sender),
            f", {detail}" if detail else "",
            f" The next one starts in {delay:.1f} s." if delay > 0 else "",
        )
        for slot in sender.queues:
            queue = self.by_slot[slot]
            queue.move_to(successor)
            successor.queues[slot] = queue
            queue.state = "backing off" if delay > 0 else "idle"
            queue.last_error, queue.last_errno, queue.last_detail = Failure.SENDER_DIED, 0, detail
        sender.queues.clear()
        self.start_senders()

    def _release_frames_in_use(self, slot: int) -> None:
        for frame in self._frames_in_use.pop(slot, ()):
            frame.pins -= 1
            self.memory.release(frame)

    def close(self, result: RequestResult = SHUT_DOWN) -> None:
        """End all unfinished requests with this result, and end the senders."""
        self.closed = True
        self.end_not_queued()
        for broker_id in list(self.by_id):
            self.remove(broker_id, result)
        self.pool.flush()
        self.pool.end_all()


def check_new_term(controller_epoch: int, last: int) -> None:
    """Raise IllegalStateError if the controller epoch of a new term is not above the ``last`` one."""
    if controller_epoch <= last:
        raise IllegalStateError(f"controller epoch {controller_epoch} is not above {last}")


def _has_newer_leader_epochs(request: ControlRequest, result: RequestResult) -> bool:
    """Whether all partition errors of a LeaderAndIsr response are the harmless error 11.

    The broker already has this leader epoch or a newer one (``ReplicaManager.becomeLeaderOrFollower``).
    """
    if request.api_key != LEADER_AND_ISR or result.kind is not OutcomeKind.PARTITION_ERRORS:
        return False
    assert result.response is not None
    errors = result.response.partition_error
    return bool(((errors == 0) | (errors == ErrorCode.STALE_CONTROLLER_EPOCH)).all())
