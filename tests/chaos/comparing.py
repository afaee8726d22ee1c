"""What clients know and what brokers have in the end, given to the checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.chaos import checks
from tests.chaos.grouping import Groups
from tests.chaos.nodes import BrokerNode, broker_id
from tests.chaos.producing import Load
from tests.chaos.records import Log, Partition
from tests.chaos.replicas import read_replica, read_replicas
from tests.chaos.report import Result
from tests.chaos.topics import PASSING
from tests.chaos.view import ClusterView

__all__ = ["assigned_replicas", "left_of_deleted_topics", "wrong_records", "wrong_replicas"]


def wrong_records(loads: Sequence[Load], groups: Groups, logs: Mapping[Partition, Log]) -> list[str]:
    """Return what is wrong with the records that were read in the end, and with what groups did.

    Producers without idempotence may have records there more than once, and in another order.
    """
    found: list[str] = []
    for load in loads:
        for number, numbers in enumerate(load.partitions):
            partition = load.style.topic, number
            log = logs[partition]
            found += checks.lost(partition, load.number, numbers, log)
            found += checks.moved(partition, load.number, numbers, log)
            if load.style.is_idempotent:
                found += checks.doubled(partition, load.number, log)
                found += checks.disordered(partition, load.number, numbers, log)
    for group in groups.groups:
        for partition, consumed in group.consumed.items():
            found += checks.skipped(partition, consumed, logs[partition], f"group {group.style.name}")
    return found + checks.offsets_that_went_back(groups.commits, groups.reads)


def assigned_replicas(view: ClusterView) -> dict[Partition, list[int]]:
    """Return the replicas of all partitions. Raises NotSeenError."""
    return {
        (name, number): partition.replicas
        for name in view.topics()
        for number, partition in view.topic(name).partitions.items()
    }


def wrong_replicas(
    brokers: Sequence[BrokerNode], assigned: Mapping[Partition, Sequence[int]], result: Result
) -> list[str]:
    """Return the replicas of the assignment that differ; count what was compared in the result.

    There may be more: a broker that was away when its replica was moved keeps the folder, as Kafka's.
    """
    found: list[str] = []
    folders = read_replicas({broker.name: broker.log_dirs for broker in brokers})
    for partition, ids in sorted(assigned.items()):
        there = folders.get(partition, {})
        wanted = [broker.name for broker in brokers if broker_id(broker.name) in ids]
        found += [f"{partition}: {name} has no log" for name in wanted if name not in there]
        batches = {name: read_replica(there[name]) if name in there else [] for name in wanted}
        found += checks.replicas_that_differ(partition, batches)
        result.compared += len(batches)
    result.left = sum(map(len, folders.values())) - result.compared
    return found


def left_of_deleted_topics(brokers: Sequence[BrokerNode]) -> list[str]:
    """Return the folders of topics that were deleted."""
    return [
        folder.name
        for broker in brokers
        for log_dir in broker.log_dirs
        for folder in log_dir.glob(f"{PASSING}*")
    ]
