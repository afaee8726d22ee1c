"""Runs all tests: ``python -m tests``. Some suites run side by side, as much of their time is waiting.

Lines about progress are printed as they come; the failures and the summary of a suite when it ends. The exit
status is 0 if every suite succeeded.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from typing import Final

#: The longest first: they begin in this order. Each uses its own rigs, and one process for all its tests.
SUITES: Final = {
    "spark": ["tests/spark"],
    "acceptance": [
        "tests/acceptance",
        "tests/kafka",
        "tests/chaos",
        "--ignore=tests/acceptance/controller",
    ],
    "unit": [
        "tests/unit",
        "tests/simulation",
        "--ignore=tests/unit/broker",
        "--ignore=tests/unit/controller",
        "--ignore=tests/unit/zookeeper",
    ],
    "handovers": ["tests/acceptance/controller", "tests/transactions"],
    "broker": ["tests/unit/broker"],
    "faults": ["tests/fault", "tests/conformance"],
    "controller": ["tests/unit/controller", "tests/unit/zookeeper"],
}
#: So many suites run at a time. Each uses less than half a core: it waits for elections, for sessions of
#: ZooKeeper that expire, for processes that start and end.
SIDE_BY_SIDE: Final = 4
#: The module that runs before a suite: the others need no archive of Spark's classes, and wait for none.
BEFORE: Final = {"spark": "tests.spark.class_archive"}
_PRINTING: Final = threading.Lock()


def main() -> int:
    """Run the suites with the arguments of this process; return the exit status."""
    begin = time.monotonic()
    run = _Run()
    suites = [_Suite(run, name, [*words, *sys.argv[1:]]) for name, words in SUITES.items()]
    signal.signal(signal.SIGTERM, lambda *_: run.end(suites))
    for suite in suites:
        # A terminal that interrupts this process interrupts the suites too. They end by themselves.
        while suite.is_alive():
            try:
                suite.join()
            except KeyboardInterrupt:
                run.ended = True
    results = ", ".join(suite.result for suite in suites)
    print(f"all suites: {results}; {(time.monotonic() - begin) / 60:.1f} minutes")
    return max(abs(suite.status) for suite in suites)


class _Run:
    """What the suites share. ``ended``: none may begin any more."""

    def __init__(self) -> None:
        self.ended = False
        self.places = threading.Semaphore(SIDE_BY_SIDE)

    def end(self, suites: list[_Suite]) -> None:
        self.ended = True
        for suite in suites:
            if suite.process is not None:
                suite.process.terminate()


class _Suite(threading.Thread):
    """Runs pytest once when there is a place for it, and prints its output."""

    def __init__(self, run: _Run, name: str, arguments: list[str]) -> None:
        super().__init__(name=name)
        self.status = 1
        self.result = f"{name} not run"
        self.process: subprocess.Popen[str] | None = None
        self._run = run
        self._command = [sys.executable, "-u", "-m", "pytest", "--color=no", "--durations=25", *arguments]
        self.start()

    def run(self) -> None:
        with self._run.places:
            if self._run.ended:
                return
            begin = time.monotonic()
            if self.name in BEFORE:
                # The suite says what comes of an archive that could not be made.
                self._launched(sys.executable, "-m", BEFORE[self.name]).communicate()
                if self._run.ended:
                    return
            self._print(self._launched(*self._command))
            minutes = (time.monotonic() - begin) / 60
            self.result = f"{self.name} {'passed' if self.status == 0 else 'FAILED'} in {minutes:.1f}"

    def _launched(self, *command: str) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        return self.process

    def _print(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        held: list[str] = []
        results = False
        with process:
            for line in process.stdout:
                if line.startswith("tests/") and not results:
                    with _PRINTING:
                        print(line, end="", flush=True)
                else:
                    # What follows the progress begins with a line of "=": failures, warnings, the summary.
                    results = results or (line.startswith("===") and "test session starts" not in line)
                    held.append(line)
        self.status = process.returncode
        with _PRINTING:
            print(f"\n----- suite {self.name}", "".join(held), sep="\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
