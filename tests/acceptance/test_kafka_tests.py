"""Some of Kafka's own integration tests pass against our brokers: those of ``make kafka-tests``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.jars import KafkaUnavailableError
from tests.kafka.requirement import miss
from tests.kafka_tests.build import class_path

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

METHODS = "kafka.api.PlaintextConsumerTest#testSimpleConsumption,testCoordinatorFailover"


def test_methods_end_as_the_list_says() -> None:
    try:
        class_path()
    except KafkaUnavailableError as error:
        miss("Kafka's own tests", error)
    result = subprocess.run(
        [sys.executable, "-m", "tests.kafka_tests", METHODS],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "testSimpleConsumption: passed" in result.stdout
    assert "testCoordinatorFailover: passed" in result.stdout
