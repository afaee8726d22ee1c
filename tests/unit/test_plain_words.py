"""The project uses Kafka's and Python's words: names that only this project ever had do not come back."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Words of our own that were replaced, each as it stands in a sentence or inside an identifier.
REPLACED = (
    "bears?", "births?", "born", "bury", "buried", "lacks?", "lacking", "lanes?", "limbo", "nursery",
    "owed?", "owes",
    "parcels?", "sight", "standings?", "starv(?:ed|es?|ing)", "story", "tails?", "takers?", "tally",
    "told", "untold", "verdicts?",
)  # fmt: skip
PATTERN = re.compile(rf"(?<![a-z])(?:{'|'.join(REPLACED)})(?![a-z])", re.IGNORECASE)
#: Files that may name the old words: the history of the project, the list above, and Bokeh's script.
EXCEPT = {"CHANGELOG.md", "docs/benchmarks.html", "tests/unit/test_plain_words.py"}
#: A column of diffs of version 1 on disk, which are still read.
OLD_COLUMN = re.compile(r"""(?:"|``)told(?:"|``)""")
KINDS = {".h", ".html", ".java", ".md", ".pxd", ".pxi", ".py", ".pyi", ".pyx", ".sh", ".toml"}


def _files() -> list[str]:
    try:
        listed = subprocess.run(
            ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no git checkout, so it cannot be said which files belong to the project")
    return [name for name in listed if Path(name).suffix in KINDS or Path(name).name == "Makefile"]


def test_replaced_words_do_not_come_back() -> None:
    found = [
        f"{name}:{number}: {line.strip()}"
        for name in _files()
        if name not in EXCEPT
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
        # Camel case is split into its words.
        if PATTERN.search(re.sub(r"([a-z])([A-Z])", r"\1 \2", OLD_COLUMN.sub("", line)))
    ]
    assert not found, "\n".join(found)


def test_docstrings_say_return_x_or_none() -> None:
    riddle = re.compile(r'"""Return[^"\n]*?[;,.] None: ')
    assert riddle.search('"""Return the topic, None: there is none."""')
    found = [
        f"{name}: {match[0]}"
        for name in _files()
        if name.startswith("ctrlchan/")
        for match in riddle.finditer((ROOT / name).read_text())
    ]
    assert not found, "\n".join(found)
