"""The unfinished requests of one broker generation: the truth about what it is still owed.

A request stays here until it has its outcome, also while a sender process has it in hand, so that the end of
a sender loses nothing. Every method is called with the channel's lock held.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ctrlchan._codec import UPDATE_METADATA
from ctrlchan.channel.records import (
    ADD,
    AGAIN,
    COMMAND_HEAD,
    COMMAND_REST,
    GO,
    NO_REST,
    REMOVE,
    RESUME,
    SEND,
    Failure,
    Report,
)
from ctrlchan.channel.rewriting.joint import Merged, parts_of
from ctrlchan.channel.sight.description import head_of
from ctrlchan.versions import API_NAMES

if TYPE_CHECKING:
    from ctrlchan.channel.outcome import Sent
    from ctrlchan.channel.request import ControlRequest
    from ctrlchan.channel.rewriting.adapter import Adapter
    from ctrlchan.channel.rewriting.merger import Merger
    from ctrlchan.channel.sender_pool import SenderHandle
    from ctrlchan.channel.tails import SharedMemory
    from ctrlchan.channel.target import Target

__all__ = ["BrokerQueue"]

#: A sender is told of this many requests ahead, so that one wake-up moves many of them ...
_WINDOW: Final = 64
#: ... and of no more bytes than this beyond the second: what it was not told of can still be changed.
_WINDOW_BYTES: Final = 1024 * 1024
_WINDOW_LEAST: Final = 2
#: It is told of more when so few are left, and not with every single request.
_LOW_WATER: Final = 32

#: Waiting UpdateMetadata are merged when there are so many more than the last time, and when they are at
#: least this share of all that waits, or so many.
_LOOSE: Final = 64
_LOOSE_SHARE: Final = 8
_LOOSE_MOST: Final = 1024

_pack_head: Final = COMMAND_HEAD.pack

#: States in which a request in hand means that a connection is being made.
_UNCONNECTED: Final = ("idle", "disconnected")


class BrokerQueue:
    """``slot`` is this generation's number in the pipes; it is never used again."""

    __slots__ = (
        "adapter",
        "attempts",
        "gate",
        "handed",
        "handed_bytes",
        "held",
        "last_detail",
        "last_errno",
        "last_error",
        "loose",
        "loose_bytes",
        "memory",
        "merged",
        "merger",
        "needs_resync",
        "pieces",
        "sender",
        "sequence",
        "slot",
        "starved",
        "state",
        "target",
        "troubles",
        "versions",
        "waiting",
        "waiting_bytes",
    )

    def __init__(
        self,
        slot: int,
        target: Target,
        sender: SenderHandle,
        memory: SharedMemory,
        merger: Merger | None = None,
        adapter: Adapter | None = None,
    ) -> None:
        self.slot = slot
        self.target = target
        self.sender = sender
        self.memory = memory
        #: Not yet told to the sender; handed: told, in order, the first of them in flight.
        self.waiting: deque[Sent] = deque()
        self.handed: deque[Sent] = deque()
        self.waiting_bytes = 0
        self.handed_bytes = 0
        #: None: requests go as they are.
        self.merger = merger
        #: None: brokers are not asked for their versions.
        self.adapter = adapter
        #: Requests that were not sent because they were merged with others.
        self.merged = 0
        # UpdateMetadata that came since the last merging at the end of ``waiting``.
        self.loose = 0
        self.loose_bytes = 0
        self.sequence = 0
        #: The last request handed over has a callback: nothing follows until that has returned.
        self.gate = False
        #: The first waiting request found no room in shared memory.
        self.starved = False
        #: Parts of a long response.
        self.pieces: list[bytes] = []
        self.state = "idle"
        self.attempts = 0
        self.last_error = Failure.NONE
        self.last_errno = 0
        self.last_detail = ""
        #: The versions of the control APIs that the broker has, once it was asked; while ``held``, the sender
        #: takes nothing, for it may be of other versions.
        self.versions: Mapping[int, tuple[int, int]] | None = None
        self.held = False
        #: An error came back: what the broker knows is no longer what it was told, until it has acknowledged
        #: a full request; and how often that has happened.
        self.needs_resync = False
        self.troubles = 0
        self._introduce()

    def _introduce(self) -> None:
        following = self.target.to_json()
        rest = COMMAND_REST.pack(0, 0, 0, 0, b"", len(following))
        self.sender.write(COMMAND_HEAD.pack(ADD, 0, 0, self.slot, 0) + rest + following)

    def __len__(self) -> int:
        return len(self.waiting) + len(self.handed)

    def last_problem(self) -> str:
        """Why the last attempt failed; empty when none has."""
        text = self.last_error.text
        if self.last_detail:
            return f"{text}: {self.last_detail}"
        return f"{text} ({os.strerror(self.last_errno)})" if self.last_errno > 0 else text

    def describe(self, now: int) -> dict[str, Any]:
        """Endpoint, epoch, state (idle, connecting, connected, backing off, disconnected), requests and bytes
        queued, requests a sender has in hand, failed attempts at the first of them, last error, seconds since
        the oldest was queued, the first of them (``head_of``), requests that were not sent because they were
        merged with others, whether an error makes a full resync necessary, its versions of the control
        APIs (None: it was not asked), the pid of its sender."""
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
            "needs_resync": self.needs_resync,
            "versions": None
            if self.versions is None
            else {API_NAMES[api]: ends for api, ends in self.versions.items()},
            "sender_pid": self.sender.pid,
        }

    def mark(self) -> None:
        """What the broker knows is uncertain from here on."""
        self.needs_resync = True
        self.troubles += 1

    # -- handing over

    def append(self, sent: Sent, size: int) -> None:
        self.waiting.append(sent)
        self.waiting_bytes += size
        if len(self.handed) < _WINDOW_LEAST:
            self.hand_over()
        if self.merger is not None:
            self._count_loose(self.merger, sent, size)

    def take_waiting(self) -> Sent:
        """Remove the first request that the sender was not told of."""
        sent = self.waiting.popleft()
        self.waiting_bytes -= sent.request.size
        return sent

    def withdraw(self, chosen: set[Sent]) -> list[Sent]:
        """Remove those of ``chosen`` that the sender was never told of, a merged request when all that were
        merged are among them."""
        found = [sent for sent in self.waiting if sent.sequence == 0 and _is_chosen(sent, chosen)]
        if found:
            gone = set(found)
            kept = [sent for sent in self.waiting if sent not in gone]
            self.waiting.clear()
            self.waiting.extend(kept)
            self.waiting_bytes -= sum(sent.request.size for sent in found)
            self.starved = self.starved and bool(kept)
        return found

    def top_up(self) -> None:
        if self.waiting and len(self.handed) <= _LOW_WATER:
            self.hand_over()

    def hand_over(self) -> None:
        """Tell the sender of as many requests as it may know ahead."""
        if self.gate or self.held:
            return
        waiting, handed, write, slot = self.waiting, self.handed, self.sender.write, self.slot
        merger = self.merger
        self.starved = False
        while (
            waiting
            and len(handed) < _WINDOW
            and (self.handed_bytes < _WINDOW_BYTES or len(handed) < _WINDOW_LEAST)
        ):
            if merger is not None and len(waiting) > 1:
                self._merge_head(merger)
            if self.versions is not None and not self._adapt_head(self.versions):
                continue
            sent = waiting[0]
            frame = sent.request.frame
            if frame is None:
                # It goes in parts, one after another.
                waiting.popleft()
                waiting.extendleft(reversed(parts_of(sent)))
                continue
            if frame.offset < 0 and not self.memory.admit(frame):
                self.starved = True
                return
            frame.pins += 1
            self.sequence = sequence = self.sequence + 1
            sent.sequence = sequence
            handed.append(waiting.popleft())
            self.waiting_bytes -= frame.size
            self.handed_bytes += frame.size
            write(_pack_head(SEND, frame.expect_size, frame.epoch_at, slot, sequence) + frame.rest)
            if sent.callback is not None:
                self.gate = True
                return

    # -- merging

    def _count_loose(self, merger: Merger, sent: Sent, size: int) -> None:
        """Merge what waits before it is many, and before it is much."""
        if sent.request.api_key != UPDATE_METADATA:
            self.loose = self.loose_bytes = 0
            return
        self.loose += 1
        self.loose_bytes += size
        if self.loose < _LOOSE and self.waiting_bytes <= merger.most_bytes:
            return
        # What was merged before is merged again: not for a few bytes more.
        if self.loose < _LOOSE_MOST and self.loose_bytes * _LOOSE_SHARE < self.waiting_bytes:
            return
        self._merge_waiting(merger)
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
        """Have the first waiting request at a version of the broker. False: it cannot be, and has ended."""
        sent = self.waiting[0]
        request = sent.request
        lowest, highest = versions.get(request.api_key, (0, -1))
        if lowest <= request.version <= highest:
            return True
        assert self.adapter is not None
        self.waiting.popleft()
        made = self.adapter.adapt(sent, versions)
        if made is None:
            self.waiting_bytes -= request.size
            self.mark()
            return False
        self.waiting.appendleft(self._stand_in(made, [sent]))
        return True

    def _merge_waiting(self, merger: Merger, *, crowded: bool = False) -> None:
        """Merge all neighbours that may be merged."""
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

    def _stand_in(self, made: ControlRequest, run: list[Sent]) -> Merged:
        """An entry for a request that goes in the place of these."""
        for frame in made.frames():
            frame.users += 1
        for sent in run:
            self.waiting_bytes -= sent.request.size
            for frame in sent.request.frames():
                self.memory.release(frame)
        self.waiting_bytes += made.size
        return Merged(made, run)

    # -- what comes back

    def take_response(self, report: Report) -> bytes:
        """The response of a RESPONSE report: inside it, or in the pieces that came before."""
        if not self.pieces:
            return report[12][: report[2]]
        body = b"".join(self.pieces)
        self.pieces.clear()
        return body

    def finish_first(self) -> Sent:
        """The first request has its end; the caller releases its frame."""
        sent = self.handed.popleft()
        self.handed_bytes -= sent.request.size
        self.attempts = 0
        return sent

    def go(self, sequence: int) -> None:
        self.sender.write(COMMAND_HEAD.pack(GO, 0, 0, self.slot, sequence) + NO_REST)

    def again(self, sequence: int) -> None:
        self.sender.write(COMMAND_HEAD.pack(AGAIN, 0, 0, self.slot, sequence) + NO_REST)

    # -- ends

    def move_to(self, sender: SenderHandle) -> None:
        """Its sender is gone: another gets everything again, in the old order."""
        self.sender = sender
        self.pieces.clear()
        if self.handed:
            self.handed[0].sender_deaths += 1
        self._take_back()
        # A sender that negotiates takes nothing before it knows the broker's versions.
        self.held = self.versions is not None or self.held
        self._introduce()
        self.hand_over()

    def resume(self, agreement: int, versions: Mapping[int, tuple[int, int]]) -> None:
        """The broker has other versions than before: the sender has dropped all it had and gets it anew."""
        self.versions = versions
        self._take_back()
        self.held = False
        self.sender.write(COMMAND_HEAD.pack(RESUME, 0, 0, self.slot, agreement) + NO_REST)
        self.hand_over()

    def _take_back(self) -> None:
        """The sender has nothing of this queue any more."""
        while self.handed:
            sent = self.handed.pop()
            frame = sent.request.frame
            assert frame is not None
            frame.pins -= 1
            self.waiting.appendleft(sent)
            self.waiting_bytes += frame.size
            # A gate was closed by the last one handed over; if its callback is running it is no longer here.
            if sent.callback is not None:
                self.gate = False
        self.handed_bytes = 0

    def leave(self) -> None:
        """Have the sender forget this generation; it answers with REMOVED."""
        self.sender.write(COMMAND_HEAD.pack(REMOVE, 0, 0, self.slot, 0) + NO_REST)


def _is_chosen(sent: Sent, chosen: set[Sent]) -> bool:
    if isinstance(sent, Merged):
        return all(member.sequence == 0 and member in chosen for member in sent.members)
    return sent in chosen
