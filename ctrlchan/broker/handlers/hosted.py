"""Finds the partition that a request names, for APIs that read its log or change it."""

from __future__ import annotations

from ctrlchan.broker.replica._partitions import Partition
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode, KafkaError

__all__ = ["find_led", "find_partition"]


def find_partition(core: StoringCore, topic: str, index: int, leader_epoch: int = -1) -> Partition:
    """Return the partition. Raises KafkaError: unknown, not hosted, offline, or of another leader epoch.

    ``leader_epoch``: the one that the client knows, -1 for none.
    Source: ``ReplicaManager.getPartition``, ``Partition.getLocalLog``.
    """
    partition = core.partitions.get(topic, index)
    if partition is None:
        known = core.metadata.snapshot.has_partition(topic, index)
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if partition.is_offline:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    if leader_epoch not in (-1, partition.leader_epoch):
        is_old = leader_epoch < partition.leader_epoch
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH)
    return partition


def find_led(core: StoringCore, topic: str, index: int, leader_epoch: int = -1) -> Partition:
    """Return the partition as ``find_partition`` does. Raises KafkaError also where another broker leads."""
    partition = find_partition(core, topic, index, leader_epoch)
    if not partition.is_leader:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return partition
