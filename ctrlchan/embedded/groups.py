"""Reads the consumer groups of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ctrlchan.embedded.requests import ask, check
from ctrlchan.peers.connection import Address

__all__ = ["ConsumerGroup", "read_groups"]

_OFFSET_FETCH: Final = 9, 5
_DESCRIBE_GROUPS: Final = 15, 4
_LIST_GROUPS: Final = 16, 2


class ConsumerGroup(NamedTuple):
    """One group. ``state``: Kafka's, such as "Stable". ``members``: the client id of each.

    ``offsets``: the committed one by topic and partition.
    """

    group_id: str
    state: str
    members: tuple[str, ...]
    offsets: Mapping[tuple[str, int], int]


def read_groups(brokers: Iterable[Address]) -> list[ConsumerGroup]:
    """Return the groups whose coordinators are these brokers, by id. Raises KafkaError."""
    groups = [
        _read_group(broker, str(listed.group_id))
        for broker in brokers
        for listed in ask(broker, "list_groups", _LIST_GROUPS).groups
    ]
    return sorted(groups, key=lambda group: group.group_id)


def _read_group(coordinator: Address, group_id: str) -> ConsumerGroup:
    described = ask(
        coordinator,
        "describe_groups",
        _DESCRIBE_GROUPS,
        groups=(group_id,),
        include_authorized_operations=False,
    ).groups[0]
    check(described.error_code.value, f"group {group_id}")
    fetched = ask(coordinator, "offset_fetch", _OFFSET_FETCH, group_id=group_id, topics=None)
    check(fetched.error_code.value, f"group {group_id}")
    return ConsumerGroup(
        group_id,
        described.group_state,
        tuple(member.client_id for member in described.members),
        {
            (str(topic.name), int(partition.partition_index)): int(partition.committed_offset)
            for topic in fetched.topics
            for partition in topic.partitions
        },
    )
