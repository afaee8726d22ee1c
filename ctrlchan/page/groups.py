"""Consumer groups as the page shows them: the list with lag, and one group with its members and offsets."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.field_reader import FieldReader
from ctrlchan.page.brokers import DESCRIBE_GROUPS, LIST_GROUPS, OFFSET_FETCH, Asked, Brokers, check
from ctrlchan.page.offsets import LATEST, Partition, addresses_of, leaders_of, offsets_at
from ctrlchan.page.problems import words_of
from ctrlchan.peers.connection import Address

__all__ = ["describe_group", "list_groups"]

#: At most so many groups are listed, and so many members and partitions of one; totals count all.
LISTED_GROUPS: Final = 200
LISTED_MEMBERS: Final = 200
LISTED_OFFSETS: Final = 1_000
_CONSUMER: Final = "consumer"


def list_groups(brokers: Brokers, query: str) -> dict[str, Any]:
    """Return the groups whose ids contain ``query``, with state, members and lag. Raises KafkaError."""
    notes: list[str] = []
    coordinators = _coordinators(brokers, notes)
    chosen = sorted(group for group in coordinators if query.lower() in group.lower())
    listed = chosen[:LISTED_GROUPS]
    described = brokers.ask_all([_described(coordinators[group], group) for group in listed])
    fetched = brokers.ask_all([_fetched(coordinators[group], group) for group in listed])
    offsets = [{} if isinstance(one, KafkaError) else _offsets(one) for one in fetched]
    ends = _ends(brokers, {key for one in offsets for key in one})
    groups = []
    for group, answer, committed in zip(listed, described, offsets, strict=True):
        try:
            found = _group(answer, group)
        except KafkaError as error:
            notes.append(f"Group {group}: {words_of(error)}.")
            continue
        lags = [_lag(ends.get(key), offset) for key, (offset, _) in committed.items()]
        known = [lag for lag in lags if lag is not None]
        groups.append(
            {
                "group": group,
                "state": found.group_state,
                "members": len(found.members),
                "topics": sorted({topic for topic, _ in committed}),
                "lag": sum(known) if known else None,
            }
        )
    return {"total": len(chosen), "groups": groups, "notes": notes}


def describe_group(brokers: Brokers, group: str) -> dict[str, Any]:
    """Return members with their partitions, and committed offsets with lag. Raises KafkaError."""
    notes: list[str] = []
    coordinator = _coordinators(brokers, notes).get(group)
    if coordinator is None:
        what = f"no broker has a group of this id. {' '.join(notes)}".strip()
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, what)
    described, fetched = brokers.ask_all([_described(coordinator, group), _fetched(coordinator, group)])
    found = _group(described, group)
    if isinstance(fetched, KafkaError):
        raise fetched
    check(fetched.error_code.value, group)
    committed = _offsets(fetched)
    members = [_member(one, found.protocol_type) for one in found.members]
    owners = {
        (topic, number): member["member_id"]
        for member in members
        for topic, numbers in member["assignment"].items()
        for number in numbers
    }
    keys = sorted(committed.keys() | owners.keys())
    ends = _ends(brokers, keys[:LISTED_OFFSETS])
    return {
        "group": group,
        "state": found.group_state,
        "protocol_type": found.protocol_type,
        "assignor": found.protocol_data,
        "total_members": len(members),
        "members": members[:LISTED_MEMBERS],
        "total_offsets": len(keys),
        "offsets": [
            {
                "topic": key[0],
                "partition": key[1],
                "committed": offset,
                "end": ends.get(key),
                "lag": _lag(ends.get(key), offset),
                "member": owners.get(key),
                "metadata": metadata,
            }
            for key in keys[:LISTED_OFFSETS]
            for offset, metadata in [committed.get(key, (None, ""))]
        ],
        "notes": notes,
    }


def _coordinators(brokers: Brokers, notes: list[str]) -> dict[str, Address]:
    """Return the coordinator of each group: the broker that lists it.

    FindCoordinator is not asked, because it would create Kafka's internal topic.
    """
    addresses = addresses_of(brokers.metadata(()))
    answers = brokers.ask_all([Asked(address, LIST_GROUPS, {}) for address in addresses.values()])
    found: dict[str, Address] = {}
    for (broker, address), answer in zip(addresses.items(), answers, strict=True):
        try:
            if isinstance(answer, KafkaError):
                raise answer
            check(answer.error_code.value, f"broker {broker}")
        except KafkaError as error:
            notes.append(f"The groups of broker {broker} are not known: {words_of(error)}.")
            continue
        found |= {str(one.group_id): address for one in answer.groups}
    return found


def _described(coordinator: Address, group: str) -> Asked:
    fields = {"groups": (group,), "include_authorized_operations": False}
    return Asked(coordinator, DESCRIBE_GROUPS, fields)


def _fetched(coordinator: Address, group: str) -> Asked:
    return Asked(coordinator, OFFSET_FETCH, {"group_id": group, "topics": None})


def _group(answer: Any, group: str) -> Any:
    if isinstance(answer, KafkaError):
        raise answer
    found = answer.groups[0]
    check(found.error_code.value, group)
    return found


def _offsets(fetched: Any) -> dict[Partition, tuple[int, str]]:
    """Return the committed offset of each partition, and the text that was committed with it."""
    return {
        (str(topic.name), int(one.partition_index)): (int(one.committed_offset), one.metadata or "")
        for topic in fetched.topics
        for one in topic.partitions
        if one.committed_offset >= 0
    }


def _ends(brokers: Brokers, keys: Any) -> dict[Partition, int]:
    """Return the ends of those of these partitions that can be asked for."""
    topics = sorted({topic for topic, _ in keys})
    if not topics:
        return {}
    leaders = leaders_of(brokers.metadata(topics))
    asked = {key: leaders.get(key) for key in keys}
    [ends] = offsets_at(brokers, asked, (LATEST,))
    return {key: end for key, end in ends.items() if isinstance(end, int)}


def _lag(end: int | None, committed: int | None) -> int | None:
    return None if end is None or committed is None else max(0, end - committed)


def _member(member: Any, protocol_type: str) -> dict[str, Any]:
    assignment: Mapping[str, list[int]] = {}
    if protocol_type == _CONSUMER and member.member_assignment:
        assignment = _assignment(bytes(member.member_assignment))
    return {
        "member_id": member.member_id,
        "instance": member.group_instance_id,
        "client_id": member.client_id,
        "host": member.client_host.removeprefix("/"),
        "assignment": assignment,
    }


def _assignment(data: bytes) -> dict[str, list[int]]:
    """Return the partitions by topic; none of bytes that are no ``ConsumerProtocolAssignment``."""
    reader = FieldReader(data)
    found: dict[str, list[int]] = {}
    try:
        reader.int16()
        for _ in range(reader.int32()):
            topic = reader.take(reader.int16()).decode()
            found[topic] = [reader.int32() for _ in range(reader.int32())]
    except (struct.error, UnicodeDecodeError):
        return {}
    return found
