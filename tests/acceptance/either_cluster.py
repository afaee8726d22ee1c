"""A cluster of three brokers for tests that must pass on an EmbeddedCluster and on real Kafka alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import ctrlchan
from tests.kafka.requirement import require_kafka
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until

__all__ = ["CLUSTERS", "CONFIGS", "EMBEDDED", "REAL", "EitherCluster", "either_cluster"]

EMBEDDED: Final = "embedded"
REAL: Final = "real Kafka"
#: Parameters of a fixture.
CLUSTERS: Final = (EMBEDDED, REAL)

CONFIGS: Final = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    # Kafka looks for transactions that are over time every 10 s.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.cleaner.enable": "true",
    "log.cleaner.dedupe.buffer.size": "10485760",
}
#: Seconds for an effect in the whole cluster.
_TIMEOUT: Final = 60.0


@dataclass(frozen=True)
class EitherCluster:
    """Brokers 1, 2 and 3. ``kind``: EMBEDDED or REAL."""

    kind: str
    bootstrap: str
    kill_broker: Callable[[int], object]
    start_broker: Callable[[int], object]

    def create(self, topic: str, partitions: int, replicas: int = 3, **configs: str) -> str:
        """Create a topic and wait until it has leaders and whole ISRs; ``_`` in names of configs is a dot."""
        config = {name.replace("_", "."): value for name, value in configs.items()}
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(topic, partitions, replicas, config=config)])[topic].result(_TIMEOUT)
        self.wait_until_whole(topic, partitions, replicas)
        return topic

    def wait_until_whole(self, topic: str, partitions: int, replicas: int = 3) -> None:
        """Wait until all partitions have leaders and all replicas are in sync."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})

        def is_whole() -> bool:
            seen = admin.list_topics(timeout=_TIMEOUT).topics.get(topic)
            return (
                seen is not None
                and len(seen.partitions) == partitions
                and all(one.leader > 0 and len(one.isrs) == replicas for one in seen.partitions.values())
            )

        wait_until(is_whole, timeout=_TIMEOUT, what=f"{topic} has leaders and whole ISRs")

    def leader(self, topic: str, partition: int) -> int:
        """Return the id of the broker that leads a partition."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        found: int = admin.list_topics(topic, timeout=_TIMEOUT).topics[topic].partitions[partition].leader
        return found


@contextmanager
def either_cluster(kind: str, folder: Path) -> Iterator[EitherCluster]:
    """Start a cluster; skip the test where real Kafka cannot run."""
    if kind == EMBEDDED:
        with ctrlchan.EmbeddedCluster(3, log_dir=folder / "logs", configs=CONFIGS) as cluster:
            yield EitherCluster(kind, cluster.bootstrap_servers, cluster.kill_broker, cluster.start_broker)
        return
    require_kafka()
    with KafkaRig(folder / "rig", brokers=3, properties=CONFIGS) as rig:
        yield EitherCluster(kind, rig.bootstrap, rig.kill_broker, rig.restart_broker)
