"""The class path of a run: our harness, then Kafka's tests and all that they need, fetched by Maven.

    class_path()    # "build/kafka-tests/<hash>:build/kafka-tests-jars/<hash>/…jar:…"

The harness is compiled once for each version of its sources: Java and Scala, beside one class of Kafka's
tests whose source is changed before (``CHANGES``).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Final

from tests.kafka.jars import BUILD, KafkaUnavailableError, appearing, fetched_jars, locked, report_on_stderr
from tests.kafka.kdc import kdc_jars

__all__ = ["class_path"]

_POM: Final = Path(__file__).with_name("pom.xml")
_HARNESS: Final = Path(__file__).with_name("harness")
_TEST_SOURCES: Final = "kafka_2.13-3.9.1-test-sources.jar"
#: Not JUnit: its console has the same classes, of one version.
_NOT_ON_PATH: Final = (
    "-sources.jar",
    "junit-jupiter-",
    "junit-platform-c",
    "junit-platform-e",
    "junit-platform-l",
    # Kafka's tests have a newer one.
    "bcprov-jdk15on-",
)
_CONSOLE: Final = "junit-platform-console-standalone"

#: Kafka's file, and what is replaced in it: the controller is no broker, but requests to it go to any broker.
CHANGES: Final = {
    "unit/kafka/integration/KafkaServerTestHarness.scala": (
        "servers.filter(s => s.config.brokerId == controllerId).head",
        "servers.find(_.config.brokerId == controllerId).getOrElse(servers.head)",
    )
}
_SERVICES: Final = {
    "org.junit.jupiter.api.extension.Extension": "ctrlchan.Choice",
    "org.junit.platform.launcher.TestExecutionListener": "ctrlchan.Results",
}


def class_path() -> str:
    """Return the class path. Raises KafkaUnavailableError when Java or Maven is missing or Maven fails."""
    jars = fetched_jars(_POM, "kafka-tests-jars", "Kafka's tests (170 MB)", report_on_stderr)
    path = [jar for jar in sorted(jars.glob("*.jar")) if _is_on_path(jar.name)]
    # Tests with GSSAPI start a KDC in their JVM.
    present = {jar.name for jar in path}
    path += [
        jar for jar in sorted(kdc_jars().glob("*.jar")) if jar.name not in present and _is_on_path(jar.name)
    ]
    return os.pathsep.join(map(str, [_compiled(jars, path), *path]))


def _is_on_path(name: str) -> bool:
    return name.startswith(_CONSOLE) or not any(words in name for words in _NOT_ON_PATH)


def _compiled(jars: Path, path: list[Path]) -> Path:
    sources = sorted(source for source in _HARNESS.rglob("*.*") if source.is_file())
    digest = hashlib.sha256(_POM.read_bytes() + Path(__file__).read_bytes())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    folder = BUILD / "kafka-tests" / digest.hexdigest()[:16]
    with locked(folder.parent / "lock"):
        if not folder.is_dir():
            if shutil.which("javac") is None:
                raise KafkaUnavailableError("needs a JDK 17 or newer: no `javac` on the PATH")
            report_on_stderr("compiling the harness of Kafka's tests (once)")
            with appearing(folder) as unfinished:
                _compile(unfinished, jars, path, sources)
    return folder


def _compile(folder: Path, jars: Path, path: list[Path], sources: list[Path]) -> None:
    changed = _changed_sources(jars, folder / "changed")
    java = [str(source) for source in sources if source.suffix == ".java"]
    scala = [str(source) for source in [*sources, *changed] if source.suffix == ".scala"]
    compiler = os.pathsep.join(map(str, jars.glob("*.jar")))
    joined = os.pathsep.join(map(str, path))
    # Scala's compiler reads the Java sources, too, and Java's compiler then sees the Scala classes.
    _run(
        [
            "java",
            "-Xmx1g",
            "-cp",
            compiler,
            "scala.tools.nsc.Main",
            "-nowarn",
            "-cp",
            joined,
            "-d",
            str(folder),
            *scala,
            *java,
        ]
    )
    _run(["javac", "-proc:none", "-nowarn", "-cp", f"{folder}{os.pathsep}{joined}", "-d", str(folder), *java])
    services = folder / "META-INF" / "services"
    services.mkdir(parents=True)
    for service, implementation in _SERVICES.items():
        (services / service).write_text(implementation + "\n")
    for resource in (source for source in sources if source.suffix == ".properties"):
        shutil.copy(resource, folder)


def _changed_sources(jars: Path, folder: Path) -> list[Path]:
    """Write Kafka's sources with our changes into `folder`. Return their paths."""
    changed = []
    with zipfile.ZipFile(jars / _TEST_SOURCES) as archive:
        for name, (before, after) in CHANGES.items():
            text = archive.read(name).decode()
            if text.count(before) != 1:
                raise RuntimeError(f"{name} has not once: {before}")
            target = folder / Path(name).name
            target.parent.mkdir(exist_ok=True)
            target.write_text(text.replace(before, after))
            changed.append(target)
    return changed


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{result.stdout}{result.stderr}")
