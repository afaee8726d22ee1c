"""What happens to a test that needs Kafka or Java where they cannot run: skipped, or failed in CI."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

from tests.kafka.jars import KafkaUnavailableError, Report, kafka_jars, report_on_stderr


def kafka_is_required() -> bool:
    """Whether a missing Kafka is a failure: CI is set, or CTRLCHAN_REQUIRE_KAFKA is (and not 0)."""
    return any(os.environ.get(name, "") not in ("", "0") for name in ("CI", "CTRLCHAN_REQUIRE_KAFKA"))


def miss(what: str, error: Exception) -> NoReturn:
    """Skip the calling test, because ``what`` cannot run here; fail it in CI."""
    if kafka_is_required():
        pytest.fail(f"{what} is required here, and {error}", pytrace=False)
    pytest.skip(f"{what}: {error}")


def require_kafka(report: Report = report_on_stderr) -> Path:
    """The folder of Kafka's jars; without Java or Maven the calling test is skipped, or fails in CI."""
    try:
        return kafka_jars(report)
    except KafkaUnavailableError as error:
        miss("real Kafka", error)
