"""``ctrlchan demo``: the main job end to end on this machine, with a real client as the judge."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ctrlchan.cli.progress import step
from ctrlchan.cli.push import push_state, show_result

if TYPE_CHECKING:
    from ctrlchan.state import Broker, ClusterState

__all__ = ["demo", "differences"]

#: What a client says of one partition: (leader, leader epoch, replicas, isr).
Answer = tuple[int, int, list[int], list[int]]
#: Differences that are printed.
_SHOWN: Final = 10


def demo(
    topics: Annotated[int, typer.Option(min=1, help="Topics of the cluster.")] = 1_000,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of each topic.")] = 100,
    brokers: Annotated[int, typer.Option(min=1, help="Embedded brokers to start.")] = 30,
    replication: Annotated[int, typer.Option(min=1, help="Replicas of each partition.")] = 3,
    rounds: Annotated[int, typer.Option(min=1, help="Push this many times.")] = 3,
    sample: Annotated[int, typer.Option(min=1, help="Topics a client reads back from each broker.")] = 20,
) -> None:
    """Push a whole cluster's metadata to embedded brokers and let a Kafka client read it back.

    Starts brokers on free ports of this machine, generates a snapshot, pushes it to every broker, then asks
    each broker for Metadata with kafka-python and compares a sample of topics with the snapshot. Exit status
    1 when a broker did not acknowledge or a client saw something else.

    Examples:

      ctrlchan demo

      ctrlchan demo --topics 10000 --brokers 100
    """
    from ctrlchan.broker import EmbeddedCluster
    from ctrlchan.channel import ChannelConfig
    from ctrlchan.state import ClusterState
    from ctrlchan.state.importing.generate import GeneratorConfig, generate

    shape = GeneratorConfig(
        topics=topics, partitions_per_topic=partitions, brokers=brokers, replication=min(replication, brokers)
    )
    with tempfile.TemporaryDirectory(prefix="ctrlchan-demo-") as folder:
        with step(f"starting {brokers} embedded brokers"):
            cluster = EmbeddedCluster(count=brokers, first_id=0)
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
            if not result.ok:
                raise typer.Exit(1)
            wrong = []
            with step(f"reading {sample} topics back from each broker with kafka-python"):
                for broker in cluster.brokers:
                    wrong += differences(state, broker, _sampled(state, sample))
    if wrong:
        for line in wrong[:_SHOWN]:
            typer.echo(f"differs: {line}", err=True)
        typer.echo(f"error: {len(wrong)} partitions differ from the snapshot", err=True)
        raise typer.Exit(1)
    seen = min(sample, topics) * partitions
    typer.echo(
        f"a Kafka client read {seen:,} partitions from each of {brokers} brokers: all as in the snapshot"
    )


def _sampled(state: ClusterState, count: int) -> list[str]:
    """``count`` topic names, evenly spread."""
    topics = len(state.topics)
    step_over = max(1, topics // count)
    return [state.topic_name(row) for row in range(0, topics, step_over)][:count]


def differences(state: ClusterState, broker: Broker, topics: Sequence[str]) -> list[str]:
    """What kafka-python reads from ``broker`` of ``topics`` and ``state`` does not say, one line each."""
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
    """((topic, partition), answer) for every partition that the broker at ``address`` tells of."""
    try:
        from kafka import KafkaAdminClient
    except ImportError:
        from ctrlchan.errors import ConfigError

        raise ConfigError("the demo reads back with kafka-python: pip install 'ctrlchan[demo]'") from None
    logging.getLogger("kafka").setLevel(logging.ERROR)
    client = KafkaAdminClient(bootstrap_servers=address, client_id="ctrlchan-demo")
    try:
        for topic in client.describe_topics(list(topics)):
            for one in topic["partitions"]:
                answer = (one["leader_id"], one["leader_epoch"], one["replica_nodes"], one["isr_nodes"])
                yield (topic["name"], one["partition_index"]), answer
    finally:
        client.close()
