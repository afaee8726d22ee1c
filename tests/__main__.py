"""Runs all tests: ``python -m tests``. The suites run side by side, as most of their time is waiting.

Lines about progress are printed as they come; the failures and the summary of a suite when it ends. The exit
status is 0 if every suite succeeded.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from typing import Final

#: Suites of about the same duration. Each uses its own rigs, and one process for all its tests.
SUITES: Final = {
    "processes": ["tests/acceptance", "tests/fault", "tests/kafka"],
    "spark": ["tests/spark"],
    "unit": ["tests/unit", "tests/conformance"],
}
_PRINTING: Final = threading.Lock()


def main() -> int:
    """Run the suites with the arguments of this process; return the exit status."""
    begin = time.monotonic()
    suites = [_Suite(name, [*folders, *sys.argv[1:]]) for name, folders in SUITES.items()]

    def end(*_: object) -> None:
        for suite in suites:
            suite.process.terminate()

    signal.signal(signal.SIGTERM, end)
    for suite in suites:
        suite.wait()
    results = ", ".join(f"{suite.name} {'passed' if suite.status == 0 else 'FAILED'}" for suite in suites)
    print(f"all suites: {results}; {(time.monotonic() - begin) / 60:.1f} minutes")
    return max(abs(suite.status) for suite in suites)


class _Suite:
    """One run of pytest, and the thread that prints its output."""

    def __init__(self, name: str, arguments: list[str]) -> None:
        self.name = name
        self.status = 1
        command = [sys.executable, "-u", "-m", "pytest", "--color=no", "--durations=12", *arguments]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        self._reader = threading.Thread(target=self._read, name=name)
        self._reader.start()

    def wait(self) -> None:
        """Wait until the suite has ended and its output is printed."""
        while self._reader.is_alive():
            # A terminal that interrupts this process interrupts the suites too. They end by themselves.
            with contextlib.suppress(KeyboardInterrupt):
                self._reader.join()

    def _read(self) -> None:
        assert self.process.stdout is not None
        held: list[str] = []
        results = False
        for line in self.process.stdout:
            if line.startswith("tests/") and not results:
                with _PRINTING:
                    print(line, end="", flush=True)
            else:
                # What follows the progress begins with a line of "=": failures, warnings, the summary.
                results = results or (line.startswith("===") and "test session starts" not in line)
                held.append(line)
        self.status = self.process.wait()
        with _PRINTING:
            print(f"\n----- suite {self.name}", "".join(held), sep="\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
