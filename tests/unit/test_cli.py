"""The command line: exit status, one error line, no traceback."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer.main

from ctrlchan import Broker, ClusterState, EmbeddedCluster, Endpoint, SecurityProtocol
from ctrlchan.cli import main
from ctrlchan.cli.commands import app
from ctrlchan.interpreter import child_command

#: More than an int64 holds.
HUGE = "99999999999999999999"
ESCAPE = "\x1b[31m"


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ctrlchan", *arguments], capture_output=True, text=True, timeout=60, **options
    )


def shell(command: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """``ctrlchan "$@"`` with a shell's redirections, as ``command`` says."""
    program = f'ctrlchan() {{ "{sys.executable}" -m ctrlchan "$@"; }}; {command}'
    words = ["bash", "-c", program, "bash", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=60)


def failure(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """(exit status, the one error line) of a command that runs in this process."""
    with pytest.raises(SystemExit) as ended:
        main([str(one) for one in arguments])
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, lines
    assert isinstance(ended.value.code, int)
    return ended.value.code, lines[0]


def make_snapshot(folder: Path, brokers: Sequence[Broker]) -> Path:
    """A snapshot of one topic whose two partitions are led in leader epoch 1."""
    state = ClusterState.empty(controller_id=3, controller_epoch=7)
    state.set_brokers(brokers)
    ids = [broker.id for broker in brokers]
    state.add_topic("topic", {0: ids, 1: ids}, leader=ids[0], leader_epoch=1, isr=ids)
    state.write(folder)
    return folder


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """A snapshot whose one broker listens nowhere."""
    endpoint = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", 1)
    return make_snapshot(tmp_path / "snapshot", [Broker(1, 5, (endpoint,))])


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(count=2, log_dir=None) as brokers:
        yield brokers


def test_an_error_is_one_line_and_status_1(tmp_path: Path) -> None:
    ran = run("push", str(tmp_path / "nothing-here"))
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert line.startswith("error: ")
    assert "nothing-here" in line


@pytest.mark.parametrize("arguments", [["push"], ["no-such-command"], ["push", "x", "--rounds", "zero"]])
def test_wrong_usage_is_status_2(arguments: list[str]) -> None:
    ran = run(*arguments)
    assert ran.returncode == 2
    assert "Traceback" not in ran.stderr
    (line,) = ran.stderr.splitlines()
    assert line.startswith("error: ")


def test_no_arguments_print_the_help() -> None:
    ran = run()
    assert "Usage: " in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr


def test_version() -> None:
    ran = run("--version")
    assert ran.returncode == 0
    assert ran.stdout.startswith("ctrlchan ")


def test_help_names_every_subcommand() -> None:
    ran = run("--help")
    assert ran.returncode == 0
    for name in ("snapshot", "push", "broker", "controller", "cluster", "log", "demo", "decode", "encode"):
        assert name in ran.stdout


def commands() -> Iterator[tuple[str, Any]]:
    """(words, command) of every command that is not the pipeline's."""
    root: Any = typer.main.get_command(app)
    context: Any = None  # a lazy group needs none for finding its commands
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        if name != "pipeline":
            inner = getattr(command, "commands", {"": command})
            yield from ((f"{name} {word}".strip(), one) for word, one in inner.items())


@pytest.mark.parametrize(
    ("name", "command"), list(commands()), ids=lambda one: one if isinstance(one, str) else ""
)
def test_help_names_the_type_of_a_value_in_words(name: str, command: Any) -> None:
    for option in command.params:
        if option.name != "help" and not getattr(option, "is_flag", False):
            assert option.metavar, f"{name}: {option.name} has no metavar"
            assert option.metavar not in ("TEXT", "INTEGER", "FLOAT", "PATH")


def test_verbose_is_an_option_of_the_root_alone() -> None:
    for name, command in commands():
        assert "verbose" not in [option.name for option in command.params], name


# -- hostile options


@pytest.mark.parametrize(
    "arguments",
    [
        ["broker", "--zookeeper", ""],
        ["broker", "--zookeeper", ":::::"],
        ["broker", "--zookeeper", "not a host:2181"],
        ["broker", "--zookeeper", "host:99999"],
        ["broker", "--host", ""],
        ["broker", "--host", "not a host"],
        ["broker", "--host", "two\nlines"],
        ["broker", "--host", "no-such-host.invalid"],
        ["broker", "--epoch", HUGE],
        ["broker", "--id", HUGE],
        ["broker", "--count", "1000000000"],
        ["broker", "--first-id", "2147483647", "--count", "2"],
        ["broker", "--max-request-bytes", HUGE],
        ["broker", "--response-delay", "nan"],
        ["broker", "--response-delay", "inf"],
        ["broker", "--listener", ""],
        ["snapshot", "import", "x", "--zookeeper", ""],
        ["snapshot", "import", "x", "--zookeeper", ":::::"],
        ["snapshot", "import", "x", "--zookeeper", "h:1", "--timeout", "inf"],
        ["snapshot", "import", "x", "--zookeeper", "h:1", "--timeout", "nan"],
        ["snapshot", "import", "x", "--describe", ""],
        ["snapshot", "import", "x", "--describe", "/dev/null", "--controller-epoch", HUGE],
        ["snapshot", "import", "x", "--describe", "/dev/null", "--controller-id", HUGE],
        ["snapshot", "import", "x", "--describe", "/dev/null", "--brokers", "9999999999=h:1"],
        ["snapshot", "import", "x", "--describe", "/dev/null", "--brokers", "1=two words:1"],
        ["snapshot", "dump", "--zookeeper", "", "--timeout", "1"],
        ["snapshot", "generate", "x", "--controller-epoch", HUGE],
        ["snapshot", "generate", "x", "--controller-id", HUGE],
        ["snapshot", "generate", "x", "--topics", HUGE],
        ["snapshot", "generate", "x", "--partitions", HUGE],
        ["snapshot", "generate", "x", "--brokers", HUGE],
        ["snapshot", "generate", "x", "--replication", HUGE],
        ["snapshot", "generate", "x", "--racks", HUGE],
        ["snapshot", "generate", "x", "--offline", "nan"],
        ["snapshot", "generate", "x", "--host", ""],
        ["snapshot", "generate", "x", "--host", "two words"],
        ["snapshot", "generate", "x", "--address", "two words:9092"],
        ["snapshot", "generate", ""],
        ["snapshot", "show", ""],
        ["push", ""],
        ["push", "x", "--timeout", "nan"],
        ["push", "x", "--rounds", HUGE],
        ["push", "x", "--controller-id", HUGE],
        ["push", "x", "--controller-epoch", HUGE],
        ["push", "x", "--controller-epoch", "-5"],
        ["push", "x", "--senders", "²"],
        ["push", "x", "--senders", ""],
        ["push", "x", "--listener", ""],
        ["push", "x", "--config", ""],
        ["push", "x", "--config", "/"],
        ["controller", "--zookeeper", ""],
        ["controller", "--zookeeper", "h:1", "--id", HUGE],
        ["controller", "--zookeeper", "h:1", "--id", "1", "--listen", ""],
        ["controller", "--zookeeper", "h:1", "--id", "1", "--listen", "two words:1"],
        ["controller", "--zookeeper", "h:1", "--id", "1", "--listen", "h:99999"],
        ["controller", "--zookeeper", "h:1", "--id", "1", "--listen", "h:1", "--listener", ""],
        ["controller", "--config", ""],
        ["controller", "--config", "/"],
        ["controller", "status", ""],
        ["controller", "status", "two words"],
        ["controller", "status", "h:port"],
        ["cluster", "--zookeeper", ""],
        ["cluster", "--brokers", HUGE],
        ["cluster", "--id", HUGE],
        ["cluster", "--session-timeout", "inf"],
        ["cluster", "--session-timeout", "nan"],
        ["demo", "--topics", "1000000000000"],
        ["demo", "--brokers", "1000000000"],
        ["demo", "--sample", HUGE, "--topics", HUGE],
        ["pipeline", "check", "--timeout", "nan"],
        ["pipeline", "monitor", "x", "--for", "nan"],
        ["decode", "/"],
        ["decode", "no-such-file"],
        ["encode", ""],
    ],
    ids=" ".join,
)
def test_a_value_that_cannot_be_is_one_error_line(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _ = failure(capfd, *arguments)
    assert status in (1, 2)
    assert list(tmp_path.iterdir()) == []


def test_control_characters_are_escaped_in_errors(capfd: pytest.CaptureFixture[str], snapshot: Path) -> None:
    for arguments in (
        ["push", f"a{ESCAPE}\nb"],
        ["push", snapshot, "--listener", f"L{ESCAPE}"],
        ["push", snapshot, "--senders", ESCAPE],
        ["snapshot", "show", snapshot, "--topic", f"t{ESCAPE}"],
        ["broker", "--zookeeper", f"h{ESCAPE}:1"],
        [f"no-command{ESCAPE}"],
    ):
        _, line = failure(capfd, *arguments)
        assert "\\x1b" in line
        assert line.isprintable()


def test_control_characters_of_a_snapshot_are_escaped(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    endpoint = Endpoint(f"L{ESCAPE}", SecurityProtocol.PLAINTEXT, f"h{ESCAPE}", 1)
    folder = make_snapshot(tmp_path / f"s{ESCAPE}", [Broker(1, 5, (endpoint,), f"r{ESCAPE}")])
    ClusterState.read(folder)
    with pytest.raises(SystemExit):
        main(["snapshot", "show", str(folder)])
    assert "\x1b[31m" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("name", ["[/nothing]", "[red]"])
def test_brackets_in_a_path_are_no_markup(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, cluster: EmbeddedCluster, name: str
) -> None:
    folder = make_snapshot(tmp_path / name.replace("/", "\\"), cluster.brokers)
    with pytest.raises(SystemExit) as ended:
        main(["push", str(folder)])
    assert ended.value.code == 0
    from ctrlchan.cli.progress import step

    with step(name):
        pass
    assert "Traceback" not in capfd.readouterr().err


# -- push


def test_options_are_checked_before_the_snapshot_is_read(
    capfd: pytest.CaptureFixture[str], snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reading(path: object) -> ClusterState:
        raise AssertionError("the snapshot is read")

    monkeypatch.setattr(ClusterState, "read", reading)
    properties = tmp_path / "server.properties"
    properties.write_text("inter.broker.protocol.version=nonsense\n")
    for options in (
        ["--ibp", "9"],
        ["--senders", "0"],
        ["--config", str(properties)],
        ["--journal", "/dev/null/journal"],
    ):
        status, _ = failure(capfd, "push", snapshot, *options)
        assert status in (1, 2)


def test_a_properties_file_without_a_known_key_is_an_error(
    capfd: pytest.CaptureFixture[str], snapshot: Path, tmp_path: Path
) -> None:
    for text in ("", "# nothing\n", "log.dirs=/var/lib/kafka\nnum.partitions=3\n", "\x00\x01binary"):
        properties = tmp_path / "server.properties"
        properties.write_text(text)
        status, line = failure(capfd, "push", snapshot, "--config", properties)
        assert status == 1
        assert line == f"error: {properties}: no setting of a channel is in it (is this a server.properties?)"


def test_a_failed_push_ends_with_an_error_line(snapshot: Path) -> None:
    for options in ([], ["--json"]):
        ran = run("push", str(snapshot), "--timeout", "0.2", *options)
        assert ran.returncode == 1
        assert ran.stderr.splitlines()[-1] == "error: 1 of 1 brokers did not acknowledge: 1"


def test_a_push_asks_the_brokers_for_their_versions(tmp_path: Path, cluster: EmbeddedCluster) -> None:
    """Every version of a negotiated request is one that the broker has: an old IBP alone would say no."""
    folder = make_snapshot(tmp_path / "snapshot", cluster.brokers)
    ran = run("push", str(folder), "--negotiate", "--json")
    assert ran.returncode == 0, ran.stderr


def test_a_push_names_brokers_without_the_listener_and_goes_on(
    tmp_path: Path, cluster: EmbeddedCluster
) -> None:
    inside = Endpoint("INSIDE", SecurityProtocol.SSL, "127.0.0.1", 1)
    reason = "broker 9 has no endpoint for listener PLAINTEXT (it has: INSIDE)"
    folder = make_snapshot(tmp_path / "some", [*cluster.brokers, Broker(9, 5, (inside,))])
    ran = run("push", str(folder), "--json")
    assert ran.returncode == 1
    assert ran.stderr.splitlines() == [
        f"warning: {reason}",
        f"error: 1 of {len(cluster.brokers) + 1} brokers did not acknowledge: 9",
    ]
    outcomes = {one["broker"]: (one["outcome"], one["error"]) for one in json.loads(ran.stdout)["outcomes"]}
    assert outcomes.pop(9) == ("broker gone", reason)
    assert {outcome for outcome, _ in outcomes.values()} == {"acknowledged"}


def test_a_push_ends_when_no_broker_has_the_listener(tmp_path: Path, cluster: EmbeddedCluster) -> None:
    folder = make_snapshot(tmp_path / "all", cluster.brokers)
    ran = run("push", str(folder), "--listener", "NOWHERE")
    assert ran.returncode == 1
    count, first = len(cluster.brokers), cluster.brokers[0].id
    assert ran.stderr.splitlines()[-1] == (
        f"error: none of {count} brokers can be connected to: broker {first} has no endpoint for listener "
        "NOWHERE (it has: PLAINTEXT)"
    )


@pytest.mark.parametrize(
    ("servers", "reasons"),
    [
        ("127.0.0.1:1", "127.0.0.1:1: Connection refused"),
        ("no-such-host.invalid:2181/kafka", "no-such-host.invalid:2181: "),
        ("127.0.0.1:1,127.0.0.1:2", "127.0.0.1:1: Connection refused; 127.0.0.1:2: Connection refused"),
    ],
)
@pytest.mark.parametrize("command", ["import", "dump"])
def test_a_zookeeper_that_cannot_be_reached_is_an_error_at_once(
    tmp_path: Path, command: str, servers: str, reasons: str
) -> None:
    """Not after the time limit, which is longer than this test waits."""
    folder = [str(tmp_path / "snapshot")] if command == "import" else []
    ran = run("snapshot", command, *folder, "--zookeeper", servers, "--timeout", "3600")
    assert ran.returncode == 1
    [line] = ran.stderr.splitlines()
    assert line.startswith(f"error: zookeeper {servers}: {reasons}")
    assert "Connection time-out" not in line


UNKNOWN_EPOCHS = "warning: the snapshot has no epochs"


def test_a_push_of_unknown_epochs_warns_first(tmp_path: Path, cluster: EmbeddedCluster) -> None:
    text = "Topic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2\n"
    addresses = ",".join(f"{one.id}=127.0.0.1:{one.endpoints[0].port}" for one in cluster.brokers)
    folder = str(tmp_path / "described")
    options = ("--describe", "-", "--brokers", addresses, "--controller-epoch", "7")
    imported = run("snapshot", "import", folder, *options, input=text)
    assert imported.returncode == 0, imported.stderr
    # Other tests have pushed with another controller id.
    ran = run("push", folder, "--take-over")
    assert ran.returncode == 0
    assert UNKNOWN_EPOCHS in ran.stderr
    known = make_snapshot(tmp_path / "known", [*cluster.brokers])
    assert UNKNOWN_EPOCHS not in run("push", str(known)).stderr


# -- demo


def test_the_demo_looks_for_its_client_before_it_begins(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kafka", None)
    monkeypatch.setattr("ctrlchan.launch.processes.BrokerProcesses", None)
    status, line = failure(capfd, "demo")
    assert status == 1
    assert "pip install 'ctrlchan[demo]'" in line


# -- standard streams


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_a_push_without_standard_streams(tmp_path: Path, cluster: EmbeddedCluster, closed: str) -> None:
    folder = make_snapshot(tmp_path / "snapshot", cluster.brokers)
    ran = shell(f'ctrlchan push "$@" {closed}', folder)
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    "command",
    [
        "ctrlchan push {snapshot} | head -c 1",
        "ctrlchan snapshot show {snapshot} | head -c 0",
        "ctrlchan snapshot show {snapshot} --json | true",
        "ctrlchan decode <&-",
        "ctrlchan snapshot import {snapshot}-2 --describe - <&-",
        "ctrlchan snapshot show {snapshot} >/dev/full",
        "ctrlchan snapshot show {snapshot} --json >/dev/full",
    ],
)
def test_closed_and_full_streams_leave_no_traceback(
    tmp_path: Path, cluster: EmbeddedCluster, command: str
) -> None:
    folder = make_snapshot(tmp_path / "snapshot", cluster.brokers)
    ran = shell(command.format(snapshot=folder))
    assert "Traceback" not in ran.stderr
    assert "Exception ignored" not in ran.stderr


# -- Ctrl-C


@pytest.mark.parametrize(
    "module", ["typer", "ctrlchan.errors", "ctrlchan.cli.push", "ctrlchan.channel", "pyarrow.parquet"]
)
def test_ctrl_c_during_start_up_is_status_130_without_a_traceback(snapshot: Path, module: str) -> None:
    code = f"""
import signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.argv[0] = "ctrlchan"
from ctrlchan.cli import main
main()
"""
    ran = subprocess.run(
        [sys.executable, "-c", code, "push", str(snapshot), "--timeout", "1"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 130, ran.stderr
    assert ran.stderr == ""


def test_ctrl_c_that_a_library_turns_into_another_error_is_status_130(snapshot: Path) -> None:
    code = """
import signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "pyarrow.parquet":
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                raise AttributeError("partially initialized module")
sys.meta_path.insert(0, Interrupt())
from ctrlchan.cli import main
main()
"""
    ran = subprocess.run(
        [sys.executable, "-c", code, "push", str(snapshot)], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 130, ran.stderr
    assert ran.stderr == ""


def test_a_child_process_ignores_ctrl_c_from_its_first_import_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "probe.py").write_text(
        "import signal\nignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN\n"
        "def main(): print(ignored)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    ran = subprocess.run(child_command("probe"), capture_output=True, text=True, timeout=60)
    assert ran.stdout == "True\n"


def test_memory_that_is_missing_is_one_error_line(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, snapshot: Path
) -> None:
    def reading(path: object) -> ClusterState:
        raise MemoryError("Unable to allocate 1 TiB")

    monkeypatch.setattr(ClusterState, "read", reading)
    assert failure(capfd, "snapshot", "show", snapshot) == (
        1,
        "error: not enough memory: Unable to allocate 1 TiB",
    )


def test_the_log_goes_to_standard_error(tmp_path: Path) -> None:
    ran = run("-v", "push", str(tmp_path))
    assert ran.returncode == 1
    assert re.search(r"^error: ", ran.stderr, re.MULTILINE)


def test_the_end_of_a_command_does_not_look_for_cycles() -> None:
    """That takes as long as all the rest of an end."""
    program = (
        "import atexit, gc\nfrom ctrlchan.cli import main\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0))\nmain(['--version'])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.stdout.splitlines()[-1] == "True"
