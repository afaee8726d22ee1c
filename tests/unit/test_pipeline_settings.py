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

from ctrlchan.cli.pipeline.options import with_options
from ctrlchan.errors import ConfigError
from ctrlchan.pipeline.settings import Setting, check_settings


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
        folder=tmp_path,
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
        (("x", "--folder", __file__), "is a file"),
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


def test_options_and_help_need_no_spark() -> None:
    code = "import sys, ctrlchan.cli.pipeline\nprint({'pyspark', 'numpy'} & sys.modules.keys())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "set()\n"
