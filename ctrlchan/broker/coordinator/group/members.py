"""One member of a group."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from ctrlchan.broker.coordinator.common.timing_wheel import Timer
from ctrlchan.broker.coordinator.group.requests import JoinResult, MemberSummary, Protocols, SyncResult

__all__ = ["JoinCallback", "Member", "SyncCallback"]

JoinCallback = Callable[[JoinResult], None]
SyncCallback = Callable[[SyncResult], None]


@dataclass(slots=True, eq=False)
class Member:
    """A member of a group; the lock of the group guards it. Timeouts are milliseconds.

    Source: ``kafka.coordinator.group.MemberMetadata``.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: int
    session_timeout: int
    protocols: Protocols
    assignment: bytes = b""
    #: The JoinGroup and the SyncGroup that wait for their answer.
    join_callback: JoinCallback | None = None
    sync_callback: SyncCallback | None = None
    #: True until the member's first rebalance is complete.
    is_new: bool = False
    #: The end of the session: one timer, in place of Kafka's DelayedHeartbeat in a purgatory.
    session: Timer | None = None

    @property
    def waits(self) -> bool:
        """Whether a JoinGroup or SyncGroup waits; a session does not end then, except a new member's."""
        return (self.join_callback is not None or self.sync_callback is not None) and not self.is_new

    @property
    def protocol_names(self) -> frozenset[str]:
        """The names of the protocols."""
        return frozenset(name for name, _ in self.protocols)

    def metadata(self, protocol: str) -> bytes:
        """Return the member's metadata of a protocol that it supports."""
        return next(metadata for name, metadata in self.protocols if name == protocol)

    def vote(self, candidates: Collection[str]) -> str:
        """Return the first of the member's protocols that is a candidate."""
        return next(name for name, _ in self.protocols if name in candidates)

    def summary(self, protocol: str | None) -> MemberSummary:
        """Return the member for DescribeGroups; with `protocol` metadata and assignment too."""
        parts = (b"", b"") if protocol is None else (self.metadata(protocol), self.assignment)
        return MemberSummary(self.member_id, self.instance_id, self.client_id, self.client_host, *parts)

    def end_session_timer(self) -> None:
        """Cancel the timer of the session."""
        if self.session is not None:
            self.session.cancel()
            self.session = None
