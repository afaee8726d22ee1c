"""Metrics of the ReplicaManager: partitions, and how many of them have too few replicas in sync.

Source: ``ReplicaManager``, ``Partition`` (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import GaugeMetricFamily, Metric

from ctrlchan.broker.metrics.families import PARTITION, gauge

if TYPE_CHECKING:
    from ctrlchan.broker.server import BrokerServer

__all__ = ["collect"]

_SERVER: Final = "kafka_server_"


def collect(server: BrokerServer) -> Iterator[Metric]:
    """Yield the metrics as of now."""
    partitions = server.core.partitions.partitions()
    led = [one for one in partitions if one.is_leader]
    for name, text, value in (
        ("partitioncount", "Hosted partitions", len(partitions)),
        ("leadercount", "Led partitions", len(led)),
        ("offlinereplicacount", "Partitions in failed log directories", _count(partitions, _is_offline)),
        (
            "underreplicatedpartitions",
            "Led, with replicas out of sync",
            _count(led, _is_under_replicated),
        ),
        ("underminisrpartitioncount", "Led, with too small an ISR", _count(led, _is_under_min_isr)),
        ("atminisrpartitioncount", "Led, with the smallest ISR", _count(led, _is_at_min_isr)),
    ):
        yield gauge(f"{_SERVER}replicamanager_{name}", text, value)
    readers: tuple[tuple[str, str, Callable[[Any], int]], ...] = (
        ("replicascount", "Replicas of a led partition", lambda one: len(one.replicas)),
        ("insyncreplicascount", "Replicas in sync", lambda one: len(one.isr)),
        ("underreplicated", "1: with replicas out of sync", _is_under_replicated),
        ("underminisr", "1: with too small an ISR", _is_under_min_isr),
    )
    for name, text, read in readers:
        family = GaugeMetricFamily(f"kafka_cluster_partition_{name}", text, labels=PARTITION)
        for one in led:
            family.add_metric((one.topic, str(one.partition)), read(one))
        yield family


def _count(partitions: Iterable[Any], wanted: Callable[[Any], bool]) -> int:
    return sum(map(wanted, partitions))


def _is_offline(partition: Any) -> bool:
    return bool(partition.is_offline)


def _is_under_replicated(partition: Any) -> bool:
    return len(partition.isr) < len(partition.replicas)


def _is_under_min_isr(partition: Any) -> bool:
    return partition.log is not None and len(partition.isr) < partition.log.config.min_insync_replicas


def _is_at_min_isr(partition: Any) -> bool:
    return partition.log is not None and len(partition.isr) == partition.log.config.min_insync_replicas
