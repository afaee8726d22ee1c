"""The command of Kafka's broker, with the options of its own start script."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.kafka.jars import java_command

__all__ = ["kafka_command"]

_LOG4J: Final = Path(__file__).parent / "kafka" / "log4j.properties"
#: The options of kafka-server-start.sh and kafka-run-class.sh, but for the heap.
_OPTIONS: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    f"-Dlog4j.configuration={_LOG4J.as_uri()}",
)


def kafka_command(properties: Path, *heap: str) -> list[str]:
    """Return the command. ``heap``: options of the JVM. Raises KafkaUnavailableError."""
    return java_command("kafka.Kafka", str(properties), options=[*heap, *_OPTIONS])
