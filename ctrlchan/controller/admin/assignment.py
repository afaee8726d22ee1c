"""Which brokers get the replicas of new partitions.

The first replicas go round robin from a random broker; the others follow at a distance that grows by one
with each round, so that the replicas of one broker's partitions are spread over all others. With racks, the
brokers stand in an order that alternates between racks, and no rack gets a second replica before each has
one.

Source: ``org.apache.kafka.admin.AdminUtils`` (Kafka 3.9), KIP-36.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

from ctrlchan.errors import ErrorCode, KafkaError

__all__ = ["Assignment", "BrokerRack", "assign_replicas", "check_racks", "rack_alternated"]

#: The replicas of each partition.
Assignment = dict[int, list[int]]

_ANYWHERE: Final = -1
#: Partitions that one topic may get at once. Kafka would try to create 2^31 of them, which takes all memory;
#: more than this do not fit into the topic's node of ZooKeeper anyway.
_MOST_PARTITIONS: Final = 1_000_000


class BrokerRack(NamedTuple):
    """A broker that may get replicas."""

    id: int
    rack: str | None


def check_racks(brokers: Sequence[BrokerRack]) -> None:
    """Raise KafkaError when some brokers have a rack and others have none."""
    without = [broker.id for broker in brokers if broker.rack is None]
    if without and len(without) < len(brokers):
        # Kafka throws AdminOperationException, which is no error of the protocol.
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Not all brokers have rack information: {', '.join(map(str, sorted(without)))} have none.",
        )


def assign_replicas(
    brokers: Sequence[BrokerRack],
    partitions: int,
    replication_factor: int,
    *,
    start_index: int = _ANYWHERE,
    first_partition: int = 0,
    choose: Callable[[int], int] = random.randrange,
) -> Assignment:
    """Return the replicas of ``partitions`` new partitions, numbered from ``first_partition``.

    ``brokers``: in ascending order of ids. ``start_index``: place of the broker that partition 0 began with;
    -1: any. ``choose``: returns a number below its argument. Raises KafkaError with Kafka's code.
    """
    if partitions <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if partitions > _MOST_PARTITIONS:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Number of partitions must not be larger than {_MOST_PARTITIONS}, but is {partitions}.",
        )
    if replication_factor <= 0:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers: {len(brokers)}.",
        )
    check_racks(brokers)
    start = start_index if start_index >= 0 else choose(len(brokers))
    shift = start_index if start_index >= 0 else choose(len(brokers))
    if brokers[0].rack is None:
        ordered = [broker.id for broker in brokers]
        racks: dict[int, str] = {}
    else:
        ordered = rack_alternated(brokers)
        racks = {broker.id: broker.rack or "" for broker in brokers}
    assignment: Assignment = {}
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(ordered) == 0:
            shift += 1
        first = (partition + start) % len(ordered)
        if racks:
            assignment[partition] = _over_racks(ordered, racks, first, shift, replication_factor)
        else:
            assignment[partition] = [ordered[first]] + [
                ordered[_index(first, shift, replica, len(ordered))]
                for replica in range(replication_factor - 1)
            ]
    return assignment


def rack_alternated(brokers: Sequence[BrokerRack]) -> list[int]:
    """Return the broker ids, one of each rack in turn; racks in the order of their names."""
    by_rack: dict[str, list[int]] = defaultdict(list)
    for broker in sorted(brokers):
        by_rack[broker.rack or ""].append(broker.id)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for one_round in rounds for broker in one_round if broker is not None]


def _over_racks(
    ordered: list[int], racks: dict[int, str], first: int, shift: int, replication_factor: int
) -> list[int]:
    """Return the replicas of one partition: a broker of a new rack as long as there is one."""
    rack_count = len(set(racks.values()))
    replicas = [ordered[first]]
    used_racks = {racks[ordered[first]]}
    place = 0
    while len(replicas) < replication_factor:
        broker = ordered[_index(first, shift * rack_count, place, len(ordered))]
        place += 1
        if broker not in replicas and (racks[broker] not in used_racks or len(used_racks) == rack_count):
            replicas.append(broker)
            used_racks.add(racks[broker])
    return replicas


def _index(first: int, shift: int, replica: int, brokers: int) -> int:
    """Return the place of a replica after the first; never that of the first."""
    return (first + 1 + (shift + replica) % (brokers - 1)) % brokers
