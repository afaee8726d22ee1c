"""Queue entries that stand for others: several requests that go as one, or one of several pieces of one.

Nobody outside the channel sees these; what users hold are the Sents they stand for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ctrlchan.channel.coalescing.split import worst_of
from ctrlchan.channel.outcome import Sent

if TYPE_CHECKING:
    from ctrlchan._codec import Int32
    from ctrlchan.channel.outcome import Verdict
    from ctrlchan.channel.queues.full_state import FullStateSource
    from ctrlchan.channel.request import ControlRequest
    from ctrlchan.channel.wire.records import Report

__all__ = ["Collapsed", "Merged", "Part", "Whole", "parts_of"]


class Merged(Sent):
    """One request in place of its members', which all end as it does.

    Its ``callback`` is never called: that it has one says that a member has.
    """

    __slots__ = ("members",)

    def __init__(self, request: ControlRequest, run: Sequence[Sent]) -> None:
        self.members: list[Sent] = []
        for sent in run:
            if not isinstance(sent, Merged):
                self.members.append(sent)
                continue
            if sent.sequence or sent.sender_deaths:
                for member in sent.members:
                    member.sender_deaths += sent.sender_deaths
                    # A sender that is no more had it in hand.
                    member.sequence = sent.sequence
            if self.members:
                self.members += sent.members
            else:
                # A backlog is merged with what comes again and again: it is handed on, not copied.
                self.members = sent.members
        called = (sent.callback for sent in run if sent.callback is not None)
        super().__init__(run[0].broker_id, request, next(called, None), run[0].enqueued_ns)
        self.joint = True

    def represents(self) -> Sequence[Sent]:
        """The entries that leave the queue with this one."""
        return self.members

    def settle(self) -> None:
        """It has its end: what happened to it has happened to each of its members."""
        for member in self.members:
            member.sender_deaths += self.sender_deaths
            member.sequence = self.sequence
            member.version, member.bytes = self.version, self.bytes


class Collapsed(Merged):
    """Requests whose bodies were dropped: what they said is asked of their source when the broker is ready.

    ``request`` has no frame. ``deletions``: topic -> partitions that they delete, ascending int32, which the
    state can no longer tell.
    """

    __slots__ = ("deletions",)

    def __init__(self, request: ControlRequest, run: Sequence[Sent], deletions: dict[bytes, Int32]) -> None:
        super().__init__(request, run)
        self.deletions = deletions

    def settle(self) -> None:
        """Nothing of it was ever sent, so its members are as they were."""

    @property
    def source(self) -> FullStateSource:
        source = self.request.full_state
        assert source is not None
        return source

    @property
    def fingerprint(self) -> frozenset[tuple[bytes, bytes]]:
        """Equal where the same is deleted."""
        return frozenset((topic, partitions.tobytes()) for topic, partitions in self.deletions.items())


class Part(Sent):
    """A piece of a request that was too large. The last piece has the callback of the whole, uncalled."""

    __slots__ = ("whole",)

    def __init__(self, whole: Whole, request: ControlRequest) -> None:
        sent = whole.sent
        super().__init__(sent.broker_id, request, None, sent.enqueued_ns)
        self.joint = True
        self.whole = whole

    def represents(self) -> Sequence[Sent]:
        """The entry that leaves the queue with the first of its parts."""
        return (self.whole.sent,)


class Whole:
    """What is known so far of a request that goes in parts."""

    __slots__ = ("_attempts", "_bytes", "_first_byte_ns", "_report", "_verdicts", "missing", "sent")

    def __init__(self, sent: Sent, parts: int) -> None:
        self.sent = sent
        self.missing = parts
        self._verdicts: list[Verdict] = []
        self._bytes = 0
        self._report: Report | None = None
        self._attempts = 0
        self._first_byte_ns = 0

    def take(self, part: Part, verdict: Verdict, report: Report | None) -> None:
        self.missing -= 1
        self._verdicts.append(verdict)
        self.sent.sender_deaths += part.sender_deaths
        self.sent.sequence = part.sequence
        self._bytes += part.bytes
        self.sent.version, self.sent.bytes = part.version, self._bytes
        if report is not None:
            self._attempts += report.attempts
            self._first_byte_ns = self._first_byte_ns or report.first_byte_ns
            self._report = report

    @property
    def verdict(self) -> Verdict:
        """The worst part's."""
        return worst_of(self._verdicts)

    @property
    def report(self) -> Report | None:
        """The last part's, with the first byte of the first and the attempts at all of them."""
        report = self._report
        if report is None:
            return None
        return report._replace(attempts=self._attempts, first_byte_ns=self._first_byte_ns)


def parts_of(sent: Sent) -> list[Part]:
    """Entries for the parts of this one's request, in order."""
    requests = sent.request.parts
    assert requests is not None
    whole = Whole(sent, len(requests))
    parts = [Part(whole, request) for request in requests]
    parts[-1].callback = sent.callback
    return parts
