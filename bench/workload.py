"""The measured cluster: topics of 100 partitions, replication 3, two listeners a broker, three racks.

With 1,000 topics and 30 brokers this is W1: 100,000 partitions, an UpdateMetadata v8 body of 4,841,391 bytes
when the brokers are named as ``internal_host`` names them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from ctrlchan._codec import Brokers, ListColumn, LiveLeaders, Partitions, StringColumn, Topics

__all__ = ["PARTITIONS_PER_TOPIC", "brokers_of", "internal_host", "leaders_of", "partitions_of", "topics_of"]

PARTITIONS_PER_TOPIC: Final = 100
_REPLICATION: Final = 3
_RACKS: Final = 3
_PORT: Final = 9092
_SSL: Final = 1
_PLAINTEXT: Final = 0
#: Topic ids have to be incompressible, not secret.
_SEED: Final = 20240229


def internal_host(broker_id: int) -> str:
    return f"broker-{broker_id:04}.internal"


def topics_of(count: int) -> Topics:
    ids = np.random.default_rng(_SEED).integers(0, 256, (count, 16), dtype=np.uint8)
    return Topics(StringColumn.from_strings(f"metrics-topic-{topic:06}" for topic in range(count)), ids)


def partitions_of(topics: int, brokers: int) -> Partitions:
    """Return partitions with every replica in sync and online, leaders spread over the brokers."""
    rows = topics * PARTITIONS_PER_TOPIC
    topic_row = np.repeat(np.arange(topics, dtype=np.int32), PARTITIONS_PER_TOPIC)
    partition = np.tile(np.arange(PARTITIONS_PER_TOPIC, dtype=np.int32), topics)
    first = topic_row * 7 + partition
    replicas = (first[:, None] + np.arange(_REPLICATION)) % max(brokers, _REPLICATION) + 1
    values = replicas.astype(np.int32).reshape(-1)

    def triples() -> ListColumn:
        # Each list column has its own memory, as in a state whose columns change independently.
        starts = np.arange(0, rows * _REPLICATION, _REPLICATION, dtype=np.int32)
        return ListColumn(starts, np.full(rows, _REPLICATION, dtype=np.int32), values.copy())

    return Partitions(
        topic_row=topic_row,
        partition=partition,
        controller_epoch=np.full(rows, 3, dtype=np.int32),
        leader=values[::_REPLICATION].copy(),
        leader_epoch=np.full(rows, 5, dtype=np.int32),
        partition_epoch=np.full(rows, 7, dtype=np.int32),
        recovery_state=np.zeros(rows, dtype=np.int32),
        isr=triples(),
        replicas=triples(),
    )


def brokers_of(count: int, host: Callable[[int], str] = internal_host, port: int = _PORT) -> Brokers:
    ids = range(1, count + 1)
    return Brokers(
        ids=np.array(ids, dtype=np.int32),
        epochs=np.array([1000 + broker_id for broker_id in ids], dtype=np.int64),
        racks=StringColumn.from_strings(f"r{broker_id % _RACKS}" for broker_id in ids),
        endpoint_starts=np.arange(0, 2 * count, 2, dtype=np.int32),
        endpoint_lengths=np.full(count, 2, dtype=np.int32),
        ports=np.full(2 * count, port, dtype=np.int32),
        hosts=StringColumn.from_strings(host(broker_id) for broker_id in ids for _ in range(2)),
        listeners=StringColumn.from_strings(["PLAINTEXT", "SSL"] * count),
        security_protocols=np.array([_PLAINTEXT, _SSL] * count, dtype=np.int32),
    )


def leaders_of(brokers: Brokers) -> LiveLeaders:
    return LiveLeaders(
        brokers.ids,
        StringColumn(brokers.hosts.starts[::2], brokers.hosts.lengths[::2], brokers.hosts.data),
        brokers.ports[::2],
    )
