"""Kafka's own tools on an EmbeddedCluster that stores records, and on real Kafka as the reference."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

import pytest

from tests.acceptance.children import Children
from tests.acceptance.clients import produce
from tests.acceptance.controller.tools import KafkaTools, ToolRun, wait_until_complete
from tests.acceptance.either_cluster import EMBEDDED, EitherCluster
from tests.kafka.jars import SHORT_LIVED, java_command
from tests.kafka.processes import last_lines
from tests.kafka.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

CONSOLE_PRODUCER = "kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: ms that a consumer waits for more.
PATIENCE = "30000"


@pytest.fixture(scope="module")
def tools(either: EitherCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    with KafkaTools(tmp_path_factory.mktemp("tools"), either.bootstrap) as tools:
        yield tools


def good(run: ToolRun) -> str:
    """Return what a tool printed, if it ended well."""
    assert run.status == 0, run
    return run.output


def rows(run: ToolRun) -> list[list[str]]:
    """Return the words of each line that is not empty."""
    return [line.split() for line in good(run).splitlines() if line.strip()]


def values(count: int) -> list[bytes]:
    return [b"value %d" % number for number in range(count)]


def consume(tools: KafkaTools, topic: str, count: int, *arguments: str) -> list[str]:
    """Return the lines that the console consumer prints for so many records."""
    run = tools.run(
        CONSOLE_CONSUMER,
        *("--topic", topic, "--max-messages", str(count), "--timeout-ms", PATIENCE),
        *arguments,
    )
    return good(run).splitlines()


def test_the_console_producer_and_consumer(either: EitherCluster, tools: KafkaTools) -> None:
    topic = either.create("console", 2)
    lines = [f"h:{number}\tkey {number}\tvalue {number}" for number in range(100)]
    produced = tools.run_as_given(
        CONSOLE_PRODUCER,
        *("--bootstrap-server", either.bootstrap, "--topic", topic, "--compression-codec", "lz4"),
        *("--property", "parse.key=true", "--property", "parse.headers=true"),
        text="\n".join(lines) + "\n",
    )
    assert good(produced).strip(">\n ") == ""
    properties = [f"print.{one}=true" for one in ("key", "headers", "partition", "offset", "timestamp")]
    found = consume(
        tools, topic, 100, "--from-beginning", *(w for one in properties for w in ("--property", one))
    )
    parted = [line.split("\t") for line in found]
    assert sorted((headers, key, value) for *_, headers, key, value in parted) == sorted(
        tuple(line.split("\t")) for line in lines
    )
    assert {one[0].split(":")[0] for one in parted} == {"CreateTime"}
    for partition in {one[1] for one in parted}:
        offsets = [int(one[2].split(":")[1]) for one in parted if one[1] == partition]
        assert offsets == list(range(len(offsets)))
    (last,) = consume(tools, topic, 1, "--partition", "0", "--offset", "3")
    assert last == next(v for _, p, o, _, _, v in parted if p == "Partition:0" and o == "Offset:3")


def test_a_console_consumer_of_a_group_goes_on_where_it_ended(
    either: EitherCluster, tools: KafkaTools
) -> None:
    topic = either.create("goes-on", 1)
    produce(either.bootstrap, topic, values(20), 0)
    first = consume(tools, topic, 8, "--group", "goes-on", "--from-beginning")
    second = consume(tools, topic, 12, "--group", "goes-on")
    assert [one.encode() for one in first + second] == values(20)


def test_the_performance_tools(either: EitherCluster, tools: KafkaTools) -> None:
    for codec in CODECS:
        topic = either.create(f"performance-{codec}", 3)
        run = tools.run_as_given(
            PRODUCER_PERFORMANCE,
            *("--topic", topic, "--num-records", "20000", "--record-size", "200", "--throughput", "-1"),
            *("--producer-props", f"bootstrap.servers={either.bootstrap}", "acks=all"),
            f"compression.type={codec}",
        )
        assert "20000 records sent" in good(run).splitlines()[-1], run
        run = tools.run(
            CONSUMER_PERFORMANCE,
            *("--topic", topic, "--messages", "20000", "--timeout", PATIENCE, "--hide-header"),
        )
        assert good(run).split(", ")[4] == "20000", run


def test_the_latency_tool(either: EitherCluster, tools: KafkaTools) -> None:
    topic = either.create("latency", 1)
    run = tools.run_as_given(
        "org.apache.kafka.tools.EndToEndLatency", either.bootstrap, topic, "100", "all", "100"
    )
    assert "Percentiles: 50th = " in good(run), run


def test_topics(either: EitherCluster, tools: KafkaTools) -> None:
    created = tools.topics(
        *("--create", "--topic", "topics", "--partitions", "2", "--replication-factor", "3"),
        *("--config", "retention.ms=7200000"),
    )
    assert "Created topic topics." in good(created)
    either.wait_until_whole("topics", 2)
    head, *partitions = [
        line.strip().split("\t")
        for line in good(tools.topics("--describe", "--topic", "topics")).splitlines()
    ]
    assert [head[0], *head[2:4]] == ["Topic: topics", "PartitionCount: 2", "ReplicationFactor: 3"]
    assert "retention.ms=7200000" in head[4]
    assert len(partitions) == 2
    assert "topics" in good(tools.topics("--list")).split()
    again = tools.topics("--create", "--topic", "topics", "--partitions", "2")
    assert (again.status, "TopicExistsException" in again.errors) == (1, True), again
    good(tools.topics("--alter", "--topic", "topics", "--partitions", "5"))
    either.wait_until_whole("topics", 5)
    for filters in (
        "--under-replicated-partitions",
        "--unavailable-partitions",
        "--under-min-isr-partitions",
    ):
        assert good(tools.topics("--describe", filters)) == ""
    good(tools.topics("--delete", "--topic", "topics"))
    wait_until(lambda: "topics" not in good(tools.topics("--list")).split(), what="the topic is gone")
    gone = tools.topics("--describe", "--topic", "topics")
    assert (gone.status, "does not exist as expected" in gone.errors) == (1, True), gone


def test_configs(either: EitherCluster, tools: KafkaTools) -> None:
    topic = either.create("configured", 1)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    altered = tools.configs(
        "--alter", *entity, "--add-config", "cleanup.policy=[compact,delete],segment.ms=1000000"
    )
    assert "Completed updating config" in good(altered)
    described = partial(tools.configs, "--describe", *entity)
    wait_until(lambda: "segment.ms=1000000" in good(described()), what="the config is there")
    assert "cleanup.policy=compact,delete sensitive=false" in good(described())
    assert "min.insync.replicas=1" in good(described("--all"))
    good(tools.configs("--alter", *entity, "--delete-config", "segment.ms"))
    wait_until(lambda: "segment.ms" not in good(described()), what="the config is gone")
    wrong = tools.configs("--alter", *entity, "--add-config", "segment.ms=soon")
    assert (wrong.status, "InvalidConfigurationException" in wrong.errors) == (1, True), wrong

    def is_there(entity: Iterable[str]) -> bool:
        return "log.retention.ms=86400001" in good(tools.configs("--describe", *entity))

    for name in (("--entity-name", "1"), ("--entity-default",)):
        entity = ("--entity-type", "brokers", *name)
        good(tools.configs("--alter", *entity, "--add-config", "log.retention.ms=86400001"))
        wait_until(partial(is_there, entity), what="the broker's config is there")
        good(tools.configs("--alter", *entity, "--delete-config", "log.retention.ms"))


def test_consumer_groups(either: EitherCluster, tools: KafkaTools) -> None:
    topic, group = either.create("grouped", 2), "a-group"
    produce(either.bootstrap, topic, values(10), 0)
    produce(either.bootstrap, topic, values(4), 1)
    consume(tools, topic, 14, "--group", group, "--from-beginning")

    def offsets() -> dict[str, list[str]]:
        """Partition -> committed offset, log end offset, lag."""
        return {
            one[2]: one[3:6]
            for one in rows(tools.run(GROUPS, "--describe", "--group", group))
            if one[1] == topic
        }

    assert offsets() == {"0": ["10", "10", "0"], "1": ["4", "4", "0"]}
    assert [group, "Empty"] in rows(tools.run(GROUPS, "--list", "--state"))
    (state,) = [
        one for one in rows(tools.run(GROUPS, "--describe", "--state", "--group", group)) if one[0] == group
    ]
    assert state[-2:] == ["Empty", "0"], state
    reset = partial(tools.run, GROUPS, "--reset-offsets", "--group", group, "--execute", "--topic")
    good(reset(f"{topic}:0", "--to-earliest"))
    assert offsets()["0"] == ["0", "10", "10"]
    good(reset(topic, "--shift-by", "3"))
    assert offsets() == {"0": ["3", "10", "7"], "1": ["4", "4", "0"]}
    good(reset(topic, "--to-datetime", "2100-01-01T00:00:00.000"))
    assert offsets() == {"0": ["10", "10", "0"], "1": ["4", "4", "0"]}
    good(reset(topic, "--by-duration", "PT1H"))
    assert offsets() == {"0": ["0", "10", "10"], "1": ["0", "4", "4"]}
    deleted = tools.run(GROUPS, "--delete-offsets", "--group", group, "--topic", f"{topic}:1")
    assert "Request succeed" in good(deleted)
    assert offsets().keys() == {"0"}
    assert "successful" in good(tools.run(GROUPS, "--delete", "--group", group))
    assert group not in good(tools.run(GROUPS, "--list")).split()
    missing = tools.run(GROUPS, "--delete", "--group", group)
    assert "GroupIdNotFoundException" in missing.output + missing.errors, missing


def test_get_offsets_and_delete_records(either: EitherCluster, tools: KafkaTools) -> None:
    topic = either.create("offsets", 2)
    produce(either.bootstrap, topic, values(10), 0)
    produce(either.bootstrap, topic, values(7), 1)

    def offsets(time: str) -> list[str]:
        return good(tools.run(GET_OFFSETS, "--topic", topic, "--time", time)).split()

    assert offsets("latest") == ["offsets:0:10", "offsets:1:7"]
    assert offsets("earliest") == ["offsets:0:0", "offsets:1:0"]
    assert offsets("0") == ["offsets:0:0", "offsets:1:0"]
    file = tools.file({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 4}]})
    run = tools.run("org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", file)
    assert "partition: offsets-0\tlow_watermark: 4" in good(run)
    assert offsets("earliest") == ["offsets:0:4", "offsets:1:0"]
    assert offsets("max-timestamp")[0].startswith("offsets:0:")
    first = consume(tools, topic, 1, "--partition", "0", "--offset", "earliest")
    assert first == ["value 4"]
    file = tools.file({"version": 1, "partitions": [{"topic": topic, "partition": 1, "offset": 8}]})
    run = tools.run("org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", file)
    assert "OffsetOutOfRangeException" in run.output + run.errors, run


def test_log_directories(either: EitherCluster, tools: KafkaTools) -> None:
    topic = either.create("on-disk", 3)
    for partition in range(3):
        produce(either.bootstrap, topic, values(100), partition)
    run = tools.run("org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", topic)
    described = json.loads(good(run).splitlines()[-1])
    sizes: dict[str, set[int]] = {}
    for broker in described["brokers"]:
        for directory in broker["logDirs"]:
            assert directory["error"] is None
            for partition in directory["partitions"]:
                assert (partition["offsetLag"], partition["isFuture"]) == (0, False)
                sizes.setdefault(partition["partition"], set()).add(partition["size"])
    assert sizes.keys() == {f"{topic}-{number}" for number in range(3)}
    # The replicas of a partition are equal.
    assert all(len(one) == 1 and min(one) > 100 for one in sizes.values()), sizes


def test_leader_election(either: EitherCluster, tools: KafkaTools) -> None:
    topic = "elected"
    good(tools.topics("--create", "--topic", topic, "--replica-assignment", "1:2:3,2:3:1,3:1:2"))
    either.wait_until_whole(topic, 3)
    either.kill_broker(1)
    wait_until(lambda: either.leader(topic, 0) in (2, 3), timeout=60, what="another broker leads")
    either.start_broker(1)
    either.wait_until_whole(topic, 3)
    assert either.leader(topic, 0) != 1
    elected = tools.elect("--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert "Successfully completed leader election (PREFERRED) for partitions elected-0" in good(elected)
    wait_until(lambda: either.leader(topic, 0) == 1, what="broker 1 leads again")
    again = tools.elect("--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert "Valid replica already elected" in good(again)


def test_a_reassignment_moves_the_records(either: EitherCluster, tools: KafkaTools) -> None:
    topic = "moved"
    good(tools.topics("--create", "--topic", topic, "--replica-assignment", "1:2,1:2"))
    either.wait_until_whole(topic, 2, 2)
    for partition in range(2):
        produce(either.bootstrap, topic, values(500), partition)
    plan = {(topic, 0): [3, 2], (topic, 1): [3, 1]}
    good(tools.execute(plan))
    wait_until_complete(tools, plan)
    good(tools.elect("--election-type", "preferred", "--topic", topic, "--partition", "0"))
    wait_until(lambda: either.leader(topic, 0) == 3, what="the new replica leads")
    found = consume(tools, topic, 500, "--partition", "0", "--offset", "earliest")
    assert [one.encode() for one in found] == values(500)
    assert "No partition reassignments found." in good(tools.reassign("--list"))


def test_facts_about_the_cluster(either: EitherCluster, tools: KafkaTools) -> None:
    identified = tools.run_as_given(
        "org.apache.kafka.tools.ClusterTool", "cluster-id", "--bootstrap-server", either.bootstrap
    )
    assert good(identified).startswith("Cluster ID: ")
    versions = good(tools.run("kafka.admin.BrokerApiVersionsCommand"))
    assert versions.count("(id: ") == 3
    assert versions.count("OffsetCommit(8): 0 to 9 [usable: 9]") == 3


def test_the_producers_of_a_partition(either: EitherCluster, tools: KafkaTools) -> None:
    topic = either.create("produced", 1)
    good(
        tools.run_as_given(
            CONSOLE_PRODUCER,
            *("--bootstrap-server", either.bootstrap, "--topic", topic),
            *("--producer-property", "enable.idempotence=true", "--sync"),
            text="1\n2\n3\n",
        )
    )
    described = tools.run(TRANSACTIONS, "describe-producers", "--topic", topic, "--partition", "0")
    header, producer = rows(described)
    found = dict(zip(header, producer, strict=True))
    assert (found["ProducerEpoch"], found["LastSequence"], found["CurrentTransactionStartOffset"]) == (
        "0",
        "2",
        "None",
    )


class Verifiable:
    """VerifiableProducer or VerifiableConsumer as a process. Each line that it prints is an event."""

    def __init__(self, name: str, either: EitherCluster, children: Children, *arguments: str) -> None:
        tool = name.split("-")[0]
        command = java_command(
            f"org.apache.kafka.tools.Verifiable{tool}",
            *("--bootstrap-server", either.bootstrap, *arguments),
            options=(*SHORT_LIVED, "-Xmx128m"),
        )
        self.child = children.start(name, command)

    def events(self, name: str) -> list[dict[str, object]]:
        """Return the events of this name so far."""
        lines = self.child.output.read_text(errors="replace").split("\n")[:-1]
        events = [json.loads(line) for line in lines if line.startswith("{")]
        return [event for event in events if event["name"] == name]

    def wait_for(self, name: str, count: int = 1, timeout: float = 60.0) -> list[dict[str, object]]:
        """Wait until there are so many events of this name."""

        def found() -> list[dict[str, object]] | None:
            events = self.events(name)
            if len(events) < count:
                self.child.check_alive()
            return events if len(events) >= count else None

        what = f"{self.child.name}: {count} × {name}"
        try:
            return wait_until(found, timeout=timeout, what=what)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{last_lines(self.child.output, 5)}") from None


def test_no_record_is_lost_when_a_leader_and_a_consumer_die(
    either: EitherCluster, children: Children
) -> None:
    topic = either.create("verified", 6, min_insync_replicas="2")
    config = children.folder / "producer.properties"
    config.write_text("retries=2147483647\nenable.idempotence=true\nlinger.ms=5\n")
    producer = Verifiable(
        "Producer",
        *(either, children, "--topic", topic, "--throughput", "400"),
        *("--acks", "-1", "--producer.config", str(config)),
    )
    consumers = [
        Verifiable(
            f"Consumer-{number}",
            *(either, children, "--topic", topic, "--group-id", "verified", "--verbose"),
            *("--session-timeout", "6000", "--reset-policy", "earliest"),
        )
        for number in range(3)
    ]
    for consumer in consumers:
        consumer.wait_for("records_consumed")
    victim = either.leader(topic, 0)
    either.kill_broker(victim)
    consumers[0].child.kill()
    seen = [len(consumer.events("records_consumed")) for consumer in consumers]
    for number in (1, 2):
        consumers[number].wait_for("records_consumed", seen[number] + 5)
    either.start_broker(victim)
    either.wait_until_whole(topic, 6)
    producer.child.terminate(60)
    acknowledged = producer.wait_for("producer_send_success")
    assert producer.events("producer_send_error") == []
    places = {(int(str(e["partition"])), int(str(e["offset"]))): str(e["value"]) for e in acknowledged}
    assert len(places) == len(acknowledged)
    assert Counter(places.values()).most_common(1)[0][1] == 1

    def consumed() -> dict[tuple[int, int], str]:
        return {
            (int(str(e["partition"])), int(str(e["offset"]))): str(e["value"])
            for consumer in consumers
            for e in consumer.events("record_data")
        }

    wait_until(lambda: len(consumed()) >= len(places), timeout=60, what="every record is consumed")
    assert consumed() == places
    for consumer in consumers[1:]:
        consumer.child.terminate()
        consumer.wait_for("shutdown_complete")


def test_the_replicas_are_equal(either: EitherCluster, children: Children) -> None:
    topic = either.create("compared", 3)
    for partition in range(3):
        produce(either.bootstrap, topic, values(300), partition)
    command = java_command(
        "org.apache.kafka.tools.ReplicaVerificationTool",
        *("--broker-list", either.bootstrap, "--topics-include", topic, "--report-interval-ms", "200"),
    )
    tool = children.start("ReplicaVerificationTool", command)

    def has_ended_well() -> bool:
        tool.check_alive()
        return "max lag is 0 for partition" in tool.output.read_text()

    wait_until(has_ended_well, timeout=60, what="all replicas have been compared")


def test_there_is_no_authorizer(tools: KafkaTools) -> None:
    run = tools.run("kafka.admin.AclCommand", "--list")
    assert "SecurityDisabledException" in run.errors + run.output, run


def test_what_only_kafka_serves_is_said(either: EitherCluster, tools: KafkaTools) -> None:
    run = tools.configs("--describe", "--entity-type", "users", "--entity-name", "alice")
    unsupported = re.search("UnsupportedVersionException|does not support", run.errors + run.output)
    if either.kind == EMBEDDED:
        assert run.status == 1, run
        assert unsupported, run
    else:
        assert not unsupported, run
