"""``python -m bench``: runs the suites, each in a process of its own, and writes ``bench/RESULTS.md``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from bench import report

_HERE: Final = Path(__file__).parent
_RAW: Final = _HERE.parent / "build" / "bench"
_SUITES: Final = ("codec", "channel")


def main() -> None:
    _RAW.mkdir(parents=True, exist_ok=True)
    for suite in _SUITES:
        json = _RAW / f"{suite}.json"
        command = [
            sys.executable,
            "-m",
            "pytest",
            str(_HERE / f"test_{suite}.py"),
            f"--benchmark-json={json}",
        ]
        subprocess.run(command, cwd=_HERE.parent, check=True)
    report.main([str(_RAW / f"{suite}.json") for suite in _SUITES])


if __name__ == "__main__":
    main()
