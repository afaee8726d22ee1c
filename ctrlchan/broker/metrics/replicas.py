"""Metrics of the ReplicaManager: partitions, and how many of them have too few replicas in sync.

Source: ``ReplicaManager``, ``Partition``, ``ReplicaAlterLogDirsManager`` (Kafka 3.9).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import GaugeMetricFamily, Metric

from ctrlchan.broker.metrics.families import PARTITION, gauge

if TYPE_CHECKING:
    from ctrlchan.broker.log._log import Log
    from ctrlchan.broker.server import BrokerServer

__all__ = ["collect", "has_late_transaction"]

_SERVER: Final = "kafka_server_"
#: Milliseconds that a transaction may be open beyond the longest time that producers may ask for
#: (``ProducerStateManager.LATE_TRANSACTION_BUFFER_MS``).
_LATE_AFTER: Final = 5 * 60 * 1000


def collect(server: BrokerServer) -> Iterator[Metric]:
    """Yield the metrics as of now."""
    partitions = server.core.partitions.partitions()
    led = [one for one in partitions if one.is_leader]
    late_before = time.time_ns() // 1_000_000 - server.core.settings.transactions.max_timeout - _LATE_AFTER
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
        (
            "partitionswithlatetransactionscount",
            "Led, with a transaction that is open for too long, perhaps for ever",
            _count(led, partial(_is_late, late_before)),
        ),
    ):
        yield gauge(f"{_SERVER}replicamanager_{name}", text, value)
    yield gauge(
        f"{_SERVER}replicaalterlogdirsmanager_maxlag",
        "The most records that a replica has to get yet in its new log directory",
        server.core.replica_manager.moves.largest_lag(),
    )
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


def has_late_transaction(log: Log, late_before: int) -> bool:
    """Return whether the producer of the first open transaction has appended nothing since then.

    ``late_before``: in milliseconds since 1970.
    """
    # Open transactions hold the last stable offset back: without any the producers are not looked at.
    if log.stable_offset >= log.high_watermark:
        return False
    opened = [one for one in log.producer_states() if one.txn_first_offset >= 0]
    if not opened:
        return False
    first = min(opened, key=lambda one: one.txn_first_offset)
    return 0 < first.last_timestamp < late_before


def _count(partitions: Iterable[Any], wanted: Callable[[Any], bool]) -> int:
    return sum(map(wanted, partitions))


def _is_offline(partition: Any) -> bool:
    return bool(partition.is_offline)


def _is_late(late_before: int, partition: Any) -> bool:
    return partition.log is not None and has_late_transaction(partition.log, late_before)


def _is_under_replicated(partition: Any) -> bool:
    return len(partition.isr) < len(partition.replicas)


def _is_under_min_isr(partition: Any) -> bool:
    return partition.log is not None and len(partition.isr) < partition.log.config.min_insync_replicas


def _is_at_min_isr(partition: Any) -> bool:
    return partition.log is not None and len(partition.isr) == partition.log.config.min_insync_replicas
