"""``ctrlchan snapshot``: options, output, errors."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ctrlchan.cli.snapshot import app
from ctrlchan.errors import ConfigError, CtrlchanError, SnapshotError
from ctrlchan.state import Broker, ClusterState, Endpoint, SecurityProtocol
from ctrlchan.state.brokers import brokers_list
from tests.unit.state.helpers import rows_of, small_state

TEXT = """\
Topic: t\tPartitionCount: 2\tReplicationFactor: 2\tConfigs:
\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2
\tTopic: t\tPartition: 1\tLeader: none\tReplicas: 2,3\tIsr:
"""


def run(*arguments: object, stdin: str | None = None) -> str:
    """Return the output of a command that succeeds."""
    result = CliRunner().invoke(app, [str(one) for one in arguments], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def misuse(*arguments: object) -> str:
    """Return the message about wrong usage, which ends with status 2."""
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 2, result.output
    return " ".join(result.output.replace("│", " ").split())


def error(kind: type[CtrlchanError], *arguments: object, stdin: str | None = None) -> str:
    """Return the error that ends the command; ``ctrlchan.cli.run`` prints it."""
    result = CliRunner().invoke(app, [str(one) for one in arguments], input=stdin)
    assert isinstance(result.exception, kind), (result.output, result.exception)
    return str(result.exception)


@pytest.mark.parametrize("command", ["generate", "import", "show"])
def test_help_has_examples(command: str) -> None:
    text = run(command, "--help")
    assert "Examples:" in text
    assert f"ctrlchan snapshot {command} cluster" in text


# -- generate


def test_generate(tmp_path: Path) -> None:
    out = tmp_path / "c"
    small = ("--topics", 4, "--partitions", 5, "--brokers", 6, "--seed", 3, "--racks", 2)
    assert run("generate", out, *small) == f"{out}: 4 topics, 20 partitions, 6 brokers\n"
    state = ClusterState.read(out)
    assert {len(row["replicas"]) for row in rows_of(state).values()} == {3}
    assert brokers_list(state.brokers)[5].endpoints == (
        Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", 19_097),
    )
    assert (state.controller_id, state.controller_epoch) == (0, 1)
    run("generate", tmp_path / "same", *small)
    assert rows_of(ClusterState.read(tmp_path / "same")) == rows_of(state)


def test_generate_with_everything(tmp_path: Path) -> None:
    out = tmp_path / "c"
    text = run(
        "generate", out, "--topics", 2, "--partitions", 50, "--brokers", 3, "--replication", 2,
        "--offline", 0.5, "--cluster-id", "mine", "--controller-id", 2, "--controller-epoch", 9,
        "--address", "sink:9000", "--listener", "in:PLAINTEXT", "--listener", "SSL", "--json",
    )  # fmt: skip
    printed = json.loads(text)
    assert printed["snapshot"] == str(out)
    assert (printed["partitions"], printed["offline_replicas"], printed["cluster_id"]) == (100, 100, "mine")
    state = ClusterState.read(out)
    endpoints = (
        Endpoint("IN", SecurityProtocol.PLAINTEXT, "sink", 9_000),
        Endpoint("SSL", SecurityProtocol.SSL, "sink", 9_001),
    )
    assert {broker.endpoints for broker in brokers_list(state.brokers)} == {endpoints}
    assert (state.controller_id, state.controller_epoch) == (2, 9)


def test_generate_does_not_overwrite_unless_asked_to(tmp_path: Path) -> None:
    out = tmp_path / "c"
    run("generate", out, "--topics", 1)
    assert error(SnapshotError, "generate", out).startswith(f"{out}: exists; to replace it ask for that")
    run("generate", out, "--topics", 2, "--overwrite")
    assert len(ClusterState.read(out).topics) == 2


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--listener", "IN"], "'IN' is no security protocol"),
        (["--address", "here"], "'here' is not HOST:PORT"),
        (["--topics", "0"], "Invalid value for '--topics'"),
        (["--offline", "1.5"], "Invalid value for '--offline'"),
        (["--wrong"], "No such option"),
    ],
)
def test_wrong_usage_of_generate(tmp_path: Path, options: list[str], reason: str) -> None:
    assert reason in misuse("generate", tmp_path / "c", *options)
    assert not (tmp_path / "c").exists()


def test_settings_that_do_not_go_together(tmp_path: Path) -> None:
    text = error(ConfigError, "generate", tmp_path / "c", "--brokers", 2)
    assert text == "replication: 3 is not in 1 .. 2 (brokers)"


# -- import


def test_import_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "topics.txt").write_text(TEXT)
    out = tmp_path / "c"
    options = ("--cluster-id", "mine", "--controller-id", 1, "--controller-epoch", 4)
    text = run("import", out, "--describe", tmp_path / "topics.txt", *options)
    assert text == f"{out}: 1 topics, 2 partitions, 2 brokers\n"
    state = ClusterState.read(out)
    assert (state.cluster_id, state.controller_id, state.controller_epoch) == ("mine", 1, 4)
    assert [row["offline"] for row in rows_of(state).values()] == [[], [3]]


def test_import_from_standard_input_with_brokers(tmp_path: Path) -> None:
    out = tmp_path / "c"
    brokers = "1=b1:9092,2=ssl://[::1]:9093"
    printed = json.loads(run("import", out, "--describe", "-", "--brokers", brokers, "--json", stdin=TEXT))
    assert printed["brokers"] == 2
    assert brokers_list(ClusterState.read(out).brokers) == [
        Broker(1, -1, (Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "b1", 9_092),)),
        Broker(2, -1, (Endpoint("SSL", SecurityProtocol.SSL, "::1", 9_093),)),
    ]


def test_a_text_that_cannot_be_imported(tmp_path: Path) -> None:
    out = tmp_path / "c"
    missing = tmp_path / "missing.txt"
    assert error(SnapshotError, "import", out, "--describe", missing).startswith(
        f"{missing}: cannot be read ("
    )
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert "cannot be read (" in error(SnapshotError, "import", out, "--describe", tmp_path / "binary")
    text = error(SnapshotError, "import", out, "--describe", "-", stdin="junk\n")
    assert text == "standard input: line 1: not a line of kafka-topics --describe: 'junk'"
    out.mkdir()
    assert "exists" in error(SnapshotError, "import", out, "--describe", missing)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "give one of --zookeeper and --describe"),
        (["--zookeeper", "h:1", "--describe", "-"], "give one of --zookeeper and --describe"),
        (["--zookeeper", "h:1", "--brokers", "1=h:1"], "--brokers goes with --describe"),
        (["--describe", "-", "--brokers", "h:1"], "--brokers: 'h:1' is not ID=[PROTOCOL://]HOST:PORT"),
        (["--describe", "-", "--brokers", "1=h"], "--brokers: 'h' is not HOST:PORT"),
        (["--describe", "-", "--brokers", "1=x://h:1"], "--brokers: 'x' is no security protocol"),
        (["--describe", "-", "--brokers", "1=h:1,1=h:2"], "--brokers: broker 1 is listed twice"),
    ],
)
def test_wrong_usage_of_import(tmp_path: Path, options: list[str], reason: str) -> None:
    assert reason in misuse("import", tmp_path / "c", *options)


def test_a_zookeeper_that_is_not_there(tmp_path: Path) -> None:
    text = error(SnapshotError, "import", tmp_path / "c", "--zookeeper", "127.0.0.1:1", "--timeout", 0.2)
    assert text == "zookeeper 127.0.0.1:1: 127.0.0.1:1: Connection refused"


# -- show


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    state = small_state()
    state.add_brokers([Broker(4, 9, (Endpoint("L", SecurityProtocol.SSL, "[b]", 5),), "[red]rack")])
    state.set_shutting_down([3])
    state.update(state.row("b", 0), leader_epoch=-1)
    state.mark_topics_deleting(["c"])
    state.write(tmp_path / "c")
    return tmp_path / "c"


def show(snapshot: Path, *options: object) -> list[str]:
    return [" ".join(line.replace("│", " ").split()) for line in run("show", snapshot, *options).splitlines()]


def test_show(snapshot: Path) -> None:
    lines = show(snapshot)
    assert lines[0] == "Cluster test, controller 1, epoch 5"
    for line in (
        "3 topics", "6 partitions", "11 replicas", "0 without a leader", "1 of unknown leadership",
        "0 under-replicated",
        "0 being reassigned", "3 offline replicas", "1 topics queued for deletion",
        "1 2 4 0 101 live - -", "2 2 4 0 102 live - -", "3 1 3 3 103 shutting down - -",
        "4 0 0 0 9 live [red]rack L://[b]:5",
        "violated leader-not-online: the leader's broker is not live, or is shutting down: 1 partitions"
        " (a-2)",
    ):  # fmt: skip
        assert line in lines, lines


def test_show_of_a_sound_and_of_a_dead_cluster(tmp_path: Path) -> None:
    state = small_state()
    state.write(tmp_path / "sound")
    assert show(tmp_path / "sound")[-1] == "No invariant is violated."
    state.set_brokers([])
    state.write(tmp_path / "dead")
    lines = show(tmp_path / "dead")
    assert "1 2 4 4 - dead - -" in lines
    assert lines[-1].endswith("6 partitions (a-0, a-1, a-2, ...)")


def test_show_as_json(snapshot: Path) -> None:
    printed = json.loads(run("show", snapshot, "--json"))
    state = ClusterState.read(snapshot)
    assert {name: printed[name] for name in state.describe()} == state.describe()
    assert printed["shutting_down"] == [3]
    assert [load["id"] for load in printed["broker_loads"]] == [1, 2, 3, 4]
    assert printed["broker_loads"][2] == {
        "id": 3, "live": True, "shutting_down": True, "epoch": 103, "rack": None, "endpoints": [],
        "leaders": 1, "replicas": 3, "offline_replicas": 3,
    }  # fmt: skip
    assert printed["violations"] == [
        {
            "rule": "leader-not-online",
            "reason": "the leader's broker is not live, or is shutting down",
            "partitions": 1,
            "examples": ["a-2"],
        }
    ]


def test_show_of_one_topic(snapshot: Path) -> None:
    lines = show(snapshot, "--topic", "b")
    assert lines[0] == "Topic b, id unknown"
    assert "0 unknown - - 3,2,1 3,2,1 3" in lines
    lines = show(snapshot, "--topic", "c")
    assert lines[0] == "Topic c, id Y2NjY2NjY2NjY2NjY2NjYw, queued for deletion"
    assert "1 2 0 0 2 2" in lines
    printed: dict[str, Any] = json.loads(run("show", snapshot, "--topic", "c", "--json"))
    assert printed["topic_id"] == "Y2NjY2NjY2NjY2NjY2NjYw"
    assert printed["queued_for_deletion"] is True
    assert printed["partitions"][1] == {
        "partition": 1, "leader": 2, "leader_epoch": 0, "partition_epoch": 0, "controller_epoch": 5,
        "recovery_state": 0, "replicas": [2], "isr": [2], "adding": [], "removing": [], "offline": [],
    }  # fmt: skip


def test_show_of_what_is_not_there(snapshot: Path, tmp_path: Path) -> None:
    assert error(SnapshotError, "show", snapshot, "--topic", "x") == f"{snapshot}: no topic 'x'"
    assert error(SnapshotError, "show", tmp_path / "no") == f"{tmp_path / 'no'}: no such folder"


def test_progress_is_shown_on_a_terminal_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    from ctrlchan.cli import snapshot as module

    screen, pipe = Terminal(), io.StringIO()
    for stream in (screen, pipe):
        monkeypatch.setattr("sys.stderr", stream)
        with module._progress("begin") as step:
            step("reading things", 3, 7)
    assert "reading things" in screen.getvalue()
    assert pipe.getvalue() == ""
