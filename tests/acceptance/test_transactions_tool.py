"""kafka-transactions on a cluster of the package and on real Kafka, of one and of three brokers.

A script of commands runs on both, through all subcommands. What is printed must be equal, but for times,
producer ids and the brokers that coordinate.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import ctrlchan
from ctrlchan.state.brokers import parse_host_port
from tests.acceptance.clients import TIMEOUT, produce
from tests.acceptance.controller.tools import KafkaTools, ToolRun
from tests.acceptance.either_cluster import CONFIGS
from tests.acceptance.same_answers.messages import Messages
from tests.acceptance.same_answers.recorder import Broker
from tests.acceptance.same_answers.topics import one_produce, plain
from tests.kafka.jars import kafka_jars
from tests.kafka.requirement import require_kafka
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until
from tests.unit.broker.log.batches import TRANSACTIONAL

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

TOOL = "org.apache.kafka.tools.TransactionsCommand"
TOPIC = "orders"
#: Ids that no coordinator has given.
STRANGERS: Final = (424_242, 424_243)
TWO_HOURS_MS: Final = 7_200_000
#: Batches open transactions without a question to the coordinator.
UNVERIFIED: Final = {"transaction.partition.verification.enable": "false"}
#: Columns of the tool, and what stands for a value that differs from run to run.
BLANKS: Final = {
    "Coordinator": "a broker",
    "CoordinatorId": "a broker",
    "CurrentTransactionStartTimeMs": "a time",
    "ProducerId": "an id",
    "LastTimestamp": "a time",
    "TransactionDurationMs": "a time",
}


@dataclass
class Script:
    """Runs the tool, and remembers what it prints."""

    tools: KafkaTools
    printed: list[str] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)

    def run(self, *arguments: str) -> list[dict[str, str]]:
        """Run a subcommand that prints a table; return its rows."""
        run = self.tools.run(TOOL, *arguments)
        assert run.status == 0, f"{arguments}: {run}"
        header, *lines = [line.split() for line in run.output.splitlines() if line.strip()] or [[]]
        # The last column, TopicPartitions, may be empty.
        table = [dict(zip_longest(header, line, fillvalue="")) for line in lines]
        # The order is that of a hash map, and ids get their names in the order of what else is shown.
        shown = [
            ([self._shown(name, value) for name, value in row.items()], row.get("ProducerId", ""))
            for row in table
        ]
        shown.sort(key=lambda one: (one[0], self._names.get(one[1], "")))
        texts = [f"{self._name(producer_id)}: {values}" for values, producer_id in shown]
        self.printed += [f"{arguments}", f"{header}", *texts]
        return table

    def fail(self, *arguments: str) -> ToolRun:
        """Run a subcommand that fails."""
        run = self.tools.run(TOOL, *arguments)
        assert run.status != 0, f"{arguments}: {run}"
        said = [line for line in (run.errors + run.output).splitlines() if not line.startswith("WARN")]
        self.printed += [f"{arguments}: status {run.status}", *said]
        return run

    def _name(self, producer_id: str) -> str:
        return self._names.setdefault(producer_id, f"producer {len(self._names)}")

    def _shown(self, column: str, value: str) -> str:
        if column == "TopicPartitions":
            return ",".join(sorted(value.split(",")))
        return value if value == "None" else BLANKS.get(column, value)


@dataclass(frozen=True)
class Cluster:
    """One of the two clusters: where its brokers listen, by id."""

    addresses: dict[int, tuple[str, int]]
    tools: KafkaTools

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.addresses.values())

    def leader(self, partition: int) -> int:
        admin: Any = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        found: int = admin.list_topics(TOPIC, timeout=TIMEOUT).topics[TOPIC].partitions[partition].leader
        return found


@pytest.fixture(params=[1, 3], ids=["one broker", "three brokers"])
def clusters(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Cluster]]:
    """Return one of ours and one of Kafka's."""
    require_kafka()
    count: int = request.param
    configs = CONFIGS | UNVERIFIED
    for name in ("offsets.topic", "transaction.state.log"):
        configs[f"{name}.replication.factor"] = str(count)
    configs["transaction.state.log.min.isr"] = "1"
    with ExitStack() as stack:
        ours = stack.enter_context(
            ctrlchan.EmbeddedCluster(count, log_dir=tmp_path / "ours", configs=configs)
        )
        kafka = stack.enter_context(KafkaRig(tmp_path / "kafka", brokers=count, properties=configs))
        found = []
        for name, bootstrap in (("ours-tools", ours.bootstrap_servers), ("kafka-tools", kafka.bootstrap)):
            folder = tmp_path / name
            folder.mkdir()
            tools = stack.enter_context(KafkaTools(folder, bootstrap))
            addresses = [parse_host_port(one) for one in bootstrap.split(",")]
            found.append(Cluster(dict(enumerate(addresses, 1)), tools))
        yield found


def transactional(cluster: Cluster, name: str) -> Any:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 600_000,
            "linger.ms": 0,
            "log_level": 2,
        }
    )
    producer.init_transactions(TIMEOUT)
    return producer


def send(producer: Any, value: bytes, partition: int) -> None:
    producer.produce(TOPIC, value, partition=partition)
    assert producer.flush(TIMEOUT) == 0


def hang(cluster: Cluster, name: str, producer_id: int, epoch: int, partition: int) -> None:
    """Append to a transaction of which the coordinator hears nothing, as clients with bugs have done."""
    messages = Messages(next(kafka_jars().glob("kafka-clients-*.jar")))
    broker = Broker(messages, cluster.addresses[cluster.leader(partition)])
    then = int(time.time() * 1000) - TWO_HOURS_MS
    data = plain(
        "hanging",
        attributes=TRANSACTIONAL,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        base_timestamp=then,
        max_timestamp=then,
    )
    request = one_produce(TOPIC, data, partition) | {"TransactionalId": name}
    answer = broker.look("Produce", 9, **request)
    broker.close()
    assert answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"] == 0, answer


def states(rows: Sequence[dict[str, str]]) -> dict[str, str]:
    return {row["TransactionalId"]: row["TransactionState"] for row in rows}


def read_committed(cluster: Cluster, partition: int) -> list[bytes]:
    """Return the values of a partition before its last stable offset."""
    consumer: Any = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    found: list[bytes] = []
    while True:
        message = consumer.poll(TIMEOUT)
        assert message is not None, "the consumer hears nothing"
        if message.error() is None:
            found.append(message.value())
        elif message.error().code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return found
        else:
            raise KafkaException(message.error())


def all_subcommands(cluster: Cluster) -> list[str]:
    """Run the script; return what was printed, without what differs from run to run."""
    script = Script(cluster.tools)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 3, len(cluster.addresses))])[TOPIC].result(TIMEOUT)
    # A leader that is known to all may not know it itself yet.
    for partition in range(3):
        produce(cluster.bootstrap, TOPIC, [b"first"], partition)
    script.run("describe-producers", "--topic", TOPIC, "--partition", "2")

    open_one, committed, aborted = (transactional(cluster, name) for name in ("open", "committed", "aborted"))
    for producer in (open_one, committed, aborted):
        producer.begin_transaction()
    # First, because markers come after the answers to the other two.
    send(open_one, b"open", 0)
    send(open_one, b"open", 2)
    send(committed, b"committed", 0)
    committed.commit_transaction(TIMEOUT)
    send(aborted, b"aborted", 0)
    aborted.abort_transaction(TIMEOUT)
    transactional(cluster, "empty")

    ended = {"open": "Ongoing", "committed": "CompleteCommit", "aborted": "CompleteAbort", "empty": "Empty"}
    wait_until(
        lambda: states(Script(cluster.tools).run("list")) == ended,
        timeout=TIMEOUT,
        what="markers are written",
    )
    script.run("list")
    assert states(script.run("list", "--duration-filter", "-1")) == ended
    assert states(script.run("list", "--duration-filter", "1")) == ended
    # Kafka takes a transaction that has ended, too, for one that began long ago.
    assert "open" not in states(script.run("list", "--duration-filter", "600000"))
    for name in ended:
        (described,) = script.run("describe", "--transactional-id", name)
        assert described["TransactionState"] == ended[name]
        assert described["TransactionTimeoutMs"] == "600000"
    for name in ("unknown", ""):
        script.fail("describe", "--transactional-id", name)

    for broker_id in ("1", "3", "9"):
        arguments = ["describe-producers", "--topic", TOPIC, "--partition", "0", "--broker-id", broker_id]
        if int(broker_id) in cluster.addresses:
            assert len(script.run(*arguments)) == 3
        elif broker_id != "9":
            # The tool waits for a broker that does not exist until its patience ends.
            script.printed.append(f"{arguments}: no such broker")
    (producing,) = script.run("describe-producers", "--topic", TOPIC, "--partition", "2")
    assert producing["CurrentTransactionStartOffset"] == "1"

    # Transactions that hang: of a producer without an id, and in a partition that its transaction has not.
    known = next(row for row in script.run("list") if row["TransactionalId"] == "open")
    hang(cluster, "unknown", STRANGERS[0], 0, 1)
    hang(cluster, "open", int(known["ProducerId"]), 0, 1)
    for scope in (["--topic", TOPIC], ["--topic", TOPIC, "--partition", "1"], ["--broker-id", "1"]):
        found = script.run("find-hanging", *scope)
        assert {row["Partition"] for row in found} == {"1"}
        assert [row["StartOffset"] for row in sorted(found, key=lambda row: row["StartOffset"])] == ["1", "2"]
    assert script.run("find-hanging", "--topic", TOPIC, "--partition", "0") == []
    assert script.run("find-hanging", "--topic", TOPIC, "--max-transaction-timeout", "121") == []
    assert len(script.run("find-hanging", "--topic", TOPIC, "--max-transaction-timeout", "119")) == 2
    script.fail("find-hanging")
    script.fail("find-hanging", "--partition", "1")

    # A record behind them is not seen before they have ended.
    produce(cluster.bootstrap, TOPIC, [b"last"], 1)
    assert read_committed(cluster, 1) == [b"first"]
    where = ["--topic", TOPIC, "--partition", "1"]
    script.fail("abort", *where)
    script.fail("abort", *where, "--start-offset", "7")
    script.fail("abort", *where, "--producer-id", "7")
    script.fail("abort", *where, "--producer-id", "7", "--producer-epoch", "0")
    assert script.run("abort", *where, "--start-offset", "1") == []
    script.fail("abort", *where, "--start-offset", "1")
    assert [row["StartOffset"] for row in script.run("find-hanging", *where)] == ["2"]
    wait_until(lambda: read_committed(cluster, 1) == [b"first"], timeout=TIMEOUT, what="one still hangs")
    by_producer = ["--producer-id", known["ProducerId"], "--coordinator-epoch", "-1"]
    assert script.run("abort", *where, *by_producer, "--producer-epoch", "0") == []
    assert script.run("find-hanging", *where) == []
    # A higher epoch than the last is taken, a lower one is refused.
    by_producer = ["--producer-id", str(STRANGERS[0]), "--coordinator-epoch", "0"]
    assert script.run("abort", *where, *by_producer, "--producer-epoch", "5") == []
    script.fail("abort", *where, *by_producer, "--producer-epoch", "4")
    wait_until(
        lambda: read_committed(cluster, 1) == [b"first", b"last"], timeout=TIMEOUT, what="the last record"
    )
    script.run("describe-producers", *where)

    # The transaction that does not hang goes on.
    assert script.run("find-hanging", "--topic", TOPIC, "--partition", "0") == []
    open_one.commit_transaction(TIMEOUT)
    wait_until(
        lambda: read_committed(cluster, 2) == [b"first", b"open"], timeout=TIMEOUT, what="the open one's"
    )
    return script.printed


def test_all_subcommands(clusters: list[Cluster]) -> None:
    ours, kafkas = (all_subcommands(cluster) for cluster in clusters)
    assert ours == kafkas
    assert len(ours) > 60
