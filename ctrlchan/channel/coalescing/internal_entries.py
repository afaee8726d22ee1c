"""Queue entries that the channel makes itself: merged requests, full states to be built, parts of a request.

Users never hold one of them. When an internal entry ends, the entries that it replaced end with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ctrlchan.channel.coalescing.split import worst_of
from ctrlchan.channel.outcome import Sent
from ctrlchan.channel.request import ControlRequest
from ctrlchan.protocol import UPDATE_METADATA

if TYPE_CHECKING:
    from ctrlchan._codec import Int32
    from ctrlchan.channel.outcome import RequestResult
    from ctrlchan.channel.queues.full_state import FullStateSource
    from ctrlchan.channel.wire.records import Report

__all__ = ["CollapsedEntry", "MergedEntry", "RequestPart", "SplitRequest", "parts_of"]


class MergedEntry(Sent):
    """One request that is sent in place of its ``members``, which all end with the same result.

    ``callback`` is set if a member has one, so that the queue waits for it. It is never called itself.
    """

    __slots__ = ("members",)

    def __init__(self, request: ControlRequest, run: Sequence[Sent]) -> None:
        self.members: list[Sent] = []
        for sent in run:
            if not isinstance(sent, MergedEntry):
                self.members.append(sent)
                continue
            if sent.sequence or sent.sender_deaths:
                for member in sent.members:
                    member.sender_deaths += sent.sender_deaths
                    # The entry was handed to a sender that has ended.
                    member.sequence = sent.sequence
            if self.members:
                self.members += sent.members
            else:
                # A long backlog is merged again and again: take over its list of members without a copy.
                self.members = sent.members
        called = (sent.callback for sent in run if sent.callback is not None)
        super().__init__(run[0].broker_id, request, next(called, None), run[0].enqueued_ns)
        self.is_internal = True

    def represents(self) -> Sequence[Sent]:
        """Return the entries that leave the queue together with this one."""
        return self.members

    def settle(self) -> None:
        """Copy what happened to this entry to its members, when it has ended."""
        for member in self.members:
            member.sender_deaths += self.sender_deaths
            member.sequence = self.sequence
            member.version, member.bytes = self.version, self.bytes


class PendingFullState(ControlRequest):
    """A full state that is made when its broker is ready for it. Until then it has neither body nor frame.

    ``like``: the newest request that it replaces; it gives the version, the epoch and the source.
    """

    __slots__ = ()

    def __init__(self, like: ControlRequest) -> None:
        self._set_common(UPDATE_METADATA, like.version, like.controller_epoch, True, 0, like.full_state)
        # It has no frame, and it is not merged.
        self.parts = ()
        self.goes_alone = True
        self.channel = like.channel


class CollapsedEntry(MergedEntry):
    """A backlog without bodies: a full state is sent in its place when the broker is ready for it.

    ``deletions``: topic -> partitions (ascending int32) that the members delete;
    the state no longer has them.
    """

    __slots__ = ("deletions",)

    def __init__(self, request: PendingFullState, run: Sequence[Sent], deletions: dict[bytes, Int32]) -> None:
        super().__init__(request, run)
        self.deletions = deletions

    def settle(self) -> None:
        """Leave the members unchanged: nothing of this entry was sent."""

    @property
    def source(self) -> FullStateSource:
        source = self.request.full_state
        assert source is not None
        return source

    @property
    def fingerprint(self) -> frozenset[tuple[bytes, bytes]]:
        """A key that is equal for equal deletions."""
        return frozenset((topic, partitions.tobytes()) for topic, partitions in self.deletions.items())


class RequestPart(Sent):
    """One part of a request that was too large.

    The last part has the callback of the request, so that the queue waits for it. It is never called itself.
    """

    __slots__ = ("split_request",)

    def __init__(self, split_request: SplitRequest, request: ControlRequest) -> None:
        sent = split_request.sent
        super().__init__(sent.broker_id, request, None, sent.enqueued_ns)
        self.is_internal = True
        self.split_request = split_request

    def represents(self) -> Sequence[Sent]:
        """Return the entry that leaves the queue together with its first part."""
        return (self.split_request.sent,)


class SplitRequest:
    """Collects the results of the parts of one request. ``missing``: how many parts have not ended."""

    __slots__ = ("_attempts", "_bytes", "_first_byte_ns", "_report", "_results", "missing", "sent")

    def __init__(self, sent: Sent, parts: int) -> None:
        self.sent = sent
        self.missing = parts
        self._results: list[RequestResult] = []
        self._bytes = 0
        self._report: Report | None = None
        self._attempts = 0
        self._first_byte_ns = 0

    def take(self, part: RequestPart, result: RequestResult, report: Report | None) -> None:
        """Add the result of a part that has ended."""
        self.missing -= 1
        self._results.append(result)
        self.sent.sender_deaths += part.sender_deaths
        self.sent.sequence = part.sequence
        self._bytes += part.bytes
        self.sent.version, self.sent.bytes = part.version, self._bytes
        if report is not None:
            self._attempts += report.attempts
            self._first_byte_ns = self._first_byte_ns or report.first_byte_ns
            self._report = report

    @property
    def result(self) -> RequestResult:
        """The result of the request: that of its worst part."""
        return worst_of(self._results)

    @property
    def report(self) -> Report | None:
        """The report of the last part, with the first part's first byte and the attempts of all parts."""
        report = self._report
        if report is None:
            return None
        return report._replace(attempts=self._attempts, first_byte_ns=self._first_byte_ns)


def parts_of(sent: Sent) -> list[RequestPart]:
    """Return entries for the parts of a split request, in order."""
    requests = sent.request.parts
    assert requests is not None
    split_request = SplitRequest(sent, len(requests))
    parts = [RequestPart(split_request, request) for request in requests]
    parts[-1].callback = sent.callback
    return parts
