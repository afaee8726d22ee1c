"""The records of ``__consumer_offsets``: Kafka's formats of keys and values.

The key's version says what the record is: 0 or 1 an offset commit, 2 a group. A value of None is a tombstone.
Read: all versions of Kafka 3.9. Written: what Kafka 3.9 writes, which is the highest version that is
not flexible, or version 1 for an offset with a time of expiry of its own.

    OffsetCommitKey     group string, topic string, partition int32
    OffsetCommitValue   offset int64, leader epoch int32 (3+), metadata string, commit timestamp int64,
                        expire timestamp int64 (1)
    GroupMetadataKey    group string
    GroupMetadataValue  protocol type string, generation int32, protocol string?, leader string?,
                        current state timestamp int64 (2+), members: member id string,
                        instance id string? (3+), client id string, client host string,
                        rebalance timeout int32 (1+), session timeout int32, subscription bytes,
                        assignment bytes

Source: the JSON schemas of these names, and ``GroupMetadataManager`` for the choice of versions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ctrlchan.broker.coordinator.common.wire import Reader, Writer
from ctrlchan.errors import DecodeError

__all__ = [
    "NO_LEADER_EPOCH",
    "NO_TIMESTAMP",
    "CommittedOffset",
    "GroupKey",
    "GroupValue",
    "MemberValue",
    "OffsetKey",
    "UnknownKey",
    "group_key",
    "group_value",
    "offset_key",
    "offset_value",
    "read_group_value",
    "read_key",
    "read_offset_value",
]

NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = -1

_OFFSET_KEY: Final = 1
_GROUP_KEY: Final = 2
_HIGHEST_VALUE: Final = 4
_FIRST_FLEXIBLE_VALUE: Final = 4
_WRITTEN_VALUE: Final = 3
_OFFSET_VALUE_WITH_EXPIRY: Final = 1


class OffsetKey(NamedTuple):
    """The key of a committed offset."""

    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """The key of a group."""

    group_id: str


class UnknownKey(NamedTuple):
    """A key of a later Kafka."""

    version: int


class CommittedOffset(NamedTuple):
    """A committed offset. Timestamps are milliseconds since 1970; ``expire_timestamp`` is -1 without one."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = NO_TIMESTAMP


class MemberValue(NamedTuple):
    """One member in the record of its group. Timeouts are milliseconds."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: int
    session_timeout: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    """A generation of a group. ``state_timestamp`` is -1 when it is not known."""

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader_id: str | None
    state_timestamp: int
    members: tuple[MemberValue, ...]


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Return the key of a committed offset. Raises EncodeError for names that are too long."""
    writer = Writer()
    writer.integer("h", _OFFSET_KEY)
    writer.string(group_id)
    writer.string(topic)
    writer.integer("i", partition)
    return bytes(writer)


def group_key(group_id: str) -> bytes:
    """Return the key of a group. Raises EncodeError for a name that is too long."""
    writer = Writer()
    writer.integer("h", _GROUP_KEY)
    writer.string(group_id)
    return bytes(writer)


def offset_value(offset: CommittedOffset) -> bytes:
    """Return the value of a committed offset. Raises EncodeError for metadata that is too long."""
    expires = offset.expire_timestamp != NO_TIMESTAMP
    writer = Writer()
    writer.integer("h", _OFFSET_VALUE_WITH_EXPIRY if expires else _WRITTEN_VALUE)
    writer.integer("q", offset.offset)
    if not expires:
        writer.integer("i", offset.leader_epoch)
    writer.string(offset.metadata)
    writer.integer("q", offset.commit_timestamp)
    if expires:
        writer.integer("q", offset.expire_timestamp)
    return bytes(writer)


def group_value(group: GroupValue) -> bytes:
    """Return the value of a group. Raises EncodeError for texts that are too long."""
    writer = Writer()
    writer.integer("h", _WRITTEN_VALUE)
    writer.string(group.protocol_type)
    writer.integer("i", group.generation_id)
    writer.string(group.protocol_name)
    writer.string(group.leader_id)
    writer.integer("q", group.state_timestamp)
    writer.integer("i", len(group.members))
    for member in group.members:
        writer.string(member.member_id)
        writer.string(member.instance_id)
        writer.string(member.client_id)
        writer.string(member.client_host)
        writer.integer("i", member.rebalance_timeout)
        writer.integer("i", member.session_timeout)
        writer.sized_bytes(member.subscription)
        writer.sized_bytes(member.assignment)
    return bytes(writer)


def read_key(data: bytes) -> OffsetKey | GroupKey | UnknownKey:
    """Return the key of a record. Raises DecodeError when a known version has other bytes."""
    reader = Reader(data)
    version = reader.integer("h")
    if 0 <= version <= _OFFSET_KEY:
        return OffsetKey(reader.string(), reader.string(), reader.integer("i"))
    if version == _GROUP_KEY:
        return GroupKey(reader.string())
    return UnknownKey(version)


def read_offset_value(data: bytes) -> CommittedOffset:
    """Return the value of a committed offset. Raises DecodeError for other bytes and unknown versions."""
    reader, version = _value_reader(data)
    offset = reader.integer("q")
    leader_epoch = reader.integer("i") if version >= 3 else NO_LEADER_EPOCH
    metadata = reader.string()
    commit_timestamp = reader.integer("q")
    expire_timestamp = reader.integer("q") if version == _OFFSET_VALUE_WITH_EXPIRY else NO_TIMESTAMP
    reader.tagged_fields()
    return CommittedOffset(offset, leader_epoch, metadata, commit_timestamp, expire_timestamp)


def read_group_value(data: bytes) -> GroupValue:
    """Return the value of a group. Raises DecodeError for other bytes and unknown versions.

    Version 0 has no rebalance timeout; it is the session timeout then.
    """
    reader, version = _value_reader(data)
    protocol_type = reader.string()
    generation_id = reader.integer("i")
    protocol_name = reader.nullable_string()
    leader_id = reader.nullable_string()
    state_timestamp = reader.integer("q") if version >= 2 else NO_TIMESTAMP
    members = tuple(_read_member(reader, version) for _ in range(reader.count()))
    reader.tagged_fields()
    return GroupValue(protocol_type, generation_id, protocol_name, leader_id, state_timestamp, members)


def _read_member(reader: Reader, version: int) -> MemberValue:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id = reader.string()
    client_host = reader.string()
    rebalance_timeout = reader.integer("i") if version >= 1 else None
    session_timeout = reader.integer("i")
    subscription = reader.sized_bytes()
    assignment = reader.sized_bytes()
    reader.tagged_fields()
    return MemberValue(
        member_id,
        instance_id,
        client_id,
        client_host,
        session_timeout if rebalance_timeout is None else rebalance_timeout,
        session_timeout,
        subscription,
        assignment,
    )


def _value_reader(data: bytes) -> tuple[Reader, int]:
    reader = Reader(data)
    version = reader.integer("h")
    if not 0 <= version <= _HIGHEST_VALUE:
        raise DecodeError(f"version {version} of a value is not known")
    reader.flexible = version >= _FIRST_FLEXIBLE_VALUE
    return reader, version
