"""Tests of the script that compares the table of log messages with Kafka's source, on a source of our own."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]

_OLD = """
class Cook {
  stateChangeLogger.trace("Broker %d cooked soup %s for partition [%s,%d]"
    .format(id, soup, topic, partition))
}
"""
_NEW = """
class Cook(chatty: StateChangeLogger) {
  val stateLogger = stateChangeLogger.withControllerEpoch(context.epoch)
  stateLogger.info(s"Cooked soup $soup for partition ${tp(soup, "x")} " +
    s"with ${spoons.mkString("[", ",", "]")} spoons")
  val message = s"Broke spoon ${spoon.id} " +
    "of partition"
  chatty.error(message, problem)
  server.info("not of the state-change log")
}
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("log_wordings", ROOT / "tools" / "log_wordings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def kafka(tmp_path: Path) -> Path:
    """Return a checkout with a release 0.10.0 and a release 1.0."""

    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    source = tmp_path / "core/src/main/scala/kafka/Cook.scala"
    source.parent.mkdir(parents=True)
    git("init", "-q")
    for text, tag in ((_OLD, "0.10.0.1"), (_NEW, "1.0.0")):
        source.write_text(text)
        git("add", ".")
        git("commit", "-qm", tag)
        git("tag", tag)
    return tmp_path


def test_messages_are_read_from_a_source(script: ModuleType, kafka: Path) -> None:
    assert script.tags_of_releases(kafka) == {"0.10.0": ["0.10.0.1"], "1.0": ["1.0.0"]}
    assert script.messages(kafka, "0.10.0.1") == {"Cooked soup {} for partition [{},{}]"}
    assert script.messages(kafka, "1.0.0") == {
        "Cooked soup {} for partition {} with {} spoons",
        "Broke spoon {} of partition",
    }


def test_the_table_is_compared_and_corrected(
    script: ModuleType,
    kafka: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = tmp_path / "table"
    table.write_text(
        "cooked                 -               1.0    1.0    Cooked soup {word} for partition {tp}\n"
        "broke                  -               1.0    1.0    Broke spoon {count} of partition\n"
    )
    monkeypatch.setattr(script, "TABLE", table)

    def run(*options: str) -> int:
        monkeypatch.setattr("sys.argv", ["log_wordings", str(kafka), *options])
        return int(script.main())

    assert run() == 1
    shown = capsys.readouterr().out
    assert "error: Kafka 1.0 writes what no line describes: Cooked soup {} for partition {} with" in shown
    assert "error: cooked                 -               0.10.0 0.10.0" in shown
    table.write_text(
        table.read_text() + "cooked - ? ? Cooked soup {word} for partition {tp} with {any} spoons\n"
    )
    assert run("--write") == 0
    assert run() == 0
    assert [line.split()[2:4] for line in table.read_text().splitlines()] == [
        ["0.10.0", "0.10.0"],
        ["1.0", "1.0"],
        ["1.0", "1.0"],
    ]


def test_the_table_of_the_project_has_lines(script: ModuleType) -> None:
    rows = [line for line in script.TABLE.read_text().splitlines() if script._is_row(line)]
    assert len(rows) > 90
    assert all(script._pattern(row) for row in rows)
