"""Some of Kafka's own integration tests pass against our brokers: those of ``make kafka-tests``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.jars import KafkaUnavailableError
from tests.kafka.requirement import miss
from tests.kafka_tests.build import class_path

# The first run in a checkout fetches Kafka's tests and compiles their harness.
pytestmark = pytest.mark.timeout(1200)

ONE_BROKER = "testTransactionalProducerSingleBrokerMaxInFlightOne"


@pytest.mark.parametrize(
    ("name", "methods"),
    [
        ("kafka.api.TransactionsWithMaxInFlightOneTest", ONE_BROKER),
        pytest.param(
            "kafka.api.PlaintextConsumerTest",
            "testSimpleConsumption,testCoordinatorFailover",
            marks=pytest.mark.long,
        ),
    ],
)
def test_methods_end_as_the_list_says(name: str, methods: str) -> None:
    try:
        class_path()
    except KafkaUnavailableError as error:
        miss("Kafka's own tests", error)
    result = subprocess.run(
        [sys.executable, "-m", "tests.kafka_tests", f"{name}#{methods}"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    for method in methods.split(","):
        assert re.search(rf"\.{method}\b.*: passed", result.stdout)
