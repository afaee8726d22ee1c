"""Kafka's brokers of former versions, whose jars Maven fetches once. They run on the Java of today."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.acceptance.test_java_clients import jars
from tests.kafka.jars import SHORT_LIVED, kafka_jars
from tests.kafka.ports import free_port
from tests.kafka.processes import Child, Reaper
from tests.kafka.waiting import wait_until
from tests.kafka.wire import exchange

__all__ = ["old_server"]

_START_TIMEOUT: Final = 60.0
_LOG4J: Final = """\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
#: Metadata 0 of all topics, which brokers since 0.8 answer.
_METADATA: Final = bytes.fromhex("0003 0000 00000001 0000 00000000")


@contextmanager
def old_server(
    version: str, folder: Path, zookeeper: str, data: Path, properties: Mapping[str, str], *, kills: bool
) -> Iterator[str]:
    """Run the broker 1 of a version and yield its bootstrap server; end it afterwards.

    ``data``: its log directory. ``properties``: further settings. ``kills``: it is not ended in order.
    """
    folder.mkdir(parents=True)
    port = free_port()
    settings = {
        "broker.id": "1",
        "zookeeper.connect": zookeeper,
        "log.dirs": str(data),
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        # Before Kafka 0.9:
        "host.name": "127.0.0.1",
        "port": str(port),
        **properties,
    }
    (folder / "server.properties").write_text("".join(f"{key}={one}\n" for key, one in settings.items()))
    (folder / "log4j.properties").write_text(_LOG4J)
    path = [f"{jars(version, 'kafka_2.11' if version < '2' else 'kafka_2.13')}{os.sep}*"]
    # For those that leave the choice of a logger to their users.
    path += [
        str(one) for name in ("slf4j-reload4j", "reload4j") for one in kafka_jars().glob(f"{name}-*.jar")
    ]
    command = [
        "java", *SHORT_LIVED, "-Xmx256m", "-Djava.net.preferIPv4Stack=true",
        f"-Dlog4j.configuration=file:{folder / 'log4j.properties'}", "-cp", os.pathsep.join(path),
        "kafka.Kafka", str(folder / "server.properties"),
    ]  # fmt: skip
    reaper = Reaper()
    server = Child(f"Kafka {version}", command, folder / "server.log", reaper)

    def answers() -> bool:
        server.check_alive()
        try:
            return bool(exchange("127.0.0.1", port, _METADATA, timeout=5))
        except OSError:
            return False

    try:
        wait_until(answers, timeout=_START_TIMEOUT, what=f"Kafka {version} answers")
        yield f"127.0.0.1:{port}"
        if not kills:
            server.terminate(_START_TIMEOUT)
    finally:
        server.kill()
        reaper.close()
