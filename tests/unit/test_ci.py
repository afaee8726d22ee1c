"""``.ci/run`` does what a user does on a fresh machine, before anything else can have installed something."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
#: What ``.ci/run`` would install where it is missing.
PROGRAMS: Final = (
    "java",
    "javac",
    "mvn",
    "cc",
    "chromium",
    "chromedriver",
    "ip",
    "krb5-config",
    "npm",
    "valgrind",
)
#: Writes how it was called, whether its folder has an environment, and how many files its home has.
MAKE: Final = """#!/bin/sh
echo "$*,$([ -e .venv ] && echo used || echo fresh),$(ls -A "$HOME" | wc -l | tr -d ' ')" >> "$CALLS"
mkdir -p .venv build
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the script alone, and programs that do nothing."""
    programs, checkout = tmp_path / "programs", tmp_path / "checkout"
    programs.mkdir()
    for name in PROGRAMS:
        (programs / name).write_text("#!/bin/sh\n")
    (programs / "make").write_text(MAKE)
    for program in programs.iterdir():
        program.chmod(0o755)
    (checkout / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", checkout / ".ci" / "run")
    (checkout / ".gitignore").write_text("/.venv/\n/build/\n")
    git = ["git", "-C", str(checkout), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], check=True)
    return checkout


def calls_of_make(checkout: Path) -> list[list[str]]:
    """Run ``.ci/run``; return for each call of make: its words, the kind of its folder, the files at home."""
    home, calls = checkout.parent / "home", checkout.parent / "calls"
    home.mkdir(exist_ok=True)
    (home / ".profile").touch()
    programs = checkout.parent / "programs"
    subprocess.run(
        [checkout / ".ci" / "run"],
        env={"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(home), "CALLS": str(calls)},
        check=True,
        timeout=60,
    )
    return [line.split(",") for line in calls.read_text().splitlines()]


def test_the_commands_of_the_readme_come_first_with_an_empty_home(checkout: Path) -> None:
    calls = calls_of_make(checkout)
    assert calls[0] == ["run", "fresh", "0"]
    assert calls[1] == ["test", "used", "0"]
    assert [(words, files) for words, _, files in calls[2:]] == [
        ("check", "1"),
        ("docs", "1"),
        ("debug", "1"),
        ("instructions", "1"),
    ]


def test_a_checkout_that_was_used_is_cloned(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    assert calls_of_make(checkout)[0] == ["run", "fresh", "0"]


def test_the_readme_names_these_commands() -> None:
    commands = re.findall(r"^ {4}make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert commands[:2] == ["run", "test"]
