"""Takes entries out of the node ``/admin/reassign_partitions``.

Source: ``kafka.controller.KafkaController.maybeRemoveFromZkReassignment`` (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ctrlchan.zookeeper.cluster import ClusterNodes

__all__ = ["Partition", "remove_entries"]

#: (topic, partition)
Partition: TypeAlias = tuple[str, int]


def remove_entries(nodes: ClusterNodes, is_removed: Callable[[Partition, tuple[int, ...]], bool]) -> None:
    """Remove the entries for which ``is_removed`` (partition, target) is true; an empty node is deleted.

    A malformed node is left as it is. Raises ControllerMovedError, ZooKeeperError.
    """
    node = nodes.read_reassign_partitions()
    if node is None or node.reasons:
        return
    kept = {key: target for key, target in node.partitions.items() if not is_removed(key, tuple(target))}
    if not kept:
        nodes.delete_reassign_partitions()
    elif len(kept) < len(node.partitions):
        nodes.write_reassign_partitions(kept)
