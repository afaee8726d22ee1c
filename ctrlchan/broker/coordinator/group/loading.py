"""Reads the groups and offsets of one partition of ``__consumer_offsets``.

Source: ``GroupMetadataManager.doLoadGroupsAndOffsets``. Kafka gives up the whole partition at a record that
it cannot read; here that record is skipped and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.common.topic import StoredBatch
from ctrlchan.broker.coordinator.group.group import Group, GroupState
from ctrlchan.broker.coordinator.group.group_offsets import StoredOffsets
from ctrlchan.broker.coordinator.group.members import Member
from ctrlchan.broker.coordinator.group.records import (
    NO_TIMESTAMP,
    CommittedOffset,
    GroupKey,
    GroupValue,
    OffsetKey,
    read_group_value,
    read_key,
    read_offset_value,
)
from ctrlchan.errors import DecodeError
from ctrlchan.log_context import ContextLogger

__all__ = ["load_groups"]

_Offsets = dict[OffsetKey, tuple[int, CommittedOffset]]


class _Replay:
    """The groups and offsets after the records that were read so far."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupValue] = {}
        self.offsets: _Offsets = {}
        # Offsets of transactions without a marker so far, by producer id.
        self.in_transactions: dict[int, _Offsets] = {}
        self.unknown_keys = 0

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        for key, stored in self.in_transactions.pop(producer_id, {}).items():
            current = self.offsets.get(key)
            if commits and (current is None or current[0] < stored[0]):
                self.offsets[key] = stored

    def replay(self, batch: StoredBatch, key_data: bytes | None, value: bytes | None) -> None:
        """Take in one record. Raises DecodeError when it cannot be read."""
        if key_data is None:
            raise DecodeError("a record without a key")
        key = read_key(key_data)
        if isinstance(key, OffsetKey):
            offsets = self.offsets
            if batch.transactional:
                offsets = self.in_transactions.setdefault(batch.producer_id, {})
            if value is None:
                offsets.pop(key, None)
            else:
                offsets[key] = batch.first_offset, read_offset_value(value)
        elif isinstance(key, GroupKey):
            if value is None:
                self.groups.pop(key.group_id, None)
            else:
                group = read_group_value(value)
                if group.members and group.protocol_name is None:
                    raise DecodeError("members without a protocol")
                self.groups[key.group_id] = group
        else:
            self.unknown_keys += 1


def load_groups(batches: Iterable[StoredBatch], now_ms: Callable[[], int], log: ContextLogger) -> list[Group]:
    """Return the groups that the records leave, in order of their names.

    A group without members is Empty, any other Stable. Groups that have offsets only are Empty, generation 0.
    """
    replay = _Replay()
    unreadable = 0
    example = ""
    for batch in batches:
        if batch.commits is not None:
            replay.end_transaction(batch.producer_id, commits=batch.commits)
            continue
        for key, value in batch.records:
            try:
                replay.replay(batch, key, value)
            except DecodeError as error:
                unreadable += 1
                example = f"the last one in the batch at {batch.first_offset}: {error}"
    if unreadable:
        log.error("%d records cannot be read and are skipped, %s", unreadable, example)
    if replay.unknown_keys:
        log.warning("%d records of a later Kafka are skipped", replay.unknown_keys)

    groups = {group_id: _group_of(group_id, value, now_ms) for group_id, value in replay.groups.items()}
    committed = _by_group(replay.offsets)
    in_transactions: dict[str, dict[int, StoredOffsets]] = {}
    for producer_id, offsets in replay.in_transactions.items():
        for group_id, of_group in _by_group(offsets).items():
            in_transactions.setdefault(group_id, {})[producer_id] = of_group
    for group_id in sorted({*committed, *in_transactions}):
        group = groups.get(group_id)
        if group is None:
            group = groups[group_id] = Group(group_id, GroupState.EMPTY, now_ms)
        with group.locked():
            group.offsets.load(committed.get(group_id, {}), in_transactions.get(group_id, {}))
    return [groups[group_id] for group_id in sorted(groups)]


def _group_of(group_id: str, value: GroupValue, now_ms: Callable[[], int]) -> Group:
    group = Group(group_id, GroupState.STABLE if value.members else GroupState.EMPTY, now_ms)
    with group.locked():
        group.generation_id = value.generation_id
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol_name
        group.leader_id = value.leader_id
        group.state_timestamp = None if value.state_timestamp == NO_TIMESTAMP else value.state_timestamp
        for each in value.members:
            member = Member(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                each.rebalance_timeout,
                each.session_timeout,
                ((value.protocol_name or "", each.subscription),),
                each.assignment,
            )
            group.add(member, value.protocol_type, None)
        group.update_subscribed_topics()
    return group


def _by_group(offsets: _Offsets) -> dict[str, StoredOffsets]:
    groups: dict[str, StoredOffsets] = {}
    for key, stored in offsets.items():
        groups.setdefault(key.group_id, {})[TopicPartition(key.topic, key.partition)] = stored
    return groups
