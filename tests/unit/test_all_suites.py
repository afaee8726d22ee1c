"""``python -m tests``: suites side by side, their results and the exit status."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import __main__ as all_suites


def test_a_suite_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    suites = {}
    for name, value in (("good", "True"), ("bad", "False")):
        file = tmp_path / f"test_{name}.py"
        file.write_text(f"def test_{name}():\n    assert {value}\n")
        suites[name] = [str(file)]
    monkeypatch.setattr(all_suites, "SUITES", suites)
    monkeypatch.setattr(all_suites, "BEFORE", {"good": "this"})
    monkeypatch.setattr(sys, "argv", ["tests", "-p", "no:cacheprovider"])
    assert all_suites.main() == 1
    printed = capfd.readouterr().out
    assert "1 passed" in printed
    assert "1 failed" in printed
    assert "all suites: good passed in" in printed
    assert ", bad FAILED in" in printed
