"""The command's manners: exit status, one error line, no traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ctrlchan", *arguments], capture_output=True, text=True, timeout=60
    )


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


def test_version() -> None:
    ran = run("--version")
    assert ran.returncode == 0
    assert ran.stdout.startswith("ctrlchan ")


def test_help_names_every_subcommand() -> None:
    ran = run("--help")
    assert ran.returncode == 0
    for name in ("snapshot", "push", "broker", "demo", "decode", "encode"):
        assert name in ran.stdout
