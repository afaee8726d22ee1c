"""``ctrlchan demo``: a push to brokers on this machine, checked with a real Kafka client."""

from __future__ import annotations

import importlib.util
import logging
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ctrlchan.cli.limits import MAX_INT32
from ctrlchan.cli.progress import step
from ctrlchan.cli.push import push_state, require_acknowledged, show_result
from ctrlchan.text import printable

if TYPE_CHECKING:
    from ctrlchan.state import Broker, ClusterState

__all__ = ["demo", "differences"]

#: A client's metadata of one partition: (leader, leader epoch, replicas, isr).
Answer = tuple[int, int, list[int], list[int]]
#: Differences that are printed.
_SHOWN: Final = 10


def _number(help_text: str) -> Any:
    return typer.Option(min=1, max=MAX_INT32, metavar="NUMBER", help=help_text)


def demo(
    topics: Annotated[int, _number("Topics of the cluster.")] = 1_000,
    partitions: Annotated[int, _number("Partitions of each topic.")] = 100,
    brokers: Annotated[int, _number("Embedded brokers to start.")] = 30,
    replication: Annotated[int, _number("Replicas of each partition.")] = 3,
    rounds: Annotated[int, _number("Push this many times.")] = 3,
    sample: Annotated[int, _number("Topics a client reads back from each broker.")] = 20,
) -> None:
    """Push a whole cluster's metadata to embedded brokers and let a Kafka client read it back.

    Starts brokers on free ports of this machine, generates a snapshot, pushes it to every broker, then asks
    each broker for Metadata with kafka-python and compares a sample of topics with the snapshot. Exit status
    1 when a broker did not acknowledge or a client saw something else.

    Examples:

      ctrlchan demo

      ctrlchan demo --topics 10000 --brokers 100
    """
    _require_client()
    from ctrlchan.broker.config.broker_config import BrokerConfig
    from ctrlchan.channel import ChannelConfig
    from ctrlchan.errors import ChannelError
    from ctrlchan.launch.processes import BrokerProcesses
    from ctrlchan.state import ClusterState
    from ctrlchan.state.importing.generate import GeneratorConfig, generate

    shape = GeneratorConfig(
        topics=topics, partitions_per_topic=partitions, brokers=brokers, replication=min(replication, brokers)
    )
    with tempfile.TemporaryDirectory(prefix="ctrlchan-demo-") as folder:
        with step(f"starting {brokers} embedded brokers"):
            cluster = BrokerProcesses([BrokerConfig(id=number) for number in range(brokers)])
        with cluster:
            snapshot = Path(folder, "snapshot")
            with step(f"generating a snapshot of {topics * partitions:,} partitions"):
                state = generate(shape)
                state.set_brokers(cluster.brokers)
                state.write(snapshot)
                state = ClusterState.read(snapshot)
            config = ChannelConfig(controller_id=state.controller_id)
            with step(f"pushing it to {brokers} brokers"):
                result = push_state(state, config, state.controller_epoch, rounds=rounds, timeout=60)
            show_result(result)
            require_acknowledged(result)
            wrong = []
            with step(f"reading {sample} topics back from each broker with kafka-python"):
                for broker in cluster.brokers:
                    wrong += differences(state, broker, _sampled(state, sample))
    if wrong:
        for line in wrong[:_SHOWN]:
            typer.echo(printable(f"differs: {line}"), err=True)
        raise ChannelError(f"{len(wrong)} partitions differ from the snapshot")
    seen = min(sample, topics) * partitions
    typer.echo(
        f"a Kafka client read {seen:,} partitions from each of {brokers} brokers: all as in the snapshot"
    )


def _require_client() -> None:
    """Raise ConfigError when kafka-python is not installed."""
    if importlib.util.find_spec("kafka") is None:
        from ctrlchan.errors import ConfigError

        raise ConfigError("the demo reads back with kafka-python: pip install 'ctrlchan[demo]'")


def _sampled(state: ClusterState, count: int) -> list[str]:
    """Return ``count`` topic names, evenly spread."""
    topics = len(state.topics)
    step_over = max(1, topics // count)
    return [state.topic_name(row) for row in range(0, topics, step_over)][:count]


def differences(state: ClusterState, broker: Broker, topics: Sequence[str]) -> list[str]:
    """Return a line for each partition of which kafka-python reads something else than ``state`` has."""
    endpoint = broker.endpoints[0]
    seen = dict(_read_back(f"{endpoint.host}:{endpoint.port}", topics))
    wrong = []
    for topic in topics:
        for row in range(state.rows_of_topic(topic).start, state.rows_of_topic(topic).stop):
            expected = _expected(state, row)
            key = (topic, int(state.partitions.partition[row]))
            if seen.get(key) != expected:
                wrong.append(f"broker {broker.id} {topic}-{key[1]}: {seen.get(key)} instead of {expected}")
    return wrong


def _expected(state: ClusterState, row: int) -> Answer:
    partitions = state.partitions
    return (
        int(partitions.leader[row]),
        int(partitions.leader_epoch[row]),
        partitions.replicas[row].tolist(),
        partitions.isr[row].tolist(),
    )


def _read_back(address: str, topics: Iterable[str]) -> Iterator[tuple[tuple[str, int], Answer]]:
    """Yield ((topic, partition), answer) for every partition in the metadata of the broker at ``address``."""
    from kafka import KafkaAdminClient

    logging.getLogger("kafka").setLevel(logging.ERROR)
    client = KafkaAdminClient(bootstrap_servers=address, client_id="ctrlchan-demo")
    try:
        for topic in client.describe_topics(list(topics)):
            for one in topic["partitions"]:
                answer = (one["leader_id"], one["leader_epoch"], one["replica_nodes"], one["isr_nodes"])
                yield (topic["name"], one["partition_index"]), answer
    finally:
        client.close()
