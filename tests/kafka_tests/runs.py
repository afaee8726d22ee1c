"""Runs classes of Kafka's tests: a JVM with JUnit's console for each, brokers from the fork server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from tests.kafka.jars import BUILD
from tests.kafka.kdc import KDC_EXPORTS
from tests.kafka_tests.expectations import Outcome, worst

__all__ = ["FOLDER", "WHOLE_CLASS", "ClassRun", "fork_server", "run_class"]

#: Where the logs of the last run of a class are.
FOLDER: Final = BUILD / "kafka-tests-runs"
#: Stands for a method where a class, or its JVM, failed.
WHOLE_CLASS: Final = "(class)"
#: Read by the OpenSSL of the brokers.
_OPENSSL: Final = Path(__file__).with_name("openssl.cnf")
#: Of one method. Kafka's own build has none for most of these.
_METHOD_TIMEOUT: Final = "480s"
#: Seconds after which the JVM of a class is killed: in all, and without any method that ends. JUnit's timeout
#: interrupts a method, but some do not end then, and none of it counts for what tears a method down.
_CLASS_TIMEOUT: Final = 5400.0
_SILENCE_TIMEOUT: Final = 900.0
#: Seconds that a JVM gets to write what its threads do.
_THREAD_DUMP: Final = 5.0
#: Exit statuses of JUnit's console: all passed, some failed.
_JUNIT_STATUS: Final = (0, 1)
_INSIDE: Final = "inside of a broker: "
_JVM: Final = ("-Xmx1500m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", KDC_EXPORTS)


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
        method = line.get("method", WHOLE_CLASS)
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
            env=os.environ | {"OPENSSL_CONF": str(_OPENSSL)},
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
    folder: Path,
    progress: Callable[[str, Outcome, dict[str, Any]], None] = lambda *_: None,
) -> ClassRun:
    """Run the methods of a class: `only` these if any, otherwise all `without` those.

    `folder` has the logs, and what `Results.java` said of each invocation. The files of the tests are
    removed when nothing failed. `progress` gets each invocation.
    """
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
            # The JVM ends when this process does.
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            pass_fds=[write_end],
        )
        os.close(write_end)
        with _Watch(jvm) as watch, (folder / "results").open("wb") as kept:
            for line in results:
                watch.something_ended()
                kept.write(line)
                parsed = json.loads(line)
                method, outcome = run.add(parsed)
                progress(method, outcome, parsed)
                if outcome in (Outcome.FAILED, Outcome.CANNOT):
                    with (folder / "failures").open("a") as failures:
                        failures.write(f"{method} {parsed['invocation']}\n{parsed['trace']}\n")
            jvm.wait()
    if jvm.returncode not in _JUNIT_STATUS or not run.outcomes:
        words = watch.killed or f"status {jvm.returncode}: {_last_words(folder / 'output')}"
        run.outcomes[WHOLE_CLASS] = Outcome.FAILED
        run.reasons[WHOLE_CLASS] = f"the JVM ended: {words}"
    if Outcome.FAILED not in run.outcomes.values():
        shutil.rmtree(temporary, ignore_errors=True)
    return run


class _Watch:
    """Kills a JVM that takes too long, and says why in `killed`. Its threads are in its output then."""

    def __init__(self, jvm: subprocess.Popen[bytes]) -> None:
        self.killed = ""
        self._jvm = jvm
        self._end = time.monotonic() + _CLASS_TIMEOUT
        self._silence_end = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jvm-watch", daemon=True)
        self.something_ended()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._jvm.kill()
        self._jvm.wait()
        assert self._jvm.stdin is not None
        self._jvm.stdin.close()

    def something_ended(self) -> None:
        self._silence_end = time.monotonic() + _SILENCE_TIMEOUT

    def _run(self) -> None:
        while (left := min(self._end, self._silence_end) - time.monotonic()) > 0:
            if self._ended.wait(left):
                return
        if time.monotonic() >= self._end:
            self.killed = f"killed after {_CLASS_TIMEOUT:.0f} s"
        else:
            self.killed = f"killed, as no method ended within {_SILENCE_TIMEOUT:.0f} s"
        self._jvm.send_signal(signal.SIGQUIT)
        self._ended.wait(_THREAD_DUMP)
        self._jvm.kill()


def _last_words(path: Path) -> str:
    return " ".join(path.read_text(errors="replace").split()[-40:])
