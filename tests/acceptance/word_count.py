"""Starts instances of the Kafka Streams program ``WordCount.java``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.acceptance.children import Children
from tests.kafka.jars import POM, SHORT_LIVED, compile_java, fetched_jars, java_command, report_on_stderr
from tests.kafka.processes import Child, last_lines
from tests.kafka.waiting import wait_until

__all__ = ["AT_LEAST_ONCE", "EXACTLY_ONCE", "INPUT", "OUTPUT", "WORDS", "Program"]

SOURCE: Final = Path(__file__).with_name("streams") / "WordCount.java"
STREAMS_POM: Final = POM.with_name("streams.pom.xml")
INPUT, OUTPUT = "lines", "word-counts"
AT_LEAST_ONCE, EXACTLY_ONCE = "at_least_once", "exactly_once_v2"
WORDS: Final = ("partition", "leader", "epoch", "replica", "offset", "record", "batch")


class Program:
    """Starts instances of WordCount, with a guarantee of Kafka Streams. `replicas`: of its own topics."""

    def __init__(self, bootstrap: str, children: Children, guarantee: str, replicas: int = 3) -> None:
        jars = fetched_jars(
            STREAMS_POM, "kafka-streams-jars", "Kafka Streams' jars (60 MB)", report_on_stderr
        )
        self._classes = compile_java(SOURCE, jars=jars)
        self._jars = jars
        self._bootstrap = bootstrap
        self._guarantee = guarantee
        self._replicas = replicas
        self._children = children
        self._count = 0

    def start(self) -> Child:
        """Start an instance with an empty state folder."""
        self._count += 1
        name = f"instance-{self._count}"
        state = str(self._children.folder / f"{name}-state")
        command = java_command(
            "WordCount",
            *(self._bootstrap, "word-count", state, INPUT, OUTPUT, self._guarantee, str(self._replicas)),
            classes=self._classes,
            jars=self._jars,
            options=(*SHORT_LIVED, "-Xmx256m"),
        )
        return self._children.start(name, command)

    def start_and_wait(self) -> Child:
        """Start an instance; return when all its tasks run."""
        child = self.start()

        def is_running() -> bool:
            child.check_alive()
            return "state RUNNING" in child.output.read_text()

        try:
            wait_until(is_running, timeout=90, what=f"{child.name} runs")
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{last_lines(child.output, 20)}") from None
        return child
