"""Decoded requests of groups, and the results that become responses.

Fields that a version of a request does not have keep their default. Times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.errors import ErrorCode

__all__ = [
    "NO_GENERATION",
    "NO_OFFSET",
    "NO_RETENTION",
    "UNKNOWN_MEMBER",
    "CommitRequest",
    "FetchedOffset",
    "GroupFigures",
    "GroupOverview",
    "GroupSummary",
    "HeartbeatRequest",
    "JoinRequest",
    "JoinResult",
    "JoinedMember",
    "LeaveResult",
    "LeavingMember",
    "LeftMember",
    "MemberSummary",
    "OffsetToCommit",
    "Protocols",
    "SyncRequest",
    "SyncResult",
    "TransactionalCommitRequest",
]

#: The member id of a consumer that has none yet.
UNKNOWN_MEMBER: Final = ""
NO_GENERATION: Final = -1
NO_OFFSET: Final = -1
#: The retention of an OffsetCommit that has none of its own.
NO_RETENTION: Final = -1

#: The protocols of a member (name, metadata), the preferred one first.
Protocols = tuple[tuple[str, bytes], ...]


class JoinRequest(NamedTuple):
    """JoinGroup. `rebalance_timeout` of version 0 is the session timeout.

    `requires_member_id`: version 4 and later, without an instance id (KIP-394). `can_skip_assignment`:
    version 9 and later (KIP-814).
    """

    group_id: str
    member_id: str
    client_id: str
    client_host: str
    session_timeout: int
    rebalance_timeout: int
    protocol_type: str
    protocols: Protocols
    instance_id: str | None = None
    requires_member_id: bool = False
    can_skip_assignment: bool = False
    reason: str | None = None


class JoinedMember(NamedTuple):
    """A member, as the leader learns of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The result of a JoinGroup. ``members`` is empty for followers."""

    error: ErrorCode
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncRequest(NamedTuple):
    """SyncGroup. `assignments`: of the leader, by member id."""

    group_id: str
    generation_id: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = MappingProxyType({})


class SyncResult(NamedTuple):
    """The result of a SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class HeartbeatRequest(NamedTuple):
    """Heartbeat."""

    group_id: str
    generation_id: int
    member_id: str
    instance_id: str | None = None


class LeavingMember(NamedTuple):
    """A member of a LeaveGroup. An unknown member id with an instance id removes that static member."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class LeftMember(NamedTuple):
    """The result for one leaving member."""

    member_id: str
    instance_id: str | None
    error: ErrorCode


class LeaveResult(NamedTuple):
    """The result of a LeaveGroup."""

    error: ErrorCode
    members: tuple[LeftMember, ...] = ()


class OffsetToCommit(NamedTuple):
    """One partition of an OffsetCommit. `commit_timestamp`: version 1 only."""

    partition: TopicPartition
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""
    commit_timestamp: int = -1


class CommitRequest(NamedTuple):
    """OffsetCommit. `retention`: versions 2 to 4."""

    group_id: str
    offsets: Sequence[OffsetToCommit]
    generation_id: int = NO_GENERATION
    member_id: str = UNKNOWN_MEMBER
    instance_id: str | None = None
    retention: int = NO_RETENTION


class TransactionalCommitRequest(NamedTuple):
    """TxnOffsetCommit. Generation, member and instance: version 3 and later."""

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    offsets: Sequence[OffsetToCommit]
    generation_id: int = NO_GENERATION
    member_id: str = UNKNOWN_MEMBER
    instance_id: str | None = None


class FetchedOffset(NamedTuple):
    """The committed offset of a partition; ``NO_OFFSET`` if the group has not committed one."""

    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


class MemberSummary(NamedTuple):
    """A member in a DescribeGroups response. Metadata and assignment are empty unless the group is Stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes = b""
    assignment: bytes = b""


class GroupSummary(NamedTuple):
    """A group in a DescribeGroups response."""

    error: ErrorCode
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[MemberSummary, ...] = ()


class GroupOverview(NamedTuple):
    """A group in a ListGroups response."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


class GroupFigures(NamedTuple):
    """Figures of a coordinator. ``sessions``: members, and member ids whose client has not joined yet.

    ``rebalances``: operations that wait for members to join or to send SyncGroup.
    """

    groups: Mapping[str, int]  #: State -> number of groups.
    offsets: int
    sessions: int
    rebalances: int
