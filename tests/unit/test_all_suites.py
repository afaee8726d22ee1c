"""``python -m tests``: suites side by side, their results and the exit status."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests import __main__ as all_suites


def test_a_suite_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    suites = {}
    own = os.getpriority(os.PRIO_PROCESS, 0)
    for name, niceness in (("good", own), ("bad", -99)):
        file = tmp_path / f"test_{name}.py"
        asserted = f"os.getpriority(os.PRIO_PROCESS, 0) == {niceness}"
        file.write_text(f"import os\n\ndef test_{name}():\n    assert {asserted}\n")
        suites[name] = [str(file)]
    monkeypatch.setattr(all_suites, "SUITES", suites)
    monkeypatch.setattr(all_suites, "BEFORE", {"good": "this"})
    monkeypatch.setattr(sys, "argv", ["tests", "-p", "no:cacheprovider"])
    assert all_suites.main() == 1
    printed = capfd.readouterr().out
    assert "1 passed" in printed
    assert "1 failed" in printed
    # Only the first suite, which is the longest, has this process's priority.
    assert f"assert {own + all_suites.NICENESS_OF_OTHERS} == -99" in printed
    assert "all suites: good passed in" in printed
    assert ", bad FAILED in" in printed
