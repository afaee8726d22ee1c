"""Runs Kafka's own tests: ``python -m tests.kafka_tests [CLASS[#METHOD,…] …]``.

Without arguments: all classes of ``expected.toml``. Exit status 0 when each method ended as the list says.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from tests.kafka.jars import KafkaUnavailableError
from tests.kafka_tests.build import class_path
from tests.kafka_tests.expectations import ClassExpectation, Expectations, Outcome, read
from tests.kafka_tests.runs import FOLDER, WHOLE_CLASS, ClassRun, fork_server, run_class
from tests.kafka_tests.table import proposal, table


def main() -> int:
    """Run the classes; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka_tests", description=__doc__)
    parser.add_argument("classes", nargs="*", metavar="CLASS[#METHOD,…]")
    parser.add_argument("--jobs", type=int, default=1, help="so many classes at a time")
    parser.add_argument("--cannot", action="store_true", help="run also the methods that cannot run")
    parser.add_argument("--once", action="store_true", help="do not repeat a method that failed unexpectedly")
    parser.add_argument("--propose", action="store_true", help="print the list as it would be after this run")
    arguments = parser.parse_args()
    expectations = read()
    chosen = _chosen(arguments.classes, expectations)
    try:
        path = class_path()
    except KafkaUnavailableError as error:
        sys.exit(f"error: {error}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    with fork_server() as socket, ThreadPoolExecutor(arguments.jobs) as pool:
        runner = _Runner(path, socket, expectations, repeat=not arguments.once, cannot=arguments.cannot)
        running = [pool.submit(runner.run, name, methods) for name, methods in chosen.items()]
        runs: list[ClassRun] = []
        try:
            for future in as_completed(running):
                runs.append(future.result())
                print(f"{len(runs)} of {len(running)} classes ended", flush=True)
        except KeyboardInterrupt:
            print("interrupted: the table has what ended before", flush=True)
            pool.shutdown(cancel_futures=True)
    if arguments.propose:
        print(proposal(runs, expectations))
    lines = [table(sorted(runs, key=lambda run: run.name), expectations)]
    for run in runs:
        differences = _expected(expectations, run.name).differences(run.outcomes, chosen[run.name])
        lines += [f"DIFFERS: {run.name}.{words}" for words in differences]
    ended_as_listed = len(lines) == 1 and len(runs) == len(running)
    report = "\n".join(lines)
    (FOLDER / "report").write_text(report + "\n")
    print(f"{report}\n{(time.monotonic() - begin) / 60:.0f} minutes; this table again: {FOLDER / 'report'}")
    return 0 if ended_as_listed else 1


class _Runner:
    """Runs classes in threads, and prints each invocation."""

    def __init__(
        self, path: str, socket: str, expectations: Expectations, *, repeat: bool, cannot: bool
    ) -> None:
        self._path = path
        self._socket = socket
        self._expectations = expectations
        self._repeat = repeat
        self._cannot = cannot
        self._printing = threading.Lock()

    def run(self, name: str, methods: frozenset[str]) -> ClassRun:
        expected = _expected(self._expectations, name)
        without = () if self._cannot else expected.cannot
        run = self._run(name, only=methods, without=without, folder=FOLDER / name)
        # Kafka's own build repeats a test that failed, too: some of them depend on time.
        wanted = expected.runs & methods if methods else expected.runs
        again = [method for method in sorted(wanted) if run.outcomes.get(method) is not Outcome.PASSED]
        if again and self._repeat:
            second = self._run(name, only=again, folder=FOLDER / f"{name}.again")
            run.outcomes.pop(WHOLE_CLASS, None)
            run.outcomes |= second.outcomes
            run.repeated = sum(outcome is Outcome.PASSED for outcome in second.outcomes.values())
        return run

    def _run(self, name: str, **choice: Any) -> ClassRun:
        begin = time.monotonic()
        short = name.rpartition(".")[2]

        def progress(method: str, outcome: Outcome, line: dict[str, Any]) -> None:
            with self._printing:
                invocation = "" if line["invocation"].startswith(method) else f" {line['invocation']}"
                print(f"{short}.{method}{invocation}: {outcome} ({line['seconds']:.1f} s)", flush=True)
                if outcome in (Outcome.FAILED, Outcome.CANNOT):
                    print(f"    {line['message'].splitlines()[0][:200]}", flush=True)

        run = run_class(name, self._path, self._socket, progress=progress, **choice)
        with self._printing:
            print(f"{name}: {time.monotonic() - begin:.0f} s; logs: {run.folder}", flush=True)
        return run


def _expected(expectations: Expectations, name: str) -> ClassExpectation:
    return expectations.classes.get(name, ClassExpectation())


def _chosen(words: list[str], expectations: Expectations) -> dict[str, frozenset[str]]:
    """Return the methods of each class to run; none: all of the class."""
    if not words:
        return dict.fromkeys(expectations.classes, frozenset())
    chosen: dict[str, frozenset[str]] = {}
    for word in words:
        name, _, methods = word.partition("#")
        chosen[name] = frozenset(methods.split(",")) if methods else frozenset()
    return chosen


if __name__ == "__main__":
    sys.exit(main())
