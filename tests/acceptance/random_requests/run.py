"""Runs chunks of random requests against both brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from tests.acceptance.random_requests.sides import Sides
from tests.acceptance.random_requests.values import Requests
from tests.acceptance.same_answers.both import ONE_BROKER, Both
from tests.acceptance.same_answers.grouping import ready
from tests.acceptance.same_answers.messages import Messages
from tests.kafka.jars import kafka_jars

__all__ = ["CHUNK", "CONFIGS", "Outcome", "make_ready", "run"]

#: Requests of one chunk.
CHUNK: Final = 500

CONFIGS: Final = ONE_BROKER | {
    "group.max.session.timeout.ms": "1800000",
    # Records have old timestamps, so their producers would be forgotten when the brokers first look.
    "log.initial.task.delay.ms": "86400000",
    "producer.id.expiration.check.interval.ms": "86400000",
}


@dataclass
class Outcome:
    """What a run has found. ``asked``: how many requests of each API and version."""

    asked: Counter[tuple[str, int]] = field(default_factory=Counter)
    found: list[str] = field(default_factory=list)


def make_ready(both: Both) -> None:
    """Wait until both brokers coordinate groups and transactions, and have producer ids."""
    for broker in (both.kafka, both.ours):
        ready(broker)
        # The first requests make the topic of transactions, and get the first producer ids.
        broker.wait(lambda answer: answer["ErrorCode"] == 0, "FindCoordinator", 3, Key="any", KeyType=1)
        broker.wait(
            lambda answer: answer["ErrorCode"] == 0,
            "InitProducerId",
            4,
            TransactionalId="first",
            TransactionTimeoutMs=60_000,
            ProducerId=-1,
            ProducerEpoch=-1,
        )


def run(
    both: Both,
    seed: int,
    chunks: Iterable[int],
    count: int,
    report: Callable[[int, Outcome], object] = lambda _chunk, _outcome: None,
) -> Outcome:
    """Send ``count`` requests of each chunk; a chunk ends with its first difference.

    ``report``: is called after each chunk.
    """
    outcome = Outcome()
    messages = Messages(next(kafka_jars().glob("kafka-clients-*.jar")))
    make_ready(both)
    for chunk in chunks:
        requests = Requests(seed, chunk, messages, both.ours.versions)
        with Sides(both, requests.names) as sides:
            for number in range(count):
                api, version, values = requests.next()
                outcome.asked[api, version] += 1
                difference = sides.ask(api, version, values)
                if difference is not None:
                    outcome.found.append(f"seed {seed}, chunk {chunk}, request {number}: {difference}")
                    break
        report(chunk, outcome)
    return outcome
