"""Kafka 3.9.1 and a cluster of ours, one broker each, which are asked the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import ctrlchan
from tests.acceptance.same_answers.messages import Messages
from tests.acceptance.same_answers.recorder import Broker, differences
from tests.kafka.jars import kafka_jars
from tests.kafka.rig import KafkaRig

__all__ = ["Both", "Script", "both_brokers"]

Script = Callable[[Broker], None]


@dataclass
class Both:
    kafka: Broker
    ours: Broker
    #: Exceptions that were needed.
    excepted: set[str] = field(default_factory=set)

    def run(self, script: Script) -> list[str]:
        """Run a script with both; return the differences of their answers."""
        for broker in (self.kafka, self.ours):
            broker.answers.clear()
            script(broker)
        return differences(self.kafka.answers, self.ours.answers)


@contextmanager
def both_brokers(folder: Path, configs: Mapping[str, str]) -> Iterator[Both]:
    """Start both; the versions that are compared are those that both serve."""
    messages = Messages(next(kafka_jars().glob("kafka-clients-*.jar")))
    with (
        KafkaRig(folder / "kafka", brokers=1, properties=configs) as rig,
        ctrlchan.EmbeddedCluster(1, log_dir=folder / "ours", configs=configs) as cluster,
    ):
        real = rig.broker(1).endpoint("PLAINTEXT")
        ours = cluster.brokers[0].endpoints[0]
        found = Both(Broker(messages, (real.host, real.port)), Broker(messages, (ours.host, ours.port)))
        served, announced = found.ours.announced(), found.kafka.announced()
        for broker in (found.kafka, found.ours):
            broker.versions = {
                api: range(max(own.start, announced[api].start), min(own.stop, announced[api].stop))
                for api, own in served.items()
            }
        yield found
        found.kafka.close()
        found.ours.close()
