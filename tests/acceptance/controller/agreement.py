"""Whether ZooKeeper and every live broker agree, and every partition is in sync."""

from __future__ import annotations

from collections.abc import Iterable

from tests.acceptance.clients import TopicView, metadata
from tests.acceptance.controller.nodes import PartitionNode, partition_nodes, topic_id
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until

__all__ = ["differences", "wait_until_agreed", "wait_until_in_sync"]

TIMEOUT = 90.0  # s, for followers that have to copy what they have missed


def wait_until_in_sync(rig: KafkaRig, topics: Iterable[str] | None = None, timeout: float = TIMEOUT) -> None:
    """Wait until every replica is in the ISR, nothing is being reassigned, and all brokers say so.

    ``topics``: None for all. Fails with the first differences at the deadline.
    """
    _wait(rig, topics, timeout, in_sync=True)


def wait_until_agreed(rig: KafkaRig, topics: Iterable[str] | None = None, timeout: float = TIMEOUT) -> None:
    """Wait until every broker has the leaders, epochs, ISRs and replicas that ZooKeeper has."""
    _wait(rig, topics, timeout, in_sync=False)


def differences(rig: KafkaRig, topics: set[str] | None, *, in_sync: bool) -> list[str]:
    """Return what is not as it has to be, a line each."""
    nodes = partition_nodes(rig.zookeeper, topics)
    missing = set() if topics is None else topics - {topic for topic, _ in nodes}
    found = [f"{topic}: not in ZooKeeper" for topic in sorted(missing)]
    if in_sync:
        found += [line for key, node in nodes.items() for line in _out_of_sync(key, node)]
    names = sorted({topic for topic, _ in nodes})
    ids = {name: topic_id(rig.zookeeper, name) for name in names}
    if names:
        for broker_id in rig.live_broker_ids:
            if not rig.is_registered(broker_id):
                # Its session has expired, for example while ZooKeeper restarted: it registers again.
                found.append(f"broker {broker_id}: not registered")
                continue
            views = metadata(rig, broker_id, names)
            found += [f"broker {broker_id}: {line}" for line in _differing(nodes, views, ids)]
    return found


def _wait(rig: KafkaRig, topics: Iterable[str] | None, timeout: float, *, in_sync: bool) -> None:
    wanted = None if topics is None else set(topics)
    found: list[str] = []

    def agreed() -> bool:
        found[:] = differences(rig, wanted, in_sync=in_sync)
        return not found

    try:
        wait_until(agreed, timeout=timeout, what="ZooKeeper and all brokers agree")
    except TimeoutError as error:
        raise AssertionError(f"{error}:\n" + "\n".join(found[:20])) from None


def _out_of_sync(key: tuple[str, int], node: PartitionNode) -> list[str]:
    found = []
    if set(node.isr) != set(node.replicas):
        found.append(f"{key}: ISR {node.isr} of replicas {node.replicas}")
    if node.leader not in node.isr:
        found.append(f"{key}: leader {node.leader} is not in the ISR {node.isr}")
    if node.adding or node.removing:
        found.append(f"{key}: adding {node.adding}, removing {node.removing}")
    return found


def _differing(
    nodes: dict[tuple[str, int], PartitionNode], views: dict[str, TopicView], ids: dict[str, bytes]
) -> list[str]:
    found = []
    for name, view in views.items():
        partitions = {partition for topic, partition in nodes if topic == name}
        if view.error or set(view.partitions) != partitions:
            found.append(
                f"{name}: error {view.error}, partitions {sorted(view.partitions)} of {sorted(partitions)}"
            )
        elif view.topic_id != ids[name]:
            found.append(f"{name}: topic id {view.topic_id.hex()}, in ZooKeeper {ids[name].hex()}")
    for (topic, partition), node in nodes.items():
        shown = views[topic].partitions.get(partition)
        if shown is None:
            continue
        theirs = (shown.leader, shown.leader_epoch, set(shown.isr), shown.replicas)
        ours = (node.leader, node.leader_epoch, set(node.isr), node.replicas)
        if theirs != ours:
            found.append(f"{topic}-{partition}: {theirs}, in ZooKeeper {ours}")
    return found
