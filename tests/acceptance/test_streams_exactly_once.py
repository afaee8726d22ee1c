"""A Kafka Streams program with exactly_once_v2, while brokers and instances die, stand still and restart.

It writes the count of a word each time that it meets the word. A reader of committed records must see each
count of each word once, in order, up to the number of times that the word is in the input.
"""

from __future__ import annotations

import os
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctrlchan.internal_topics import TRANSACTIONS_TOPIC
from tests.acceptance.children import Children
from tests.acceptance.committed_reader import CommittedReader
from tests.acceptance.fed_input import FedInput
from tests.acceptance.storm import KINDS, Storm, StormyCluster, stormy_cluster
from tests.acceptance.word_count import EXACTLY_ONCE, INPUT, OUTPUT, WORDS, Program
from tests.kafka.processes import Child
from tests.kafka.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

PARTITIONS = 4
INSTANCES = 2
LINES = 30_000
WORDS_OF_A_LINE = 3
#: The input is so many lines ahead of the output: the program has always something to do.
AHEAD = 1_000
#: Words between two faults.
STEP = 4_000


@pytest.fixture(params=list(KINDS))
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StormyCluster]:
    with stormy_cluster(request.param, tmp_path / "cluster") as cluster:
        yield cluster


def lines() -> Iterator[list[str]]:
    """Return the words of each line of the input."""
    for number in range(LINES):
        yield [WORDS[number % 7], WORDS[number % 3], f"number-{number % 50}"]


class Instances:
    """The instances of the program. ``tend`` starts those again that have ended."""

    def __init__(self, program: Program) -> None:
        #: How many have ended by themselves.
        self.ended = 0
        self._program = program
        self._running = [program.start() for _ in range(INSTANCES)]

    def tend(self) -> None:
        for number, child in enumerate(self._running):
            if child.status is not None:
                self.ended += 1
                self._running[number] = self._program.start()

    def kill(self) -> None:
        """Kill the oldest instance; another one begins without its state."""
        self._running.pop(0).kill()
        self._running.append(self._program.start())

    def freeze(self, storm: Storm) -> None:
        """Stop the oldest instance until the others have gone on with its tasks."""
        frozen: Child = self._running[0]
        os.kill(frozen.pid, signal.SIGSTOP)
        try:
            storm.advance(STEP // 2)
        finally:
            os.kill(frozen.pid, signal.SIGCONT)


def test_each_word_counts_once(cluster: StormyCluster, children: Children) -> None:
    for topic in (INPUT, OUTPUT):
        cluster.create(topic, PARTITIONS, min_insync_replicas="2", segment_bytes="2097152")
    reader = CommittedReader(cluster.bootstrap, OUTPUT, PARTITIONS)
    fed = FedInput(
        cluster.bootstrap,
        INPUT,
        ((-1, b"%d" % number, " ".join(words).encode()) for number, words in enumerate(lines())),
        wanted=lambda: reader.count // WORDS_OF_A_LINE + AHEAD,
    )
    instances = Instances(Program(cluster.bootstrap, children, EXACTLY_ONCE))

    def progress() -> int:
        instances.tend()
        assert fed.errors == []
        return reader.count

    wait_until(lambda: progress() > 0, timeout=120, what="the program counts")
    victims = {
        OUTPUT: PARTITIONS,
        "word-count-counts-changelog": PARTITIONS,
        "__consumer_offsets": 3,
        TRANSACTIONS_TOPIC: 3,
    }
    goal = LINES * WORDS_OF_A_LINE
    storm: Storm
    more = {"kill an instance": instances.kill, "freeze an instance": lambda: instances.freeze(storm)}
    storm = Storm(cluster, victims, progress, goal=goal, step=STEP, more=more, seed=1)
    try:
        storm.run()
    finally:
        fed.close()
    again = CommittedReader(cluster.bootstrap, OUTPUT, PARTITIONS)
    wait_until(lambda: again.count >= goal, timeout=120, what="all is read again")
    again.close()
    reader.close()
    print(f"{dict(storm.done)}, {instances.ended} instances ended by themselves")
    wanted = Counter(word for words in lines() for word in words)
    for one in (reader, again):
        counts: defaultdict[str, list[int]] = defaultdict(list)
        for key, value in (record for records in one.records for record in records):
            assert key is not None
            counts[key.decode()].append(int(value))
        assert counts == {word: list(range(1, count + 1)) for word, count in wanted.items()}
    assert storm.done.keys() == storm.kinds
