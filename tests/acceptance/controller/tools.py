"""Kafka's command-line tools, run one after the other in one JVM: see Tools.java.

with KafkaTools(folder, bootstrap) as tools:
    tools.topics("--create", "--topic", "orders", "--partitions", "3")
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.kafka.jars import SHORT_LIVED, class_path, compile_java
from tests.kafka.waiting import wait_until

__all__ = ["KafkaTools", "Plan", "ToolRun", "wait_until_complete"]

#: (topic, partition) -> replicas.
Plan = Mapping[tuple[str, int], Sequence[int]]

_TOPICS = "org.apache.kafka.tools.TopicCommand"
_REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
_CONFIGS = "kafka.admin.ConfigCommand"

_LOG4J = """\
log4j.rootLogger=WARN, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.Target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%p %m (%c)%n
"""


@dataclass(frozen=True)
class ToolRun:
    """How a tool ended and what it printed."""

    status: int
    output: str
    errors: str

    def __str__(self) -> str:
        return f"status {self.status}\n{self.output}{self.errors}"


class KafkaTools:
    """The JVM of the tools; a context manager. Files of the tools go to ``folder``.

    ``sources``: Java files of other programs that it runs. ``path``: the class path in place of Kafka's jars.
    ``options``: more options of the JVM.
    """

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        *,
        sources: Sequence[Path] = (),
        path: str | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self._folder = folder
        self.bootstrap = bootstrap
        self._files = 0
        log4j = folder / "tools-log4j.properties"
        log4j.write_text(_LOG4J)
        classes = compile_java(Path(__file__).with_name("Tools.java"), *sources)
        options = (*SHORT_LIVED, f"-Dlog4j.configuration=file:{log4j}", *options)
        path = class_path() if path is None else path
        self._process = subprocess.Popen(
            ["java", *options, "-cp", f"{classes}{os.pathsep}{path}", "Tools"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            process_group=0,
        )

    def __enter__(self) -> KafkaTools:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The process ends at the end of its input.
        self._process.communicate(timeout=60)

    def run(self, main_class: str, *arguments: str) -> ToolRun:
        """Run a tool with ``--bootstrap-server`` and these arguments, whatever its exit status is."""
        return self.run_as_given(main_class, "--bootstrap-server", self.bootstrap, *arguments)

    def run_as_given(self, main_class: str, *arguments: str, text: str = "") -> ToolRun:
        """Run a tool with these arguments alone. ``text``: its standard input."""
        words = [text, main_class, *arguments]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(base64.b64encode(w.encode()).decode() for w in words) + "\n")
        self._process.stdin.flush()
        status, output, errors = self._process.stdout.readline().rstrip("\n").split("\t")
        return ToolRun(int(status), _decoded(output), _decoded(errors))

    def topics(self, *arguments: str) -> ToolRun:
        """Run kafka-topics."""
        return self.run(_TOPICS, *arguments)

    def configs(self, *arguments: str) -> ToolRun:
        """Run kafka-configs."""
        return self.run(_CONFIGS, *arguments)

    def elect(self, *arguments: str) -> ToolRun:
        """Run kafka-leader-election."""
        return self.run(_ELECT, *arguments)

    def reassign(self, *arguments: str) -> ToolRun:
        """Run kafka-reassign-partitions."""
        return self.run(_REASSIGN, *arguments)

    def execute(self, partitions: Plan, *arguments: str) -> ToolRun:
        """Begin a reassignment to these replicas by partition."""
        return self.reassign("--execute", "--reassignment-json-file", self.plan(partitions), *arguments)

    def verify(self, partitions: Plan, *arguments: str) -> ToolRun:
        """Verify a reassignment; a complete one loses its throttles by this."""
        return self.reassign("--verify", "--reassignment-json-file", self.plan(partitions), *arguments)

    def cancel(self, partitions: Plan, *arguments: str) -> ToolRun:
        """Cancel a reassignment."""
        return self.reassign("--cancel", "--reassignment-json-file", self.plan(partitions), *arguments)

    def plan(self, partitions: Plan) -> str:
        """Return the path of a new file with a reassignment in the tool's form."""
        entries = [
            {"topic": topic, "partition": partition, "replicas": list(replicas)}
            for (topic, partition), replicas in partitions.items()
        ]
        return self.file({"version": 1, "partitions": entries})

    def file(self, content: object) -> str:
        """Return the path of a new file with this content as JSON."""
        self._files += 1
        path = self._folder / f"tool-{self._files}.json"
        path.write_text(json.dumps(content))
        return str(path)


def wait_until_complete(tools: KafkaTools, plan: Plan) -> None:
    """Wait until kafka-reassign-partitions finds every partition of the plan complete."""

    def complete() -> bool:
        run = tools.verify(plan)
        assert run.status == 0, run
        return run.output.count("is completed.") == len(plan)

    wait_until(complete, timeout=90, what=f"the reassignment is complete: {plan}")


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()
