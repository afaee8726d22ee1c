"""Options and fixtures of all suites: the options of a run, the sink, and whether Kafka's side runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from bench.peers.native import Sink
from tests.kafka.jars import KafkaUnavailableError, kafka_jars, report_on_stderr


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("bench")
    group.addoption("--no-kafka", action="store_true", help="leave Kafka's side out")
    group.addoption("--quick", action="store_true", help="few rounds: only to check that it works")


@pytest.fixture(scope="session")
def with_kafka(pytestconfig: pytest.Config) -> bool:
    """Return whether Kafka's side runs; it needs Java and Maven."""
    if pytestconfig.getoption("--no-kafka"):
        return False
    try:
        kafka_jars()
    except KafkaUnavailableError as error:
        report_on_stderr(f"without Kafka's side: {error}")
        return False
    return True


@pytest.fixture(scope="session")
def scaled(pytestconfig: pytest.Config) -> Callable[[int], int]:
    """Return a function from a suite's number of rounds to the number in this run."""
    divisor = 5 if pytestconfig.getoption("--quick") else 1
    return lambda rounds: max(1, rounds // divisor)


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with Sink() as sink:
        yield sink
