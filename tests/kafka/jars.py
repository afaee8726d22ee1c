"""The class path of Kafka 3.9.1 and ZooKeeper 3.8.4, fetched by Maven once for each checkout.

    folder = kafka_jars()                          # build/kafka-jars/<hash of pom.xml>
    classes = compile_java(Path("Oracle.java"))    # build/kafka-classes/<hash of sources and class path>
    subprocess.Popen(java_command("Oracle", classes=classes))

``python -m tests.kafka.jars`` fetches them ahead of a test run and prints the folder. Needs ``java`` and
``javac`` 17 or newer, and ``mvn``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

POM = Path(__file__).with_name("pom.xml")
BUILD = Path(__file__).parents[2] / "build"
LOWEST_JAVA = 17
# A JVM that does a little and ends: no second compiler tier, no parallel collector threads.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")

Report = Callable[[str], None]


class KafkaUnavailableError(Exception):
    """Kafka cannot run here; the message names what is missing and what to install."""


def report_on_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@cache
def java_version() -> int:
    """The major version of ``java`` on the PATH. Raises KafkaUnavailableError when there is none."""
    java = shutil.which("java")
    if java is None:
        raise KafkaUnavailableError(f"needs Java {LOWEST_JAVA} or newer: no `java` on the PATH")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', answer.stderr)
    if answer.returncode or found is None:
        raise KafkaUnavailableError(f"needs Java {LOWEST_JAVA} or newer: `java -version` does not work here")
    return int(found[1])


def check_java() -> None:
    """Raise KafkaUnavailableError unless ``java`` is there and new enough."""
    if java_version() < LOWEST_JAVA:
        raise KafkaUnavailableError(f"needs Java {LOWEST_JAVA} or newer, found {java_version()}")


def kafka_jars(report: Report = report_on_stderr) -> Path:
    """The folder of jars, fetched when this checkout does not have it yet.

    Several processes may ask at once: one fetches, the others wait. The folder appears by rename, so a
    folder that exists is whole. Raises KafkaUnavailableError when Java or Maven is missing or Maven fails.
    """
    return fetched_jars(POM, "kafka-jars", "Kafka's jars (50 MB)", report)


def fetched_jars(pom: Path, name: str, what: str, report: Report) -> Path:
    """As ``kafka_jars``, for any ``pom``. ``name``: of the folder in build/. ``what``: for messages."""
    check_java()
    folder = BUILD / name / hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    if folder.is_dir():
        return folder
    with locked(folder.parent / "lock"):
        if not folder.is_dir():
            _fetch(pom, folder, what, report)
    return folder


def class_path(report: Report = report_on_stderr) -> str:
    """The jars as a ``-cp`` argument. Raises KafkaUnavailableError, as ``kafka_jars``."""
    return f"{kafka_jars(report)}{os.sep}*"


def java_command(
    main_class: str,
    *arguments: str,
    classes: Path | None = None,
    jars: Path | None = None,
    options: Sequence[str] = SHORT_LIVED,
) -> list[str]:
    """A command line that runs ``main_class``: ``classes`` stand before Kafka's jars, ``jars`` after them."""
    before = [] if classes is None else [str(classes)]
    after = [] if jars is None else [f"{jars}{os.sep}*"]
    path = os.pathsep.join([*before, class_path(), *after])
    return ["java", *options, "-cp", path, main_class, *arguments]


def compile_java(*sources: Path, jars: Path | None = None) -> Path:
    """Compile Java files against Kafka's jars and ``jars``; returns the folder of their classes.

    Cached by the content of the sources and of pom.xml. Raises KafkaUnavailableError without a JDK, and
    RuntimeError with the compiler's words when they do not compile.
    """
    path = class_path() if jars is None else f"{class_path()}{os.pathsep}{jars}{os.sep}*"
    digest = hashlib.sha256(POM.read_bytes())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    folder = BUILD / "kafka-classes" / digest.hexdigest()[:16]
    with locked(folder.parent / "lock"):
        if not folder.is_dir():
            _compile(folder, path, sources)
    return folder


def _compile(folder: Path, path: str, sources: Sequence[Path]) -> None:
    javac = shutil.which("javac")
    if javac is None:
        raise KafkaUnavailableError(f"needs a JDK {LOWEST_JAVA} or newer: no `javac` on the PATH")
    with appearing(folder) as unfinished:
        command = [javac, "-proc:none", "-cp", path, "-d", str(unfinished), *map(str, sources)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise RuntimeError(f"javac failed:\n{result.stdout}{result.stderr}")


def _fetch(pom: Path, folder: Path, what: str, report: Report) -> None:
    mvn = shutil.which("mvn")
    if mvn is None:
        raise KafkaUnavailableError(f"needs Maven to fetch {what}: no `mvn` on the PATH")
    report(f"{what}: fetching them with Maven into {folder} (once)")
    with appearing(folder) as unfinished:
        command = [
            mvn,
            "--batch-mode",
            f"--file={pom}",
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={unfinished}",
        ]
        last_lines: deque[str] = deque(maxlen=15)
        downloaded = 0
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                last_lines.append(line)
                if "Downloaded from" in line and ".jar" in line:
                    downloaded += 1
                    if downloaded % 20 == 0:
                        report(f"{what}: {downloaded} downloaded …")
        if process.returncode:
            words = "".join(last_lines)
            raise KafkaUnavailableError(
                f"Maven could not fetch {what} (exit status {process.returncode}):\n{words}"
            )
    report(f"{what}: {len(list(folder.glob('*.jar')))} files are there")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file; the kernel lets go of it when this process ends in any way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def appearing(folder: Path) -> Iterator[Path]:
    """A fresh folder to fill, renamed to ``folder`` when the block ends well. Called under the lock."""
    unfinished = folder.with_name(folder.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    yield unfinished
    unfinished.rename(folder)


if __name__ == "__main__":
    try:
        print(kafka_jars())
    except KafkaUnavailableError as error:
        sys.exit(f"error: {error}")
