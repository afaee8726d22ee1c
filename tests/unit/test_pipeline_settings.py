"""Settings of jobs: one declaration gives the check of a value and the option of the command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from ctrlchan.cli.pipeline import app
from ctrlchan.cli.pipeline.options import with_options
from ctrlchan.errors import ConfigError, CtrlchanError
from ctrlchan.journal import Journal, journal_files
from ctrlchan.pipeline.settings import Setting, check_settings
from ctrlchan.state import ClusterState


def _pair(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not number.isdigit():
        raise ValueError(f"{text!r} is not NAME=NUMBER")
    return name, int(number)


@dataclass(frozen=True, kw_only=True)
class Logs:
    paths: Annotated[Sequence[str], Setting("Files.", argument=True)]
    topics: Annotated[Sequence[str], Setting("Topics.", names=("--topic",))] = ()


@dataclass(frozen=True, kw_only=True)
class Config:
    logs: Annotated[Logs, Setting(without=("topics",))]
    folder: Annotated[str | Path | None, Setting("A folder.", value="FOLDER")] = None
    tasks: Annotated[int | None, Setting("Tasks.", minimum=1, default="4 a core")] = None
    names: Annotated[Sequence[str], Setting("Names.", names=("--name",))] = ("a", "b")
    numbers: Annotated[
        Sequence[int],
        Setting("0,1,...", repeated=False, parse=lambda text: tuple(map(int, text.split(",")))),
    ] = ()
    pairs: Annotated[Mapping[str, int], Setting("Pairs.", value="NAME=NUMBER", parse=_pair)] = field(
        default_factory=dict
    )
    fast: Annotated[bool, Setting("Fast.")] = False
    internal: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_settings(self)


def run(*arguments: str) -> tuple[Config | None, str]:
    """Run a command with these arguments; return its configuration and what it printed."""
    seen: list[Config] = []

    @with_options
    def command(*, config: Config) -> None:
        seen.append(config)

    app = typer.Typer(rich_markup_mode=None)
    app.command()(command)
    ran = CliRunner().invoke(app, arguments)
    return (seen[0] if seen else None), ran.output


def test_what_is_not_given_keeps_its_default() -> None:
    config, _ = run("x.log")
    assert config == Config(logs=Logs(paths=("x.log",)))


def test_each_kind_of_value(tmp_path: Path) -> None:
    config, _ = run(
        *("x.log", "y.log", "--folder", str(tmp_path), "--tasks", "3", "--name", "c", "--name", "d"),
        *("--numbers", "1,2", "--pairs", "p=1", "--pairs", "q=2", "--fast"),
    )
    assert config == Config(
        logs=Logs(paths=("x.log", "y.log")),
        folder=str(tmp_path),
        tasks=3,
        names=("c", "d"),
        numbers=(1, 2),
        pairs={"p": 1, "q": 2},
        fast=True,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", "--tasks", "0"), "--tasks"),
        (("x", "--pairs", "p"), "'p' is not NAME=NUMBER"),
        (("x", "--numbers", "1,z"), "--numbers"),
        (("x", "--topic", "t"), "No such option"),
        (("x", "--internal", "t"), "No such option"),
        ((), "Missing argument"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], message: str) -> None:
    config, output = run(*arguments)
    assert config is None
    assert message in output


def test_help_has_words_for_values() -> None:
    _, output = run("--help")
    for words in ("--folder FOLDER", "--tasks NUMBER", "(4 a core)", "--name TEXT", "--pairs NAME=NUMBER"):
        assert words in output


def test_a_program_gets_the_same_check() -> None:
    with pytest.raises(ConfigError, match="tasks: 0 is below 1"):
        Config(logs=Logs(paths=()), tasks=0)


#: Commands with paths for {there}, a folder, and {wrong}.
COMMANDS = (
    "diff {wrong} {there} out", "diff {there} {wrong} out", "frames {wrong} -o out",
    "dispatch {wrong} -j journal", "ingest out --snapshot {wrong}", "report {wrong} -o out",
    "report {there} -o out --snapshot {wrong}", "monitor {wrong}", "monitor {there} --snapshot {wrong}",
    "explain t-0 {there} --journal {wrong}",
)  # fmt: skip
OUTPUTS = (
    "diff {there} {there} {wrong}", "frames {there} -o {wrong}", "dispatch {there} -j {wrong}",
    "ingest {wrong} --snapshot {there}", "ingest out --snapshot {there} --rejects {wrong}",
    "report {there} -o {wrong}", "monitor {there} --checkpoint {wrong}", "merge-logs {there} -o {wrong}",
    "demo -o {wrong}",
)  # fmt: skip
#: Texts may be URLs.
TEXTS = ("ingest out --describe {wrong}", "merge-logs {wrong}", "explain t-0 {wrong}")


def _error(command: str, there: Path, wrong: str, monkeypatch: pytest.MonkeyPatch) -> Exception:
    """Return the error of a command, which must not start Spark."""
    monkeypatch.setattr("ctrlchan.pipeline.sessions.session", lambda *_, **__: pytest.fail("Spark started"))
    words = [word.format(there=there, wrong=wrong) for word in command.split()]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, CtrlchanError), result.output
    return result.exception


@pytest.mark.parametrize("command", [*COMMANDS, *OUTPUTS])
def test_a_url_of_no_storage_is_refused_before_spark_starts(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = _error(command, tmp_path, "ftp://host:1/folder", monkeypatch)
    assert "folder" in str(error)
    assert isinstance(error, ConfigError)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_a_folder_is_found_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    problem = _error("monitor {wrong}", tmp_path, str(tmp_path / "file"), monkeypatch)
    assert str(problem) == f"{tmp_path}/file: not a folder"


@pytest.mark.parametrize("command", [*COMMANDS, *TEXTS])
def test_a_missing_input_is_found_before_spark_starts(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = _error(command, tmp_path, str(tmp_path / "missing"), monkeypatch)
    assert str(problem) == f"{tmp_path}/missing: no such file or folder"


def test_a_program_cannot_use_them_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would become local folders of other names, which nobody reads."""
    monkeypatch.chdir(tmp_path)
    for use in (Journal, journal_files, ClusterState.read, ClusterState.empty().write):
        for url in ("ftp://bucket/x", "file://host/x", Path("s3://bucket/x")):
            with pytest.raises(ConfigError):
                use(url)
    assert list(tmp_path.iterdir()) == []


def test_options_and_help_need_no_spark() -> None:
    code = "import sys, ctrlchan.cli.pipeline\nprint({'pyspark', 'numpy'} & sys.modules.keys())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "set()\n"
