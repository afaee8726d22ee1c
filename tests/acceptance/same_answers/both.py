"""Kafka 3.9.1 and a cluster of ours, one broker each, which are asked the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import ctrlchan
from ctrlchan.security.settings import SaslSettings
from tests.acceptance.same_answers.messages import Messages
from tests.acceptance.same_answers.recorder import Broker, differences
from tests.kafka.jars import kafka_jars
from tests.kafka.rig import KafkaRig

__all__ = ["OF_CONTROLLERS", "ONE_BROKER", "Both", "Script", "both_brokers"]

Script = Callable[[Broker], None]

#: Settings of a broker that is alone.
ONE_BROKER: Final = {
    "log.retention.ms": "-1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "auto.create.topics.enable": "false",
    "log.index.size.max.bytes": "1048576",
}

#: What brokers ask the controller, which a broker of ours never is.
OF_CONTROLLERS: Final = frozenset({"AllocateProducerIds", "AlterPartition", "ControlledShutdown"})


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
def both_brokers(
    folder: Path,
    configs: Mapping[str, str],
    user: SaslSettings | None = None,
    *,
    is_controller: bool = True,
) -> Iterator[Both]:
    """Start both; the versions that are compared are those that both serve.

    ``user``: asks at a listener CLIENTS with SASL, None: at the one without. ``is_controller``: whether
    Kafka's broker is the controller; if it is not, ``OF_CONTROLLERS`` are compared and nothing else.
    """
    listener = "PLAINTEXT" if user is None else "CLIENTS"
    more = {} if user is None else {"CLIENTS": "SASL_PLAINTEXT"}
    own = (
        {}
        if user is None
        else {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT"}
    )
    messages = Messages(next(kafka_jars().glob("kafka-clients-*.jar")))
    count = 1 if is_controller else 2
    with (
        KafkaRig(folder / "kafka", brokers=count, listeners=more, properties=configs) as rig,
        ctrlchan.EmbeddedCluster(
            1,
            log_dir=folder / "ours",
            configs={**configs, **own},
            more_listeners=dict.fromkeys(more, "127.0.0.1:0"),
        ) as cluster,
    ):
        asked = 1 if is_controller else next(number for number in (1, 2) if number != rig.jvm_controller())
        real = rig.broker(asked).endpoint(listener)
        ours = next(one for one in cluster.brokers[0].endpoints if one.listener == listener)
        found = Both(
            Broker(messages, (real.host, real.port), user), Broker(messages, (ours.host, ours.port), user)
        )
        served, announced = found.ours.announced(), found.kafka.announced()
        for broker in (found.kafka, found.ours):
            broker.versions = {
                api: range(max(own.start, announced[api].start), min(own.stop, announced[api].stop))
                for api, own in served.items()
                if api in announced and (api in OF_CONTROLLERS) != is_controller
            }
        yield found
        found.kafka.close()
        found.ours.close()
