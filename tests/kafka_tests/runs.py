"""Runs classes of Kafka's tests: a JVM with JUnit's console for each, brokers from the fork server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.kafka.jars import BUILD
from tests.kafka_tests.expectations import Outcome, worst

__all__ = ["ClassRun", "fork_server", "run_class"]

#: Where the logs of the last run of a class are.
FOLDER: Final = BUILD / "kafka-tests-runs"
#: Of one method. Kafka's own build has none for most of these.
_METHOD_TIMEOUT: Final = "240s"
#: Seconds for one class, after which its JVM is killed.
_CLASS_TIMEOUT: Final = 2400.0
_INSIDE: Final = "inside of a broker: "
_JVM: Final = ("-Xmx1500m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass
class ClassRun:
    """What came out of a class. ``reasons``: method → what was thrown first; ``seconds``: of all methods;
    ``repeated``: methods that passed when they were repeated."""

    name: str
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    repeated: int = 0
    folder: Path = FOLDER

    def add(self, line: dict[str, Any]) -> tuple[str, Outcome]:
        """Take a line of ``Results.java``. Return the method and its outcome."""
        method = line.get("method", "(class)")
        outcome = _outcome(line)
        self.outcomes[method] = worst(self.outcomes.get(method, outcome), outcome)
        self.seconds += line["seconds"]
        if "message" in line:
            self.reasons.setdefault(method, _inside(line["trace"]) or line["message"].splitlines()[0])
        return method, outcome


def _outcome(line: dict[str, Any]) -> Outcome:
    match line["status"]:
        case "SUCCESSFUL":
            return Outcome.PASSED
        case "ABORTED":
            return Outcome.ABORTED
    return Outcome.CANNOT if _inside(line.get("trace", "")) else Outcome.FAILED


def _inside(trace: str) -> str:
    """Return what of a broker's inside was asked for, or an empty text."""
    return next((line[line.index(_INSIDE) :] for line in trace.splitlines() if _INSIDE in line), "")


@contextmanager
def fork_server() -> Iterator[str]:
    """Yield the socket of a running fork server (``fork_server.py``)."""
    with tempfile.TemporaryDirectory(prefix="forks-") as folder:
        path = f"{folder}/socket"
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.kafka_tests.fork_server", path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            if server.stdout.readline() != b"ready\n":
                raise RuntimeError(f"the fork server ended with status {server.wait()}")
            yield path
        finally:
            server.stdin.close()
            server.wait()
            server.stdout.close()


def run_class(
    name: str,
    class_path: str,
    socket: str,
    *,
    only: Collection[str] = (),
    without: Collection[str] = (),
    progress: Callable[[str, Outcome, dict[str, Any]], None] = lambda *_: None,
) -> ClassRun:
    """Run the methods of a class: `only` these if any, otherwise all `without` those.

    The files of the tests are removed when nothing failed. `progress` gets each invocation.
    """
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    temporary = folder / "tmp"
    temporary.mkdir(parents=True)
    choice = folder / "choice"
    choice.write_text("\n".join(["only", *only] if only else ["without", *without]) + "\n")
    run = ClassRun(name, folder=folder)
    read_end, write_end = os.pipe()
    command = [
        *("java", *_JVM, "-cp", class_path),
        f"-Djava.io.tmpdir={temporary}",
        f"-Dctrlchan.fork.server={socket}",
        f"-Dctrlchan.results=/dev/fd/{write_end}",
        f"-Dctrlchan.choice={choice}",
        f"-Dctrlchan.log={folder / 'kafka.log'}",
        *("org.junit.platform.console.ConsoleLauncher", "execute", "--disable-banner"),
        *("--disable-ansi-colors", "--details=none", f"--select-class={name}"),
        *("--config", "junit.jupiter.extensions.autodetection.enabled=true"),
        *("--config", f"junit.jupiter.execution.timeout.testable.method.default={_METHOD_TIMEOUT}"),
    ]
    with (folder / "output").open("wb") as output, os.fdopen(read_end, "rb") as results:
        jvm = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            pass_fds=[write_end],
        )
        os.close(write_end)
        killer = threading.Timer(_CLASS_TIMEOUT, jvm.kill)
        killer.start()
        try:
            for line in results:
                parsed = json.loads(line)
                method, outcome = run.add(parsed)
                progress(method, outcome, parsed)
                if outcome in (Outcome.FAILED, Outcome.CANNOT):
                    with (folder / "failures").open("a") as failures:
                        failures.write(f"{method} {parsed['invocation']}\n{parsed['trace']}\n")
            jvm.wait()
        finally:
            killer.cancel()
            with suppress(ProcessLookupError):
                jvm.kill()
            jvm.wait()
    if jvm.returncode not in (0, 1) or not run.outcomes:
        run.outcomes["(class)"] = Outcome.FAILED
        run.reasons["(class)"] = (
            f"the JVM ended with status {jvm.returncode}: {_last_words(folder / 'output')}"
        )
    if Outcome.FAILED not in run.outcomes.values():
        shutil.rmtree(temporary, ignore_errors=True)
    return run


def _last_words(path: Path) -> str:
    return " ".join(path.read_text(errors="replace").split()[-40:])
