"""What README says is true: its example runs, its commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
PYTHON_BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
COMMANDS = sorted(
    set(re.findall(r"^    ctrlchan ((?:snapshot |pipeline )?[a-z-]+)", README.read_text(), re.MULTILINE))
)


def test_the_example_runs(tmp_path: Path) -> None:
    (example,) = PYTHON_BLOCKS
    script = tmp_path / "example.py"
    script.write_text(example)
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    lines = ran.stdout.splitlines()
    assert [line.split(",")[0] for line in sorted(lines)] == [f"broker {b}: acknowledged" for b in (1, 2, 3)]


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_have_help(command: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "ctrlchan", *command.split(), "--help"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    assert "ctrlchan" in ran.stdout
