"""The books of a channel: what the one lock guards, and what may be done while holding it.

Who is a broker, what is each of them owed, which memory is still read by whom. Nothing here blocks, calls
back or logs; what must be told to the outside is left in ``ended`` and ``notes`` for the dispatcher.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Hashable, Iterable, Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ctrlchan._codec import LEADER_AND_ISR, UPDATE_METADATA
from ctrlchan.channel.coalescing.adapter import Adapter
from ctrlchan.channel.coalescing.collapser import Collapser
from ctrlchan.channel.coalescing.joint import Collapsed, Merged, Part
from ctrlchan.channel.coalescing.merger import Merger
from ctrlchan.channel.config import ChannelConfig
from ctrlchan.channel.observability.recorder import Recorder
from ctrlchan.channel.outcome import Outcome, OutcomeCallback, OutcomeKind, Sent, Verdict
from ctrlchan.channel.processes.sender_pool import SenderHandle, SenderPool
from ctrlchan.channel.queues._entries import enqueue, take_expected
from ctrlchan.channel.queues.broker_queue import BrokerQueue
from ctrlchan.channel.queues.frames import judge
from ctrlchan.channel.queues.shared_memory import ALL_FENCED, UNFENCED, Frame, SharedMemory
from ctrlchan.channel.queues.time_limits import TimeLimits
from ctrlchan.channel.request import ControlRequest
from ctrlchan.channel.target import Target
from ctrlchan.channel.wire.records import (
    BORN,
    CONNECTED,
    EXPECTED,
    FAILED,
    IDLE,
    PIECE,
    R_RESPONSE,
    READY,
    REMOVED,
    REPORT,
    RESPONSE,
    STALE,
    VERSIONS,
    Failure,
    Report,
)
from ctrlchan.errors import ErrorCode
from ctrlchan.rate_limit import LogRateLimit

if TYPE_CHECKING:
    from ctrlchan.channel.queues.full_state import FullState

__all__ = ["Called", "ChannelState", "Note"]

#: Senders that end one after another without a single response are replaced so often.
_MOST_FAILURES: Final = 5

OFFLINE: Final = Verdict(OutcomeKind.BROKER_GONE, detail="the broker is offline")
REMOVED_BROKER: Final = Verdict(OutcomeKind.BROKER_GONE, detail="the broker was removed")
SHUT_DOWN: Final = Verdict(OutcomeKind.BROKER_GONE, detail="the channel was shut down")
NO_SENDER: Final = Verdict(OutcomeKind.BROKER_GONE, detail="its sender processes end again and again")
TOO_LARGE: Final = Verdict(
    OutcomeKind.TOO_LARGE, detail="larger than max_request_bytes, or than half the shared memory"
)
FENCED: Final = Verdict(OutcomeKind.FENCED, detail="the controller epoch is fenced")
CANCELLED: Final = Verdict(OutcomeKind.CANCELLED, detail="cancelled before it was sent")
TIME_OVER: Final = Verdict(OutcomeKind.CANCELLED, detail="not sent within its time limit")
RESIGNED: Final = Verdict(OutcomeKind.FENCED, detail="the controller has resigned")


#: A request that has its end and a callback: (sent, the queue that waits for the callback to return, whether
#: the sender waits for that too).
Called: TypeAlias = tuple[Sent, BrokerQueue | None, bool]


class Note(NamedTuple):
    """A line for the log, formatted outside the lock."""

    level: int
    message: str
    arguments: tuple[object, ...]


class ChannelState:
    """Every method but ``__init__`` is called with ``lock`` held."""

    def __init__(
        self, config: ChannelConfig, controller_epoch: int, recorder: Recorder | None = None
    ) -> None:
        self.lock = threading.Lock()
        self.config = config
        self.controller_epoch = controller_epoch
        #: None: nobody asked for rows.
        self.recorder = recorder
        self.memory = SharedMemory(config.shared_memory_bytes)
        self.pool = SenderPool(config, self.memory.fd)
        self.merger = Merger(config, self.memory) if config.merge_update_metadata else None
        self.collapser = Collapser(config, self.memory) if config.merge_update_metadata else None
        self._adapter = Adapter(config, self.memory, self._refuse) if config.negotiate else None
        self.by_id: dict[int, BrokerQueue] = {}
        self._by_slot: dict[int, BrokerQueue] = {}
        self._last_slot = 0
        # Frames of dropped requests that a sender may still be writing: slot -> frames.
        self._limbo: dict[int, list[Frame]] = {}
        # Queues whose first request found no room in shared memory.
        self._starved: set[BrokerQueue] = set()
        self.limits = TimeLimits()
        #: What has its end and is to be published, in the order of ends: without a callback, and with one.
        self.ended: list[Sent] = []
        self.called: list[Called] = []
        self.notes: list[Note] = []
        # Warnings of brokers that cannot be reached, and of those that are not there.
        self._failing = LogRateLimit()
        self._offline = LogRateLimit()
        self.closed = False

    def note(self, level: int, message: str, *arguments: object) -> None:
        self.notes.append(Note(level, message, arguments))

    # -- brokers

    def add(self, target: Target) -> None:
        """Nothing for a broker that is known; another epoch or endpoint is a new generation."""
        known = self.by_id.get(target.broker_id)
        if known is not None:
            if known.target == target:
                return
            self.remove(target.broker_id, REMOVED_BROKER)
        sender = self.pool.sender_for(target.broker_id)
        self._last_slot += 1
        queue = BrokerQueue(
            self._last_slot, target, sender, self.memory, self.merger, self._adapter, self.collapser
        )
        queue.held = self.config.negotiate
        sender.queues[queue.slot] = queue
        self.by_id[target.broker_id] = queue
        self._by_slot[queue.slot] = queue
        if self.recorder is not None:
            self.recorder.generation(queue.slot, target.broker_id, target.epoch)

    def remove(self, broker_id: int, verdict: Verdict) -> None:
        """Every unfinished request of this broker ends at once."""
        queue = self.by_id.pop(broker_id)
        del self._by_slot[queue.slot]
        del queue.sender.queues[queue.slot]
        self._starved.discard(queue)
        self._end_waiting(queue, verdict)
        limbo = []
        now = monotonic_ns()
        while queue.handed:
            sent = queue.finish_first()
            frame = sent.request.frame
            assert frame is not None
            # Its sender may be writing it this very moment.
            limbo.append(frame)
            self._end(sent, verdict, None, now)
        sender = queue.sender
        self._limbo[queue.slot] = limbo
        sender.leaving.add(queue.slot)
        queue.leave()
        if sender.broker_id >= 0:
            # It served nobody else; when it has ended nothing reads its frames.
            self.pool.end(sender)

    def _end_waiting(self, queue: BrokerQueue, verdict: Verdict) -> None:
        now = monotonic_ns()
        while queue.waiting:
            sent = queue.take_waiting()
            self._release(sent)
            self._end(sent, verdict, None, now)

    # -- sending

    def send(
        self, broker_ids: Sequence[int], request: ControlRequest, callback: OutcomeCallback | None
    ) -> list[Sent]:
        """Enqueue; the request's frame has as many users as there are brokers."""
        fenced = request.controller_epoch <= self.memory.fence
        sent, strays = enqueue({} if fenced else self.by_id, broker_ids, request, callback, self._starved)
        if strays:
            now = monotonic_ns()
            for stray in strays:
                if not fenced and (unsaid := self._offline.admit(stray.broker_id, now)) is not None:
                    self.note(
                        logging.WARNING,
                        "Not sending request %r to broker %d, since it is offline.%s",
                        request,
                        stray.broker_id,
                        unsaid,
                    )
                self._release(stray)
                self._end(stray, self._fenced_verdict() if fenced else OFFLINE, None, now)
        return sent

    def refuse(
        self,
        broker_ids: Sequence[int],
        request: ControlRequest,
        callback: OutcomeCallback | None,
        verdict: Verdict,
    ) -> list[Sent]:
        """Every broker gets this end for a request that has no frame."""
        now = monotonic_ns()
        result = []
        for broker_id in broker_ids:
            sent = Sent(broker_id, request, callback, now)
            result.append(sent)
            self._end(sent, verdict, None, now)
            queue = self.by_id.get(broker_id)
            if queue is not None:
                queue.mark(metadata=request.api_key == UPDATE_METADATA)
        return result

    def cancel(self, sent: Iterable[Sent], verdict: Verdict = CANCELLED) -> int:
        """End those of these that no sender was told of; how many they were."""
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
                self._end(one, verdict, None, now)
                count += len(one.members) if isinstance(one, Merged) else 1
            if not queue.starved:
                self._starved.discard(queue)
        return count

    def expire(self, now: int) -> None:
        """The time limit of some requests may be over."""
        self.cancel(self.limits.due(now), TIME_OVER)

    def fence(self, controller_epoch: int) -> None:
        """Nothing of this controller epoch, or an older one, is sent any more."""
        if controller_epoch <= self.memory.fence:
            return
        self.memory.fence = controller_epoch
        for queue in self.by_id.values():
            # What a sender was told of comes back by itself, as STALE or with the response it waits for.
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
                queue.append(sent)

    def resign(self) -> None:
        """Nothing is sent any more, of no epoch; whatever is unfinished ends now, also what is half sent."""
        self.memory.fence = ALL_FENCED
        for broker_id in list(self.by_id):
            self.remove(broker_id, RESIGNED)

    @property
    def fenced(self) -> bool:
        return self.memory.fence != UNFENCED

    @property
    def resigned(self) -> bool:
        return self.memory.fence == ALL_FENCED

    def _fenced_verdict(self) -> Verdict:
        return RESIGNED if self.resigned else FENCED

    # -- ends

    def _end(
        self,
        sent: Sent,
        verdict: Verdict,
        report: Report | None,
        now: int,
        queue: BrokerQueue | None = None,
        go: bool = False,
    ) -> None:
        if sent.joint:
            self._end_joint(sent, verdict, report, now, queue, go)
            return
        sent.end(Outcome(sent, verdict, report, now))
        if sent.callback is None:
            self.ended.append(sent)
        else:
            self.called.append((sent, queue, go))

    @property
    def has_ends(self) -> bool:
        """Whether anything is to be published."""
        return bool(self.ended or self.called)

    def _end_joint(
        self,
        sent: Sent,
        verdict: Verdict,
        report: Report | None,
        now: int,
        queue: BrokerQueue | None,
        go: bool,
    ) -> None:
        """The end of an entry that stands for others; those whom it stands for end here."""
        if isinstance(sent, Part):
            whole = sent.whole
            whole.take(sent, verdict, report)
            if whole.missing == 0:
                verdict = whole.verdict
                own = self.by_id.get(sent.broker_id)
                if own is not None and whole.sent.request.full and verdict.kind is OutcomeKind.ACKNOWLEDGED:
                    own.needs_resync = False
                self._end(whole.sent, verdict, whole.report, now, queue, go)
            return
        assert isinstance(sent, Merged)
        sent.settle()
        if sent.request.knowledge is not None and verdict.kind is OutcomeKind.ACKNOWLEDGED:
            own = self.by_id.get(sent.broker_id)
            if own is not None:
                own.acknowledged(sent.request)
        # The queue waits for the last callback of them all.
        called = [member for member in sent.members if member.callback is not None]
        for member in sent.members:
            if member.joint:
                # A part at another version.
                self._end(member, verdict, report, now, queue, go)
                continue
            member.end(Outcome(member, verdict, report, now, len(sent.members)))
            if member.callback is None:
                self.ended.append(member)
            elif member is called[-1]:
                self.called.append((member, queue, go))
            else:
                self.called.append((member, None, False))

    # -- full states

    @property
    def has_ready(self) -> bool:
        """Some broker could take a full state."""
        return self.collapser is not None and bool(self.collapser.ready)

    def take_ready(self) -> list[tuple[BrokerQueue, Collapsed]]:
        """The entries for which full states are to be made now."""
        if self.collapser is None:
            return []
        queues = list(self.collapser.ready)
        self.collapser.ready.clear()
        taken = []
        for queue in queues:
            if self.by_id.get(queue.target.broker_id) is queue:
                entry = queue.take_ready()
                if entry is not None:
                    taken.append((queue, entry))
                else:
                    # It was cancelled meanwhile.
                    self._hand_over(queue)
        return taken

    def provide(
        self, entries: Iterable[tuple[BrokerQueue, Collapsed]], told: FullState, known: Hashable | None
    ) -> None:
        """This is the state, for those of these whose turn it still is. Raises ProtocolError."""
        assert self.collapser is not None
        for queue, entry in entries:
            if self.by_id.get(queue.target.broker_id) is not queue:
                continue
            made = self.collapser.make(entry, told, known)
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

    def cannot_provide(self, entries: Iterable[tuple[BrokerQueue, Collapsed]], verdict: Verdict) -> None:
        """There is no full state for those of these that still wait for one."""
        for queue, entry in entries:
            if (
                self.by_id.get(queue.target.broker_id) is queue
                and queue.waiting
                and queue.waiting[0] is entry
            ):
                queue.take_waiting()
                queue.mark(metadata=True)
                self._end(entry, verdict, None, monotonic_ns())
                self._hand_over(queue)

    def _hand_over(self, queue: BrokerQueue) -> None:
        queue.hand_over()
        if queue.starved:
            self._starved.add(queue)

    def _refuse(self, sent: Sent, verdict: Verdict) -> None:
        """It cannot be sent to its broker."""
        self._release(sent)
        self._end(sent, verdict, None, monotonic_ns())

    def _release(self, sent: Sent) -> None:
        for frame in sent.request.frames():
            self.memory.release(frame)

    # -- what senders report

    def take_reports(self, sender: SenderHandle, data: bytes) -> None:
        position, end = 0, len(data)
        while True:
            before = position
            position = take_expected(
                data, position, self._by_slot, self.memory, self.ended, self.called, self._starved
            )
            if position > before:
                sender.has_responded = True
            if end - position < REPORT.size:
                break
            report = Report._make(REPORT.unpack_from(data, position))
            following = report[11]
            if end - position < REPORT.size + following:
                break
            position += REPORT.size
            self._take_other(sender, report, data[position : position + following])
            position += following
        sender.unread = data[position:]
        if self._starved:
            self._feed()

    def _take_joint(self, queue: BrokerQueue, report: Report) -> None:
        """An entry that stands for others has the expected response."""
        sent = self._finish_first(queue, report[R_RESPONSE])
        frame = sent.frame
        assert frame is not None
        assert frame.success is not None
        assert sent.sequence == report[4]
        if sent.request.full:
            queue.needs_resync = False
        called = sent.callback is not None
        self._end(sent, frame.success, report, monotonic_ns(), queue if called else None)
        if not called:
            self._top_up(queue)

    def _top_up(self, queue: BrokerQueue) -> None:
        queue.top_up()
        if queue.starved:
            self._starved.add(queue)

    def _take_response(self, queue: BrokerQueue, report: Report) -> None:
        """A response that must be judged; its sender sends no other request until it is told to."""
        sent = queue.handed[0]
        verdict = judge(sent.request, queue.take_response(report))
        if verdict is None:
            queue.again(report[4])
            return
        self._mark(queue, sent.request, verdict)
        self._finish_first(queue, monotonic_ns())
        if sent.callback is not None:
            self._end(sent, verdict, report, monotonic_ns(), queue, True)
        else:
            self._end(sent, verdict, report, monotonic_ns())
            queue.go(report[4])
            self._top_up(queue)

    def _finish_first(self, queue: BrokerQueue, now: int) -> Sent:
        """The first request has its end; the next one is in flight from ``now`` on."""
        sent = queue.finish_first()
        queue.first_leaves(now)
        frame = sent.frame
        assert frame is not None
        frame.pins -= 1
        self.memory.release(frame)
        return sent

    def _mark(self, queue: BrokerQueue, request: ControlRequest, verdict: Verdict) -> None:
        if verdict.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
            self.note(
                logging.ERROR,
                "Broker %s knows a newer controller than epoch %d: nothing more is sent.",
                queue.target,
                request.controller_epoch,
            )
            self.fence(request.controller_epoch)
        elif verdict.kind is not OutcomeKind.ACKNOWLEDGED:
            if not _has_newer_leader_epochs(request, verdict):
                # A stale broker epoch means that the broker has restarted: its metadata cache is gone.
                fenced = verdict.kind is OutcomeKind.FENCED
                queue.mark(metadata=fenced or request.api_key == UPDATE_METADATA)
        elif request.full:
            queue.needs_resync = False

    def _take_other(self, sender: SenderHandle, report: Report, following: bytes) -> None:
        kind, slot = report[0], report[3]
        if kind in (BORN, READY):
            sender.pid = report[4]
            return
        if kind == REMOVED:
            sender.leaving.discard(slot)
            self._free_limbo(slot)
            return
        queue = self._by_slot.get(slot)
        if queue is None:
            return
        if kind == EXPECTED:
            sender.has_responded = True
            self._take_joint(queue, report)
        elif kind == PIECE:
            queue.pieces.append(following)
        elif kind == RESPONSE:
            sender.has_responded = True
            self._take_response(queue, report)
        elif kind == STALE:
            sent = self._finish_first(queue, monotonic_ns())
            self._end(sent, FENCED, None, monotonic_ns(), queue if sent.callback is not None else None)
            self._top_up(queue)
        elif kind == VERSIONS:
            told = json.loads(following).items()
            queue.resume(report[4], {int(api): (lowest, highest) for api, (lowest, highest) in told})
            if queue.starved:
                self._starved.add(queue)
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
        elif kind == FAILED:
            self._note_failure(queue, report, following.decode(errors="replace"))

    def _note_failure(self, queue: BrokerQueue, report: Report, detail: str) -> None:
        queue.state = "backing off"
        queue.pieces.clear()
        queue.attempts = report[5]
        queue.last_error = Failure(report[1])
        queue.last_errno = report[10]
        queue.last_detail, _, traceback = detail.partition("\n")
        if traceback:
            self.note(
                logging.ERROR, "Serving broker %s failed in the sender process:\n%s", queue.target, traceback
            )
        # At the 1st, 2nd, 4th, 8th ... attempt: a broker that is away for a day is not worth a million lines.
        worth = queue.attempts & (queue.attempts - 1) == 0
        unsaid = self._failing.admit(queue.target.broker_id, monotonic_ns(), important=worth)
        if unsaid is None:
            return
        if not queue.handed:
            self.note(
                logging.WARNING,
                "Controller %d fails to connect to broker %s, attempt %d: %s.%s",
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
        """The next request to this broker may go out."""
        if self.by_id.get(queue.target.broker_id) is not queue:
            return
        queue.gate = False
        if go:
            queue.go(sent.sequence)
        self._hand_over(queue)

    def _feed(self) -> None:
        """There may be room now."""
        for queue in list(self._starved):
            queue.hand_over()
            if not queue.starved:
                self._starved.discard(queue)

    # -- senders that end

    def sender_ended(self, sender: SenderHandle) -> None:
        """All it had in hand is unfinished; another sender gets it."""
        self.pool.forget(sender)
        sender.close()
        if sender.queues and not self.closed:
            self._replace(sender)
        for slot in sender.leaving:
            self._free_limbo(slot)

    def _replace(self, sender: SenderHandle) -> None:
        self.note(
            logging.ERROR,
            "Sender process %d (pid %d) of %s ended; its requests are sent again.",
            sender.number,
            sender.pid,
            ", ".join(str(queue.target) for queue in sender.queues.values()),
        )
        if sender.failures >= _MOST_FAILURES:
            for queue in list(sender.queues.values()):
                self.remove(queue.target.broker_id, NO_SENDER)
            return
        successor = self.pool.replace(sender)
        for queue in sender.queues.values():
            queue.move_to(successor)
            successor.queues[queue.slot] = queue

    def _free_limbo(self, slot: int) -> None:
        for frame in self._limbo.pop(slot, ()):
            frame.pins -= 1
            self.memory.release(frame)

    def close(self) -> None:
        """Everything unfinished ends now; senders are told to end."""
        self.closed = True
        for broker_id in list(self.by_id):
            self.remove(broker_id, SHUT_DOWN)
        self.pool.flush()
        self.pool.end_all()


def _has_newer_leader_epochs(request: ControlRequest, verdict: Verdict) -> bool:
    """Whether each partition error of a LeaderAndIsr response is the harmless 11: the broker has this leader
    epoch, or a newer one, already (``ReplicaManager.becomeLeaderOrFollower``)."""
    if request.api_key != LEADER_AND_ISR or verdict.kind is not OutcomeKind.PARTITION_ERRORS:
        return False
    assert verdict.response is not None
    errors = verdict.response.partition_error
    return bool(((errors == 0) | (errors == ErrorCode.STALE_CONTROLLER_EPOCH)).all())
