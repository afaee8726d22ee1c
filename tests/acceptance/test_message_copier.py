"""Kafka's TransactionalMessageCopier copies 100,000 records while brokers and copiers die and stand still.

The judge is a reader of committed records that runs beside it, and one that reads all of them again: they
must see the input, in its order.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from ctrlchan.internal_topics import TRANSACTIONS_TOPIC
from tests.acceptance.children import Children
from tests.acceptance.clients import TIMEOUT
from tests.acceptance.committed_reader import CommittedReader, reading
from tests.acceptance.fed_input import FedInput
from tests.acceptance.storm import KINDS, Storm, StormyCluster, stormy_cluster
from tests.kafka.jars import SHORT_LIVED, java_command
from tests.kafka.processes import Child
from tests.kafka.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

PARTITIONS = 2
RECORDS = 100_000
IN_A_TRANSACTION = 750
#: The input is so many records ahead of the output: the copiers end and start again now and then.
AHEAD = 20_000
#: Records between two faults.
STEP = 2_000
#: Bytes of a value: the copier's batches, of 512 bytes, have one record each, so that several are in flight.
SIZE = 400
#: ms; a copier that stands still for longer is fenced.
TRANSACTION_TIMEOUT = 8_000
INPUT, OUTPUT = "copied-from", "copied-to"
#: How the copiers get their partitions: from their command, or as members of a group.
ASSIGNED, GROUPED = "assigned", "grouped"
#: Copiers say why they end.
LOG4J = """\
log4j.rootLogger=INFO, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.Target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%d %p %m (%c)%n
"""


@pytest.fixture(params=list(KINDS))
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StormyCluster]:
    with stormy_cluster(request.param, tmp_path / "cluster") as cluster:
        yield cluster


class Copiers:
    """A copier for each partition, which ends when it has copied what there was at its begin.

    ``tend`` starts those again that have ended.
    """

    def __init__(self, cluster: StormyCluster, children: Children, way: str) -> None:
        self.starts: Counter[int] = Counter()
        #: By the last error that it printed.
        self.failures: Counter[str] = Counter()
        self._cluster = cluster
        self._children = children
        self._way = way
        self._log4j = children.folder / "log4j.properties"
        self._log4j.write_text(LOG4J)
        self._running = [self._start(number) for number in range(PARTITIONS)]
        self._replaced: list[Child] = []

    def tend(self) -> None:
        for number, child in enumerate(self._running):
            if child.status is not None:
                if child.status:
                    self.failures[_last_error(child)] += 1
                self._running[number] = self._start(number)

    def kill(self, number: int) -> None:
        """Kill a copier, and start it again."""
        self._running[number].kill()
        self._running[number] = self._start(number)

    def replace(self, number: int, storm: Storm) -> None:
        """Stop a copier; while it stands still, another one copies with its transactional id."""
        self.tend()
        frozen = self._running[number]
        os.kill(frozen.pid, signal.SIGSTOP)
        self._running[number] = self._start(number)
        storm.advance(STEP // 2)
        os.kill(frozen.pid, signal.SIGCONT)
        self._replaced.append(frozen)

    def have_ended(self) -> bool:
        """Return whether all have ended, those that were replaced as well."""
        return all(child.status is not None for child in (*self._running, *self._replaced))

    def _start(self, number: int) -> Child:
        self.starts[number] += 1
        arguments = [
            *("--broker-list", self._cluster.bootstrap, "--input-topic", INPUT, "--output-topic", OUTPUT),
            *("--input-partition", str(number), "--consumer-group", "copiers"),
            *("--transactional-id", f"copier-{number}", "--transaction-size", str(IN_A_TRANSACTION)),
            *("--transaction-timeout", str(TRANSACTION_TIMEOUT), "--enable-random-aborts"),
        ]
        if self._way == GROUPED:
            arguments += ["--group-mode", "--use-group-metadata"]
        command = java_command(
            "org.apache.kafka.tools.TransactionalMessageCopier",
            *arguments,
            options=(*SHORT_LIVED, "-Xmx128m", f"-Dlog4j.configuration=file:{self._log4j}"),
        )
        return self._children.start(f"copier-{number}-{self.starts[number]}", command)


def appended(cluster: StormyCluster) -> int:
    """Return how many records the output has, committed or aborted."""
    count = 0
    consumer = reading(cluster.bootstrap, "read_uncommitted")
    ends = {
        one: consumer.get_watermark_offsets(TopicPartition(OUTPUT, one), TIMEOUT)[1]
        for one in range(PARTITIONS)
    }
    # Markers have offsets, too, and are not read.
    consumer.assign([TopicPartition(OUTPUT, one, 0) for one in ends])
    deadline = time.monotonic() + TIMEOUT
    while any(one.offset < ends[one.partition] for one in consumer.position(consumer.assignment())):
        assert time.monotonic() < deadline, "the output is not read"
        count += sum(message.error() is None for message in consumer.consume(1_000, 0.1))
    consumer.close()
    return count


def _last_error(child: Child) -> str:
    """Return why a copier has ended, in its words."""
    said = re.findall(r"^Shutting down after unexpected error (\S+)", child.output.read_text(), re.MULTILINE)
    return said[-1] if said else f"status {child.status}"


@pytest.mark.parametrize("way", [ASSIGNED, GROUPED])
def test_the_copy_is_the_input(cluster: StormyCluster, children: Children, way: str) -> None:
    for topic in (INPUT, OUTPUT):
        cluster.create(topic, PARTITIONS, min_insync_replicas="2", segment_bytes="2097152")
    values = [b"%0*d" % (SIZE, number) for number in range(RECORDS)]
    reader = CommittedReader(cluster.bootstrap, OUTPUT, PARTITIONS)
    fed = FedInput(
        cluster.bootstrap,
        INPUT,
        ((number % PARTITIONS, None, value) for number, value in enumerate(values)),
        wanted=lambda: reader.count + AHEAD,
    )
    copiers = Copiers(cluster, children, way)

    def progress() -> int:
        assert fed.errors == []
        if reader.count < RECORDS:
            copiers.tend()
        return reader.count

    victims = {OUTPUT: PARTITIONS, "__consumer_offsets": 3, TRANSACTIONS_TOPIC: 3}
    numbers = iter(range(RECORDS))
    storm: Storm
    more = {
        "kill a copier": lambda: copiers.kill(next(numbers) % PARTITIONS),
        "replace a copier": lambda: copiers.replace(next(numbers) % PARTITIONS, storm),
    }
    storm = Storm(cluster, victims, progress, goal=RECORDS, step=STEP, more=more, seed=1)
    try:
        storm.run()
    finally:
        fed.close()
    wait_until(copiers.have_ended, timeout=2 * TIMEOUT, what="the copiers have ended")
    reader.close()
    again = CommittedReader(cluster.bootstrap, OUTPUT, PARTITIONS)
    wait_until(lambda: again.count >= RECORDS, timeout=TIMEOUT, what="all is read again")
    again.close()
    aborted = appended(cluster) - RECORDS
    print(f"{way}: {dict(storm.done)}, copiers failed: {dict(copiers.failures)}, {aborted} aborted records")
    expected = [values[one::PARTITIONS] for one in range(PARTITIONS)]
    for one in (reader, again):
        assert [[value for _, value in records] for records in one.records] == expected
    assert aborted > 0
    assert storm.done.keys() == storm.kinds
