"""Asks the leaders of partitions for offsets, and finds the leaders in metadata."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.page.brokers import LIST_OFFSETS, Asked, Brokers
from ctrlchan.peers.connection import Address

__all__ = ["EARLIEST", "LATEST", "Partition", "addresses_of", "leaders_of", "offsets_at"]

#: Timestamps with a meaning (``ListOffsetsRequest``).
EARLIEST: Final = -2
LATEST: Final = -1
_NO_REPLICA: Final = -1

#: Topic and number.
Partition: TypeAlias = tuple[str, int]


def addresses_of(metadata: Any) -> dict[int, Address]:
    """Return the address of each broker by its id."""
    return {int(one.node_id): (one.host, int(one.port)) for one in metadata.brokers}


def leaders_of(metadata: Any) -> dict[Partition, Address | None]:
    """Return the address of each partition's leader, None where there is none."""
    addresses = addresses_of(metadata)
    return {
        (str(topic.name), int(one.partition_index)): addresses.get(int(one.leader_id))
        for topic in metadata.topics
        for one in topic.partitions
    }


def offsets_at(
    brokers: Brokers, leaders: Mapping[Partition, Address | None], timestamps: Iterable[int]
) -> list[dict[Partition, int | KafkaError]]:
    """Return for each timestamp the offset of the first record of that time or later in each partition.

    A timestamp: milliseconds since 1970, ``EARLIEST``, or ``LATEST`` for the end. -1: no record is as late.
    """
    wanted = list(timestamps)
    by_leader: defaultdict[Address, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    without = {one for one, leader in leaders.items() if leader is None}
    for (topic, number), leader in leaders.items():
        if leader is not None:
            by_leader[leader][topic].append(number)
    requests = [
        (place, leader, topics) for place in range(len(wanted)) for leader, topics in by_leader.items()
    ]
    answers = brokers.ask_all(
        [Asked(leader, LIST_OFFSETS, _fields(topics, wanted[place])) for place, leader, topics in requests]
    )
    no_leader = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
    found: list[dict[Partition, int | KafkaError]] = [dict.fromkeys(without, no_leader) for _ in wanted]
    for (place, _, topics), answer in zip(requests, answers, strict=True):
        if isinstance(answer, KafkaError):
            for topic, numbers in topics.items():
                found[place] |= {(topic, number): answer for number in numbers}
            continue
        for answered in answer.topics:
            for one in answered.partitions:
                code = one.error_code.value
                found[place][str(answered.name), int(one.partition_index)] = (
                    KafkaError(code) if code else int(one.offset)
                )
    return found


def _fields(topics: Mapping[str, list[int]], timestamp: int) -> dict[str, Any]:
    return {
        "replica_id": _NO_REPLICA,
        "isolation_level": 0,
        "topics": tuple(
            LIST_OFFSETS.part(
                "ListOffsetsTopic",
                name=topic,
                partitions=tuple(
                    LIST_OFFSETS.part("ListOffsetsPartition", partition_index=number, timestamp=timestamp)
                    for number in numbers
                ),
            )
            for topic, numbers in topics.items()
        ),
    }
