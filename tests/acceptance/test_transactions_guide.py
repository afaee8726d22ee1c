"""The guide about transactions: its example, as a reader runs it."""

from __future__ import annotations

from pathlib import Path

from tests.documented import ROOT, Reader, shown_by


def test_the_example_of_the_guide(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    (example, command) = shown_by(ROOT / "docs" / "transactions.md")
    reader.write(example)
    ran = reader.run(command)
    assert ran.returncode == 0, (ran.stdout, ran.stderr)
    assert "2 passed" in ran.stdout
