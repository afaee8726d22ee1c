"""ctrlchan pipeline ingest: every row is taken unchanged, or refused with its reason."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ctrlchan.errors import PipelineError
from ctrlchan.state import Broker, ClusterState, Endpoint, SecurityProtocol
from ctrlchan.state.brokers import brokers_list
from ctrlchan.state.importing.describe_text import import_describe
from ctrlchan.state.importing.generate import GeneratorConfig, generate
from tests.spark.conftest import Command, small_inputs
from tests.unit.batch.manual_channel import broker
from tests.unit.state.helpers import rows_of
from tests.unit.state.test_import_zookeeper import FakeZooKeeper
from tests.unit.state.test_import_zookeeper import cluster as some_znodes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: (row, topic, partition, reason) of a reject.
Reject = tuple[int, str | None, int | None, str]


class Ingesting:
    """Writes inputs and reads what came of them. ``counts``: of the last ``run``."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.counts: dict[str, Any] = {}

    def file(self, name: str, content: str | bytes) -> str:
        path = self.folder / name
        raw = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return str(path)

    def run(self, **inputs: Any) -> tuple[ClusterState, list[Reject]]:
        """Return the snapshot and the rejects; in = taken + refused."""
        from ctrlchan.pipeline import IngestConfig, ingest, write_ingested

        with ingest(self.spark, IngestConfig(**inputs)) as found:
            self.counts = write_ingested(found, self.folder / "out", self.folder / "rejects", overwrite=True)
        assert self.counts["in"] == self.counts["taken"] + self.counts["refused"]
        return ClusterState.read(self.folder / "out"), self.rejects()

    def rejects(self) -> list[Reject]:
        rows = self.spark.read.parquet(str(self.folder / "rejects")).collect()
        return sorted(
            ((row["row"], row["topic"], row["partition"], self._plain(row["reason"])) for row in rows),
            key=lambda reject: (reject[0], reject[2] if reject[2] is not None else -1),
        )

    def _plain(self, reason: str) -> str:
        return reason.replace(f"{self.folder}/", "")


@pytest.fixture
def ingesting(spark: SparkSession, tmp_path: Path) -> Iterator[Ingesting]:
    """Small inputs, as those of most tests are."""
    with small_inputs(spark):
        yield Ingesting(spark, tmp_path)


@pytest.fixture
def in_tasks(spark: SparkSession, tmp_path: Path) -> Ingesting:
    return Ingesting(spark, tmp_path)


@pytest.fixture(params=["small", "in tasks"])
def either(request: pytest.FixtureRequest) -> Ingesting:
    found: Ingesting = request.getfixturevalue("ingesting" if request.param == "small" else "in_tasks")
    return found


def same(state: ClusterState, other: ClusterState) -> bool:
    assert rows_of(state) == rows_of(other)
    assert brokers_list(state.brokers) == sorted(brokers_list(other.brokers), key=lambda one: one.id)
    assert (state.cluster_id, state.controller_id) == (other.cluster_id, other.controller_id)
    assert state.controller_epoch == other.controller_epoch
    ours, theirs = (
        {
            one.topic_name(row): (one.topics.ids[row].tobytes(), bool(one.topics.deleting[row]))
            for row in range(len(one.topics))
            if one.topics.deleting is not None
        }
        for one in (state, other)
    )
    return ours == theirs


DESCRIBE = """\
Topic: orders|TopicId: dVYtbxg8RRmPJBPeZs0tbw|PartitionCount: 3|ReplicationFactor: 2|Configs: segment.bytes=1
|Topic: orders|Partition: 0|Leader: 1|Replicas: 1,2|Isr: 1,2
|Topic: orders|Partition: 1|Leader: none|Replicas: 2,3|Isr: 2|Adding Replicas: 3|Removing Replicas: |Elr:
|Topic: orders|Partition: 2|Leader: 1|Replicas: 3,1|Isr: 1|Elr: |LastKnownElr:
Topic:old|PartitionCount:1|ReplicationFactor:1|Configs:|MarkedForDeletion: true

|Topic: old|Partition: 0|Leader: 2|Replicas: 2|Isr: 2|MarkedForDeletion: true
""".replace("|", "\t")


@pytest.mark.parametrize("brokers", [None, pytest.param((1, 2, 3), marks=pytest.mark.long)])
def test_describe_as_the_driver_reads_it(ingesting: Ingesting, brokers: Sequence[int] | None) -> None:
    file = ingesting.file("topics.txt", DESCRIBE.replace("\n", "\r\n"))
    options: dict[str, Any] = {"cluster_id": "c", "controller_id": 4, "controller_epoch": 7}
    given = None if brokers is None else [broker(one) for one in brokers]
    state, rejects = ingesting.run(describe=[file], brokers=given, **options)
    assert rejects == []
    assert same(state, import_describe(DESCRIBE.splitlines(), given, **options))
    assert ingesting.counts == {
        "in": 7, "taken": 7, "refused": 0, "partitions": 4, "topics": 2, "brokers": 3 if brokers else 2,
    }  # fmt: skip


def dump_of(nodes: dict[str, Any]) -> str:
    return "".join(
        f"{path}\t{data.decode()}\t{stat.version}\t{stat.czxid}\n" for path, (data, stat) in nodes.items()
    )


def test_zookeeper_as_the_driver_reads_it(ingesting: Ingesting) -> None:
    nodes = some_znodes()
    passed_over = "/config/topics/t\t{}\t0\t1\n/brokers/topics/t/partitions\tnull\n\n/brokers/seqid\t\t0\t2\n"
    file = ingesting.file("zk.tsv.gz", dump_of(nodes) + passed_over)
    state, rejects = ingesting.run(zookeeper=[file])
    assert rejects == []
    assert same(state, ClusterState.from_zookeeper(FakeZooKeeper(nodes)))


@pytest.mark.parametrize("where", ["small", pytest.param("in tasks", marks=pytest.mark.long)])
def test_an_empty_file_and_half_characters(request: pytest.FixtureRequest, where: str) -> None:
    """JSON can escape half of a surrogate pair, which no text of Arrow has."""
    ingesting: Ingesting = request.getfixturevalue("ingesting" if where == "small" else "in_tasks")
    znodes = [
        r'/brokers/topics/t	{"partitions":{"0":[1],"\ud800":[1],"1":"\udfff"}}',
        r'/brokers/ids/1	{"endpoints":["P://h:1"],"listener_security_protocol_map":{"P":"\ud800"}}',
    ]
    _, rejects = ingesting.run(
        describe=[ingesting.file("empty.txt", ""), ingesting.file("topics.txt", "\n".join(GOOD))],
        zookeeper=[ingesting.file("zk.tsv", "\n".join(znodes)), ingesting.file("none.tsv.gz", "")],
        rows=[ingesting.file("none.jsonl", "")],
    )
    bad = "the topic is incomplete without zk.tsv line 1"
    assert sorted(rejects, key=repr) == sorted(
        [
            (1, "t", 0, bad),
            (1, "t", 1, "replicas is '\"\\udfff\"', not a list of broker ids"),
            (1, "t", None, bad),
            (1, "t", None, "partition is '\\ud800', not a number"),
            (2, None, None, "an endpoint has no security protocol of Kafka's"),
        ],
        key=repr,
    )
    texts = {row["text"] for row in ingesting.spark.read.parquet(str(ingesting.folder / "rejects")).collect()}
    assert {'/brokers/topics/t\t"\\ud800":[1]', '/brokers/topics/t\t"1":"\\udfff"'} < texts


@pytest.mark.long
def test_a_snapshot_is_unchanged(either: Ingesting) -> None:
    state = generate(GeneratorConfig(topics=7, partitions_per_topic=5, brokers=4, racks=2, offline_share=0.1))
    state.mark_topics_deleting(["topic-000001", "topic-000002"])
    state.set_deletion_in_progress(["topic-000002"])
    state.set_shutting_down([3])
    state.write(either.folder / "in")
    found, rejects = either.run(snapshots=[str(either.folder / "in")])
    assert rejects == []
    assert same(found, state)
    assert set(found.deletion_in_progress) == {"topic-000002"}
    assert set(found.shutting_down) == {3}


@pytest.mark.long
def test_inputs_that_complete_each_other(either: Ingesting) -> None:
    """The assignment from one tool, leaders from another, brokers from a third."""
    document = {
        "version": 1,
        "partitions": [
            {"topic": "t", "partition": p, "replicas": replicas, "log_dirs": ["any", "any"]}
            for p, replicas in enumerate([[1, 2], [2, 3]])
        ],
    }
    rows = [
        {"id": 1, "epoch": 9, "rack": "r", "endpoints": [
            {"listener": "IN", "security_protocol": "ssl", "host": "h", "port": 5}
        ]},
        {"id": 2}, {"id": 3, "rack": None, "endpoints": []},
        {"topic": "t", "partition": 1, "replicas": [2, 3], "leader": 2, "leader_epoch": 8, "isr": [2]},
        {"topic": "u", "partition": 0, "replicas": [4], "topic_id": "dVYtbxg8RRmPJBPeZs0tbw", "note": "?"},
    ]  # fmt: skip
    describe = "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1\n"
    state, rejects = either.run(
        reassignments=[either.file("plan.json", json.dumps(document, indent=2))],
        rows=[either.file("rows.jsonl", "\n".join(map(json.dumps, rows)))],
        describe=[either.file("topics.txt", describe)],
        cluster_id="c",
    )
    assert rejects == []
    columns = state.partitions
    names = [f"{state.topic_name(int(columns.topic_row[row]))}-{columns.partition[row]}" for row in range(3)]
    assert names == ["t-0", "t-1", "u-0"]
    assert columns.leader.tolist() == [1, 2, -1]
    # Without epochs: 0 with a leader, unknown without one.
    assert columns.leader_epoch.tolist() == [0, 8, -1]
    assert columns.partition_epoch.tolist() == [0, 0, -1]
    assert columns.isr.to_lists() == [[1], [2], []]
    assert columns.offline is not None
    assert columns.offline.to_lists() == [[], [], [4]]
    assert state.broker(1) == Broker(1, 9, (Endpoint("IN", SecurityProtocol.SSL, "h", 5),), "r")
    assert state.broker_ids.tolist() == [1, 2, 3]


def line(text: str) -> str:
    """``t 0 1 1,2 1``: topic, partition, leader, replicas, ISR."""
    topic, partition, leader, replicas, isr = text.split()
    return f"\tTopic: {topic}\tPartition: {partition}\tLeader: {leader}\tReplicas: {replicas}\tIsr: {isr}"


GOOD = [line("good 0 1 1,2 1,2"), line("good 1 2 2,1 2"), "Topic: good\tPartitionCount: 2"]
#: Files of ``TEXT => REASON``, the text as in a literal of bytes; no reason: the line is good.
BAD = Path(__file__).parent / "bad"


def cases(name: str) -> list[tuple[bytes, str]]:
    """(line, reason) of a file of bad lines."""
    found = []
    for text in (BAD / name).read_text().splitlines():
        raw, _, reason = text.rpartition(" => " if not text.endswith(" =>") else " =>")
        found.append((raw.encode().decode("unicode_escape").encode("latin-1"), reason))
    return found


def test_every_kind_of_bad_line(in_tasks: Ingesting) -> None:
    """One of each, with good ones between them; all in one file."""
    ingesting = in_tasks
    bad = cases("topics.txt")
    whole = b"\n\n".join(text for text, _ in bad) + b"\n"
    # Bad lines without a topic's other partitions beside them: nothing else is refused with them.
    file = ingesting.file("bad.txt", whole + b"\n" + "\n".join(GOOD).encode())
    state, rejects = ingesting.run(describe=[file], brokers=[broker(1), broker(2)])
    expected = {2 * i + 1: reason for i, (_, reason) in enumerate(bad)}
    assert {row: reason for row, _, _, reason in rejects} == expected
    assert len(rejects) == len(bad)
    assert ingesting.counts == {
        "in": 2 * len(bad) + 3, "taken": len(bad) + 3, "refused": len(bad),
        "partitions": 2, "topics": 1, "brokers": 2,
    }  # fmt: skip
    assert state.check() == []


def jsons(*rows: dict[str, Any]) -> str:
    return "\n".join(map(json.dumps, rows)) + "\n"


@pytest.mark.long
def test_every_kind_of_bad_row_of_the_other_inputs(either: Ingesting) -> None:
    state = ClusterState.empty(cluster_id="c", controller_epoch=3)
    state.set_brokers([broker(1), broker(2)])
    state.add_topic("kept", {0: [1, 2]}, leader=1, leader_epoch=2, isr=[1], controller_epoch=3)
    state.add_topic("ahead", {0: [1, 2]}, leader=1, leader_epoch=2, isr=[1], controller_epoch=9)
    state.add_topic("dead", {0: [1, 7]}, leader=1, leader_epoch=2, isr=[1])
    state.update(state.row("dead", 0), offline=[])
    state.write(either.folder / "in")
    rows, znodes = cases("rows.jsonl"), cases("znodes.tsv")
    plan = {
        "partitions": [{"topic": "p", "partition": 0, "replicas": [1]}, 5, {"topic": "q", "partition": 0}]
    }
    found, _ = either.run(
        snapshots=[str(either.folder / "in")],
        rows=[either.file("rows.jsonl", b"\n".join(text for text, _ in rows))],
        zookeeper=[either.file("zk.tsv", b"\n".join(text for text, _ in znodes))],
        reassignments=[
            either.file("plan.json", json.dumps(plan)),
            either.file("torn.json", json.dumps(plan)[:-9]),
        ],
    )
    by_file: dict[str, dict[int, set[str]]] = {}
    for row in either.spark.read.parquet(str(either.folder / "rejects")).collect():
        name = Path(row["file"]).name
        by_file.setdefault(name, {}).setdefault(row["row"], set()).add(either._plain(row["reason"]))
    assert by_file.pop("rows.jsonl") == {i: {reason} for i, (_, reason) in enumerate(rows, 1) if reason}
    assert by_file.pop("plan.json") == {1: {"not a JSON object"}, 2: {"no field replicas"}}
    assert by_file.pop("torn.json") == {0: {"not JSON of kafka-reassign-partitions (no list of partitions)"}}
    of_topics = {
        1: {
            "replicas is '\"x\"', not a list of broker ids",
            "partition is 'a', not a number",
            "the topic is incomplete without zk.tsv line 1",
        },
        9: {"refused with zk.tsv line 10", "the topic is incomplete without zk.tsv line 10"},
    }
    assert by_file.pop("zk.tsv") == of_topics | {
        i: {reason} for i, (_, reason) in enumerate(znodes, 1) if reason
    }
    (parquet,) = (name for name in by_file if name.endswith(".parquet"))
    assert by_file.pop(parquet) == {
        1: {"controller_epoch 9 is later than the cluster's, 3"},
        2: {"replica 7 is not online, and not among offline_replicas"},
    }
    assert by_file == {}
    columns = found.partitions
    names = [found.topic_name(row) for row in columns.topic_row.tolist()]
    assert names == ["kept", "p", "r0"]
    assert found.check() == []


IDS = ("dVYtbxg8RRmPJBPeZs0tbw", "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg")


class Described:
    """One run over repeated descriptions and incomplete topics. ``rejects``: ``file row`` -> reason."""

    def __init__(self, ingesting: Ingesting, *, whole_topics: bool) -> None:
        first = [
            line("same 0 1 1,2 1"),
            line("same 0 1 1,2 1"),
            line("other 0 1 1,2 1"),
            line("gap 0 1 1,2 1"),
            line("gap 2 1 1,2 1"),
            "Topic: cut\tPartitionCount: 2",
            line("cut 0 1 1,2 1"),
            line("last 0 1 1,2 1"),
            line("last 1 1 1,2 2"),
            f"Topic: ids\tTopicId: {IDS[0]}\tPartitionCount: 1",
            line("ids 0 1 1,2 1"),
            f"Topic: twin\tTopicId: {IDS[1]}\tPartitionCount: 1",
            line("twin 0 1 1,2 1"),
            line("described 0 1 1,2 1"),
            line("agreed 0 1 1,2 1"),
        ]
        second = [line("other 0 2 1,2 2"), line("same 0 1 1,2 1"), "Topic: cut\tPartitionCount: 3"]
        of_topics = [
            b"Topic: id\tTopicId: short\tPartitionCount: 1", line("id 0 1 1,2 1").encode(),
            b"Topic: utf\tPartitionCount: 2\tConfigs: x=\xff", line("utf 0 1 1,2 1").encode(),
            b"Topic: zero\tTopicId: AAAAAAAAAAAAAAAAAAAAAA\tPartitionCount: 1",
            line("zero 0 1 1,2 1").encode(),
            b"Topic: again\tPartitionCount: 1", line("again 0 1 1,2 1").encode(),
            b"Topic: again\tPartitionCount: 1",
        ]  # fmt: skip
        rows: list[dict[str, Any]] = [
            {"topic": "ids", "partition": 0, "replicas": [1, 2], "topic_id": IDS[2]},
            {"topic": "siamese", "partition": 0, "replicas": [1, 2], "topic_id": IDS[1]},
            {"topic": "described", "partition": 0, "replicas": [2, 1], "leader": 2, "isr": [2]},
            {"topic": "agreed", "partition": 0, "replicas": [1, 2], "leader_epoch": 6},
            {"id": 1},
            {"id": 1},
            {"id": 2, "epoch": 4},
            {"id": 2, "epoch": 5},
        ]
        self.whole_topics = whole_topics
        self.state, _ = ingesting.run(
            describe=[
                ingesting.file("a.txt", "\n".join(first)),
                ingesting.file("b.txt.gz", "\n".join(second)),
                ingesting.file("c.txt", b"\n".join(of_topics)),
            ],
            rows=[ingesting.file("rows.jsonl", jsons(*rows))],
            brokers=[broker(1), broker(2)],
            whole_topics=whole_topics,
        )
        self.rejects = {
            f"{Path(row['file']).name} {row['row']}": ingesting._plain(row["reason"])
            for row in ingesting.spark.read.parquet(str(ingesting.folder / "rejects")).collect()
        }


@pytest.fixture(
    scope="module",
    params=[
        (True, True),
        pytest.param((True, False), marks=pytest.mark.long),
        pytest.param((False, True), marks=pytest.mark.long),
        pytest.param((False, False), marks=pytest.mark.long),
    ],
    ids=lambda one: f"{'small' if one[0] else 'in tasks'}, {'whole topics' if one[1] else 'any partition'}",
)
def described(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Described:
    small, whole_topics = request.param
    with small_inputs(spark) if small else nullcontext():
        return Described(Ingesting(spark, tmp_path_factory.mktemp("described")), whole_topics=whole_topics)


def test_repeated_descriptions_and_incomplete_topics(described: Described) -> None:
    columns = described.state.partitions
    found = [
        f"{described.state.topic_name(int(columns.topic_row[row]))}-{columns.partition[row]}"
        for row in range(len(columns))
    ]
    if not described.whole_topics:
        assert found == ["again-0", "agreed-0", "gap-0", "gap-2", "last-0", "same-0"]
        return
    assert found == ["again-0", "agreed-0", "same-0"]
    assert columns.leader_epoch.tolist() == [0, 6, 0]
    two_ids = f"the topic has two ids, {IDS[2]} and {IDS[0]}"
    assert {place: reason for place, reason in described.rejects.items() if "c.txt" not in place} == {
        "a.txt 2": "the same as a.txt line 1",
        "b.txt.gz 2": "the same as a.txt line 1",
        "a.txt 3": "described differently in b.txt.gz line 1",
        "b.txt.gz 1": "described differently in a.txt line 3",
        "a.txt 4": "partition 1 of the topic is missing",
        "a.txt 5": "partition 1 of the topic is missing",
        "a.txt 6": "described differently in b.txt.gz line 3",
        # Which PartitionCount is right is not known.
        "a.txt 7": "the topic is incomplete without a.txt line 6",
        "b.txt.gz 3": "described differently in a.txt line 6",
        "a.txt 8": "the topic is incomplete without a.txt line 9",
        "a.txt 9": "the leader 1 is not in the ISR",
        "a.txt 10": two_ids,
        "a.txt 11": two_ids,
        "rows.jsonl 1": two_ids,
        "a.txt 12": "topic siamese has the same id",
        "a.txt 13": "topic siamese has the same id",
        "rows.jsonl 2": "topic twin has the same id",
        "a.txt 14": "leader, isr, replicas described differently in rows.jsonl line 3",
        "rows.jsonl 3": "leader, isr, replicas described differently in a.txt line 14",
        "rows.jsonl 6": "the same as rows.jsonl line 5",
        "rows.jsonl 7": "described differently in rows.jsonl line 8",
        "rows.jsonl 8": "described differently in rows.jsonl line 7",
    }


def test_partitions_are_refused_with_the_line_of_their_topic(described: Described) -> None:
    """They would have no topic id, and nothing would show that the topic has more of them."""
    assert {place: reason for place, reason in described.rejects.items() if "c.txt" in place} == {
        "c.txt 1": "'short' is not a topic id (22 base64url characters)",
        "c.txt 2": "the topic is incomplete without c.txt line 1",
        "c.txt 3": "not UTF-8",
        "c.txt 4": "the topic is incomplete without c.txt line 3",
        "c.txt 5": "'AAAAAAAAAAAAAAAAAAAAAA' is the id of no topic",
        "c.txt 6": "the topic is incomplete without c.txt line 5",
        "c.txt 9": "the same as c.txt line 7",
    }


@pytest.mark.long
def test_a_truncated_text(ingesting: Ingesting) -> None:
    whole = ingesting.file("topics.txt", DESCRIBE.rpartition("Topic:old")[0].rpartition("\tTopic")[0])
    with pytest.raises(PipelineError, match=r"no valid partition in 3 entries; see .*rejects"):
        ingesting.run(describe=[whole])
    reason = "the topic has PartitionCount 3, but 2 of its partitions are valid"
    assert {reject[3] for reject in ingesting.rejects()} == {reason}
    assert not (ingesting.folder / "out").exists()


@pytest.mark.long
def test_lost_entries_are_noticed(ingesting: Ingesting) -> None:
    from pyspark.sql.functions import lit

    from ctrlchan.pipeline import IngestConfig, ingest

    file = ingesting.file("topics.txt", DESCRIBE)
    with ingest(ingesting.spark, IngestConfig(describe=[file])) as found:
        fewer = replace(found, validated=found.validated.filter("about <> 'nothing'"))
        with pytest.raises(PipelineError, match="describe: 7 entries were read, 6 taken and 0 refused"):
            fewer.counts()
        fewer = replace(found, validated=found.validated.withColumn("sources", lit(2)))
        with pytest.raises(PipelineError, match="4 entries about partitions were taken, 8 are in partitions"):
            fewer.counts()


@pytest.mark.long
def test_inputs_of_two_clusters(ingesting: Ingesting) -> None:
    for name in ("a", "b"):
        state = generate(GeneratorConfig(topics=1, partitions_per_topic=1, brokers=3, cluster_id=name))
        state.write(ingesting.folder / name)
    inputs = [str(ingesting.folder / name) for name in ("a", "b")]
    with pytest.raises(PipelineError, match="inputs of several clusters: a, b"):
        ingesting.run(snapshots=inputs)


def test_no_input(ingesting: Ingesting) -> None:
    with pytest.raises(PipelineError, match="no input is given"):
        ingesting.run()
    with pytest.raises(PipelineError, match=r"missing\.txt"):
        ingesting.run(describe=[str(ingesting.folder / "missing.txt")])


@pytest.mark.parametrize(("snapshot", "rejects"), [("out", "out"), ("out", "out/rejects"), ("out/a", "out/")])
def test_rejects_in_the_folder_of_the_snapshot(tmp_path: Path, snapshot: str, rejects: str) -> None:
    """Before anything is written: of two folders, one would be in the way of the other."""
    from ctrlchan.pipeline import write_ingested

    found: Any = None
    with pytest.raises(PipelineError, match="the rejects need a folder apart"):
        write_ingested(found, tmp_path / snapshot, f"file://{tmp_path}/{rejects}", overwrite=True)
    assert list(tmp_path.iterdir()) == []


def words_of(folder: Path) -> list[object]:
    """The command, for a file with one bad line."""
    (folder / "topics.txt").write_text(DESCRIBE + "garbage\n")
    return [
        "ingest", folder / "out", "--describe", folder / "*.txt",
        "--brokers", "1=b1:9092,2=SSL://b2:9093,3=b3:1", "--json",
    ]  # fmt: skip


@pytest.mark.long
def test_the_command_with_too_many_rejects(command: Command, tmp_path: Path) -> None:
    ran = command(*words_of(tmp_path), "--max-rejects", "0")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "1 entries were refused, more than 0" in ran.stderr
    assert not (tmp_path / "out").exists()


def test_the_command(command: Command, tmp_path: Path) -> None:
    ran = command(*words_of(tmp_path), "--overwrite")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {
        "snapshot": str(tmp_path / "out"), "rejects": str(tmp_path / "out.rejects"),
        "in": 8, "taken": 7, "refused": 1, "partitions": 4, "topics": 2, "brokers": 3,
    }  # fmt: skip
    assert f"{tmp_path}/topics.txt 8: not a line of kafka-topics --describe: 'garbage'" in ran.stderr
    assert ClusterState.read(tmp_path / "out").broker(2).endpoints[0].host == "b2"
