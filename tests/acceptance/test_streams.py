"""A Kafka Streams program on an EmbeddedCluster that stores records, and on real Kafka as the reference."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition

from tests.acceptance.children import Children
from tests.acceptance.clients import TIMEOUT, consuming, producing
from tests.acceptance.either_cluster import EitherCluster
from tests.acceptance.word_count import AT_LEAST_ONCE, INPUT, OUTPUT, WORDS, Program
from tests.kafka.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

PARTITIONS = 4
LINES = 2_000


def produce_lines(either: EitherCluster, first: int, wanted: Counter[str]) -> None:
    """Produce lines of words, and add the words to ``wanted``."""
    with producing(either.bootstrap) as producer:
        for number in range(first, first + LINES):
            words = [WORDS[number % 7], WORDS[number % 3], f"number-{number % 50}"]
            wanted.update(words)
            producer.produce(INPUT, " ".join(words), key=str(number))
            producer.poll(0)


def counted(either: EitherCluster) -> Counter[str]:
    """Return the last count of each word in the program's output."""
    counts: Counter[str] = Counter()
    with consuming(either.bootstrap, group="none") as consumer:
        waiting = {
            one: consumer.get_watermark_offsets(TopicPartition(OUTPUT, one), TIMEOUT)[1]
            for one in range(PARTITIONS)
        }
        waiting = {one: end for one, end in waiting.items() if end}
        consumer.assign([TopicPartition(OUTPUT, one, 0) for one in waiting])
        deadline = time.monotonic() + TIMEOUT
        while waiting:
            assert time.monotonic() < deadline, f"not read: {waiting}"
            for message in consumer.consume(1_000, 0.2):
                if message.error() is None:
                    counts[message.key().decode()] = int(message.value())
                    if message.offset() + 1 >= waiting.get(message.partition(), sys.maxsize):
                        del waiting[message.partition()]
    return counts


def wait_for_counts(either: EitherCluster, is_right: Callable[[Counter[str]], bool]) -> None:
    wait_until(lambda: is_right(counted(either)), timeout=2 * TIMEOUT, what="the words are counted")


def earliest(either: EitherCluster, topic: str) -> list[int]:
    """Return the first offset of each partition."""
    with consuming(either.bootstrap, group="none") as consumer:
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, one), TIMEOUT)[0]
            for one in range(PARTITIONS)
        ]


def test_words_are_counted_while_instances_and_a_broker_come_and_go(
    either: EitherCluster, children: Children
) -> None:
    program = Program(either.bootstrap, children, AT_LEAST_ONCE)
    either.create(INPUT, PARTITIONS)
    either.create(OUTPUT, PARTITIONS, cleanup_policy="compact")
    wanted: Counter[str] = Counter()
    first = program.start_and_wait()
    produce_lines(either, 0, wanted)
    wait_for_counts(either, wanted.__eq__)
    # Records of the repartition topic are deleted as soon as they are counted.
    wait_until(
        lambda: min(earliest(either, "word-count-words-repartition")) > 0,
        timeout=60,
        what="records are deleted",
    )
    second = program.start_and_wait()
    produce_lines(either, LINES, wanted)
    wait_for_counts(either, wanted.__eq__)
    victim = either.leader("word-count-counts-changelog", 0)
    either.kill_broker(victim)
    produce_lines(either, 2 * LINES, wanted)
    # At least once: words whose offsets were not committed when the broker died may be counted again.
    wait_for_counts(either, wanted.__le__)
    either.start_broker(victim)
    for instance in (first, second):
        instance.terminate(60)
        assert "closed true" in instance.output.read_text()
    # The counts come back from the changelog topic.
    settled = counted(either)
    assert wanted <= settled
    program.start_and_wait()
    produce_lines(either, 3 * LINES, settled)
    wait_for_counts(either, settled.__eq__)
