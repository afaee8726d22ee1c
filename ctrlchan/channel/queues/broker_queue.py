"""The unfinished requests of one broker generation.

A request stays here until it has its outcome, also while a sender process has it. So no request is lost when
a sender ends. Every method is called with the channel's lock held.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ctrlchan._codec import UPDATE_METADATA
from ctrlchan.channel.coalescing.internal_entries import CollapsedEntry, MergedEntry, RequestPart, parts_of
from ctrlchan.channel.observability.description import head_of
from ctrlchan.channel.queues._entries import RequestQueue
from ctrlchan.channel.wire.records import (
    ADD,
    AGAIN,
    COMMAND_HEAD,
    COMMAND_REST,
    GO,
    NO_REST,
    REMOVE,
    RESUME,
    Report,
)
from ctrlchan.errors import ProtocolError
from ctrlchan.protocol import API_NAMES
from ctrlchan.security.failure import Failure

if TYPE_CHECKING:
    from ctrlchan.channel.coalescing.adapter import Adapter
    from ctrlchan.channel.coalescing.collapser import Collapser
    from ctrlchan.channel.coalescing.merger import Merger
    from ctrlchan.channel.outcome import Sent
    from ctrlchan.channel.processes.sender_pool import SenderHandle
    from ctrlchan.channel.queues.full_state import FullStateSource
    from ctrlchan.channel.queues.shared_memory import SharedMemory
    from ctrlchan.channel.request import ControlRequest
    from ctrlchan.channel.target import Target

__all__ = ["BrokerQueue"]

#: Requests handed over at once, if none of them can be merged or transcoded first.
_ALL: Final = 64

#: States in which a connection is being made as soon as a request is handed over.
_UNCONNECTED: Final = ("idle", "disconnected")


class _SentFullState(NamedTuple):
    """The last full state of a broker, in queue order; ``AcknowledgedMetadata`` has push order.

    ``request``: None once it is acknowledged.
    """

    source: FullStateSource
    knowledge: Hashable
    request: ControlRequest | None


class BrokerQueue(RequestQueue):
    """The unfinished requests of one generation of a broker.

    ``slot`` is the number of this generation in the pipes; it is never used again.
    """

    __slots__ = (
        "_last_full_state",
        "adapter",
        "collapsed",
        "collapser",
        "last_detail",
        "last_errno",
        "last_error",
        "memory",
        "merged",
        "metadata_errors",
        "pieces",
        "state",
        "target",
    )

    def __init__(
        self,
        slot: int,
        target: Target,
        sender: SenderHandle,
        memory: SharedMemory,
        merger: Merger | None = None,
        adapter: Adapter | None = None,
        collapser: Collapser | None = None,
    ) -> None:
        super().__init__(slot, sender, merger)
        self.target = target
        self.memory = memory
        #: None if brokers are not asked for their versions.
        self.adapter = adapter
        #: None if no full state is sent in place of a backlog.
        self.collapser = collapser
        #: Requests that were not sent because they were merged, or dropped for a full state.
        self.merged = 0
        self.collapsed = 0
        # None if there was none, or if other UpdateMetadata or an error came after it.
        self._last_full_state: _SentFullState | None = None
        #: Pieces of a long response.
        self.pieces: list[bytes] = []
        self.state = "idle"
        self.last_error = Failure.NONE
        self.last_errno = 0
        self.last_detail = ""
        #: Errors after which the contents of the broker's metadata cache are uncertain.
        self.metadata_errors = 0
        if sender.takes_requests:
            self.begin()
        else:
            self.held = True

    def begin(self) -> None:
        """Register the broker with its sender, and hand over requests."""
        # If versions are negotiated, requests are handed over when the sender has reported them.
        self.held = self.adapter is not None
        following = self.target.to_json()
        rest = COMMAND_REST.pack(0, 0, 0, 0, b"", len(following))
        self.sender.write(COMMAND_HEAD.pack(ADD, 0, 0, self.slot, 0) + rest + following)
        self.hand_over()

    def last_problem(self) -> str:
        """Return why the last attempt failed; empty if none has failed."""
        text = self.last_error.text
        if self.last_detail:
            return f"{text}: {self.last_detail}"
        return f"{text} ({os.strerror(self.last_errno)})" if self.last_errno > 0 else text

    def describe(self, now: int) -> dict[str, Any]:
        """Return the state of the broker and its queue for ``ControllerChannelManager.describe``.

        ``state``: idle, connecting, connected, backing off or disconnected. ``queue_size``, ``queued_bytes``:
        unfinished requests; ``in_flight``: those that the sender has. ``attempts``: failed attempts of the
        first one. ``oldest_age``: seconds since it was queued; ``head``: the first one (``head_of``).
        ``merged``, ``collapsed``: requests not sent because they were merged, or dropped for a full state.
        ``needs_resync``: an error makes a full resync necessary. ``versions``: of the control APIs; None: the
        broker was not asked. ``sender_failures``: senders in a row that ended without a response.
        """
        head = head_of(self.handed[0] if self.handed else self.waiting[0] if self.waiting else None, now)
        return {
            "endpoint": f"{self.target.host}:{self.target.port}",
            "broker_epoch": self.target.epoch,
            "state": "connecting" if self.handed and self.state in _UNCONNECTED else self.state,
            "queue_size": len(self),
            "queued_bytes": self.waiting_bytes + self.handed_bytes,
            "in_flight": len(self.handed),
            "attempts": self.attempts,
            "last_error": self.last_problem(),
            "oldest_age": 0.0 if head is None else head["age"],
            "head": head,
            "merged": self.merged,
            "collapsed": self.collapsed,
            "needs_resync": self.needs_resync,
            "versions": None
            if self.versions is None
            else {API_NAMES[api]: ends for api, ends in self.versions.items()},
            "sender_pid": self.sender.pid,
            "sender_failures": self.sender.failures,
        }

    def mark(self, *, metadata: bool) -> None:
        """Note that an error makes a resync necessary.

        ``metadata``: the contents of the broker's metadata cache are uncertain too, so the next
        UpdateMetadata must be a full one.
        """
        self.needs_resync = True
        if metadata:
            self.metadata_errors += 1
            self._last_full_state = None

    # -- handing over

    def take_waiting(self) -> Sent:
        """Remove and return the first waiting request."""
        sent = self.waiting.popleft()
        self.waiting_bytes -= sent.bytes
        self._last_full_state = None
        return sent

    def withdraw(self, chosen: set[Sent]) -> list[Sent]:
        """Remove and return those of ``chosen`` that were never handed over.

        A merged entry is removed if all its members are among them.
        """
        found = [sent for sent in self.waiting if sent.sequence == 0 and _is_chosen(sent, chosen)]
        if found:
            gone = set(found)
            kept = [sent for sent in self.waiting if sent not in gone]
            self.waiting.clear()
            self.waiting.extend(kept)
            self.waiting_bytes -= sum(sent.bytes for sent in found)
            self.is_out_of_memory = self.is_out_of_memory and bool(kept)
            self._last_full_state = None
        return found

    def attend(self) -> None:
        """Do the work that ``append`` left: hand over, merge."""
        if self.is_hand_over_due:
            self.hand_over()
        if self.is_merge_due:
            self.is_merge_due = False
            self._merge_backlog()

    def hand_over(self) -> None:
        """Hand over as many requests as the sender may have."""
        self.is_hand_over_due = False
        if self.gate or self.held:
            return
        merger = self.merger
        most = _ALL if merger is None and self.versions is None else 1
        self.is_out_of_memory = False
        while self.may_hand:
            if merger is not None and len(self.waiting) > 1:
                self._merge_head(merger)
            if self.versions is not None and not self._adapt_head(self.versions):
                continue
            if self.hand(most):
                if self._last_full_state is not None:
                    # There is a merger if there are full states, so one request was handed over.
                    self._note_handed(self.handed[-1])
                continue
            frame = self.waiting[0].request.frame
            if frame is None:
                if isinstance(self.waiting[0], CollapsedEntry):
                    # The broker is ready if it has answered all earlier requests.
                    if not self.handed and self.collapser is not None:
                        self.collapser.ready[self] = None
                    return
                # Hand over its parts, one after another.
                sent = self.waiting.popleft()
                self.waiting.extendleft(reversed(parts_of(sent)))
            elif not self.memory.admit(frame):
                self.is_out_of_memory = True
                return

    # -- merging

    def _merge_backlog(self) -> None:
        """Merge the waiting requests; if too many bytes are left, drop bodies for a full state."""
        merger = self.merger
        assert merger is not None
        self._merge_waiting(merger)
        if self.waiting_bytes > merger.most_bytes and self.collapser is not None:
            self._collapse_waiting(self.collapser, merger.most_bytes)
        if self.waiting_bytes > merger.most_bytes:
            self._merge_waiting(merger, crowded=True)

    def _merge_head(self, merger: Merger) -> None:
        run = merger.run_of(self.waiting)
        made = merger.join([sent.request for sent in run]) if len(run) > 1 else None
        if made is not None:
            for _ in range(made.sources):
                self.waiting.popleft()
            self._count_saved(merger, made)
            self.waiting.appendleft(self._stand_in(made, run[: made.sources]))

    def _adapt_head(self, versions: Mapping[int, tuple[int, int]]) -> bool:
        """Bring the first waiting request to a version of the broker. False: impossible, so it has ended."""
        sent = self.waiting[0]
        request = sent.request
        lowest, highest = versions.get(request.api_key, (0, -1))
        if lowest <= request.version <= highest or isinstance(sent, CollapsedEntry):
            return True
        assert self.adapter is not None
        self.waiting.popleft()
        made = self.adapter.adapt(sent, versions)
        if made is None:
            self.waiting_bytes -= sent.bytes
            self.mark(metadata=request.api_key == UPDATE_METADATA)
            return False
        self.waiting.appendleft(self._stand_in(made, [sent]))
        return True

    def _merge_waiting(self, merger: Merger, *, crowded: bool = False) -> None:
        """Merge all neighbours that may be merged (``Merger.join``)."""
        self.loose = self.loose_bytes = 0
        waiting = list(self.waiting)
        self.waiting.clear()
        at = 0
        while at < len(waiting):
            run = merger.run_of(islice(waiting, at, None))
            made = None
            if len(run) > 1:
                made = merger.join([sent.request for sent in run], crowded=crowded)
            if made is None:
                self.waiting.append(waiting[at])
                at += 1
            else:
                self._count_saved(merger, made)
                self.waiting.append(self._stand_in(made, run[: made.sources]))
                at += made.sources

    def _count_saved(self, merger: Merger, made: ControlRequest) -> None:
        self.merged += made.sources - 1
        merger.saved += made.sources - 1

    def _stand_in(self, made: ControlRequest, run: list[Sent]) -> MergedEntry:
        """Return an entry for a request that replaces these entries, and release their frames."""
        for frame in made.frames():
            self.memory.add_users(frame)
        for sent in run:
            self.waiting_bytes -= sent.bytes
            for frame in sent.request.frames():
                self.memory.release(frame)
        self.waiting_bytes += made.size
        return MergedEntry(made, run)

    # -- full states

    def _collapse_waiting(self, collapser: Collapser, most_bytes: int) -> None:
        """Drop the bodies of all UpdateMetadata that a full state can replace, if they are too large."""
        if sum(sent.bytes for sent in self.waiting if sent.request.full_state is not None) <= most_bytes:
            return
        waiting = list(self.waiting)
        self.waiting.clear()
        at = 0
        while at < len(waiting):
            run = collapser.run_of(islice(waiting, at, None))
            entry = self._collapsed(collapser, run) if run else None
            if entry is None:
                self.waiting.append(waiting[at])
                at += 1
            else:
                self.waiting.append(entry)
                at += len(run)
        if self.may_hand:
            self.hand_over()

    def _collapsed(self, collapser: Collapser, run: list[Sent]) -> CollapsedEntry | None:
        """Release the frames of `run`; return one entry without a body for it, or None if undecodable."""
        try:
            entry = collapser.collapse(run)
        except ProtocolError:
            return None
        dropped = [sent for sent in run if not isinstance(sent, CollapsedEntry)]
        for sent in dropped:
            self.waiting_bytes -= sent.bytes
            for frame in sent.request.frames():
                self.memory.release(frame)
        count = sum(len(sent.members) if isinstance(sent, MergedEntry) else 1 for sent in dropped)
        self.collapsed += count
        collapser.saved += count
        return entry

    def take_ready(self) -> CollapsedEntry | None:
        """Return the first entry if it waits for a full state and the broker is ready, else None.

        It takes in the entries behind it that a state read from now on contains.
        """
        if self.handed or self.gate or self.held or not self.waiting or self.collapser is None:
            return None
        if not isinstance(self.waiting[0], CollapsedEntry):
            return None
        run = self.collapser.run_of(self.waiting)
        entry = self._collapsed(self.collapser, run) if len(run) > 1 else None
        if entry is not None:
            for _ in run:
                self.waiting.popleft()
            self.waiting.appendleft(entry)
        first = self.waiting[0]
        assert isinstance(first, CollapsedEntry)
        return first

    def provide(self, entry: CollapsedEntry, made: ControlRequest) -> bool:
        """Put the full state in the entry's place. False: the entry is no longer the first."""
        if not self.waiting or self.waiting[0] is not entry:
            return False
        self.waiting.popleft()
        self.waiting.appendleft(self._stand_in(made, [entry]))
        self._last_full_state = None
        if made.knowledge is not None:
            self._last_full_state = _SentFullState(entry.source, made.knowledge, made)
        return True

    def known_of(self, source: FullStateSource) -> Hashable | None:
        """Return the ``knowledge`` of the last full state of this source.

        Returns None if the broker has not acknowledged it, or was sent other UpdateMetadata after it.
        """
        last = self._last_full_state
        return last.knowledge if last is not None and last.source == source and last.request is None else None

    def acknowledged(self, made: ControlRequest) -> None:
        """Note that the broker has acknowledged a full state."""
        last = self._last_full_state
        if last is not None and last.request is made:
            self._last_full_state = last._replace(request=None)

    def _note_handed(self, sent: Sent) -> None:
        """Forget the last full state if other UpdateMetadata follows it.

        When nothing waits any more, later requests are not checked, so it is forgotten then too.
        """
        original = sent.split_request.sent if isinstance(sent, RequestPart) else sent
        last = self._last_full_state
        assert last is not None
        if not self.waiting or (sent.api_key == UPDATE_METADATA and original.request is not last.request):
            self._last_full_state = None

    # -- responses

    def take_response(self, report: Report) -> bytes:
        """Return the bytes of a response: from the RESPONSE report, or from the pieces before it."""
        if not self.pieces:
            return report.inline[: report.inline_size]
        body = b"".join(self.pieces)
        self.pieces.clear()
        return body

    def go(self, sequence: int) -> None:
        """Let the sender go on with the next request."""
        self.sender.write(COMMAND_HEAD.pack(GO, 0, 0, self.slot, sequence) + NO_REST)

    def again(self, sequence: int) -> None:
        """Have the sender send the request again: its response could not be decoded."""
        self.sender.write(COMMAND_HEAD.pack(AGAIN, 0, 0, self.slot, sequence) + NO_REST)

    # -- other senders, other versions

    def move_to(self, sender: SenderHandle) -> None:
        """Change to another sender. When it is ready, ``begin`` hands over all requests in the old order."""
        self.sender = sender
        self.pieces.clear()
        if self.handed:
            self.handed[0].sender_deaths += 1
        self._take_back()
        self.held = True

    def resume(self, agreement: int, versions: Mapping[int, tuple[int, int]]) -> None:
        """Take the broker's versions; the sender dropped its requests, so they are handed over again."""
        self.versions = versions
        self._take_back()
        self.held = False
        self.sender.write(COMMAND_HEAD.pack(RESUME, 0, 0, self.slot, agreement) + NO_REST)
        self.hand_over()

    def _take_back(self) -> None:
        """Put the handed requests back in front of the waiting ones: no sender has them any more."""
        while self.handed:
            sent = self.handed.pop()
            frame = sent.request.frame
            assert frame is not None
            frame.pins -= 1
            self.waiting.appendleft(sent)
            self.waiting_bytes += frame.size
            # The last request handed over closed the gate. While its callback runs it is not in the queue.
            if sent.callback is not None:
                self.gate = False
        self.handed_bytes = 0

    def leave(self) -> None:
        """Have the sender forget this generation; the sender reports REMOVED."""
        self.sender.write(COMMAND_HEAD.pack(REMOVE, 0, 0, self.slot, 0) + NO_REST)


def _is_chosen(sent: Sent, chosen: set[Sent]) -> bool:
    if isinstance(sent, MergedEntry):
        return all(member.sequence == 0 and member in chosen for member in sent.members)
    return sent in chosen
