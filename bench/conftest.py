"""What all suites share: the options of a run, the sink, and whether Kafka takes part."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from bench.peers.native import Sink
from tests.kafka.jars import KafkaUnavailableError, kafka_jars, report_on_stderr


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("bench")
    group.addoption("--no-kafka", action="store_true", help="leave Kafka's side out")
    group.addoption("--quick", action="store_true", help="few rounds: to see that it works, not to be quoted")


@pytest.fixture(scope="session")
def with_kafka(pytestconfig: pytest.Config) -> bool:
    """Whether Kafka's side runs; without Java or Maven it cannot."""
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
    """How many rounds a suite's number of rounds means in this run."""
    divisor = 5 if pytestconfig.getoption("--quick") else 1
    return lambda rounds: max(1, rounds // divisor)


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with Sink() as sink:
        yield sink
