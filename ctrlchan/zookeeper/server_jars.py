"""Finds the jars of a ZooKeeper server: those of the installed PySpark, else Maven's local repository."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ctrlchan.errors import ZooKeeperError

__all__ = ["server_jars"]

_SERVER: Final = ("zookeeper", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-java")
#: What writes the server's log: PySpark has log4j 2, Kafka's own dependencies have reload4j.
_LOGGING: Final = ("log4j-slf4j2-impl", "log4j-api", "log4j-core", "slf4j-reload4j", "reload4j")
#: Groups of these artifacts in Maven's repository.
_GROUPS: Final = (
    *("org/apache/zookeeper", "org/slf4j", "io/dropwizard/metrics", "org/xerial/snappy"),
    *("org/apache/logging/log4j", "ch/qos/reload4j"),
)
_NUMBER: Final = re.compile(r"\d+")
_JAR: Final = re.compile(r"(.+?)-(\d[\w.]*)\.jar")


def server_jars(*, maven_repository: Path | None = None) -> list[Path]:
    """Return the class path of a ZooKeeper server.

    ``maven_repository``: None stands for ``~/.m2/repository``. Raises ZooKeeperError when neither place has
    the jars.
    """
    places = []
    spark = _spark_jars()
    if spark is not None:
        places.append(_named(spark.glob("*.jar")))
    repository = Path.home() / ".m2" / "repository" if maven_repository is None else maven_repository
    places.append(
        _named(jar for group in _GROUPS for jar in (repository / group).glob("*/*/*.jar") if jar.is_file())
    )
    for place in places:
        if all(name in place for name in _SERVER):
            return [place[name] for name in (*_SERVER, *_LOGGING) if name in place]
    raise ZooKeeperError(
        f"no jars of a ZooKeeper server: PySpark is not installed, and {repository} has no "
        "org.apache.zookeeper:zookeeper; pip install 'ctrlchan[spark]' brings them"
    )


def _spark_jars() -> Path | None:
    """Return the folder of PySpark's jars; None when there is no PySpark. Nothing of it is imported."""
    spec = importlib.util.find_spec("pyspark")
    for folder in () if spec is None else spec.submodule_search_locations or ():
        return Path(folder, "jars")
    return None


def _named(jars: Iterable[Path]) -> dict[str, Path]:
    """Return the newest jar of each artifact."""
    newest: dict[str, tuple[list[int], Path]] = {}
    for jar in jars:
        match = _JAR.fullmatch(jar.name)
        if match is not None:
            version = [int(number) for number in _NUMBER.findall(match[2])]
            if match[1] not in newest or version > newest[match[1]][0]:
                newest[match[1]] = version, jar
    return {name: jar for name, (_, jar) in newest.items()}
