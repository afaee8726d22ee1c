"""What happens to a test that needs Kafka, Java or Kerberos and cannot run: skipped, or failed in CI."""

from __future__ import annotations

import os
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

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


def require_gssapi() -> Any:
    """The package gssapi; without it the calling test or module is skipped.

    In CI it must be there if the system's Kerberos library is, with which it is compiled.
    """
    if kafka_is_required() and shutil.which("krb5-config"):
        return import_module("gssapi")
    return pytest.importorskip(
        "gssapi",
        reason="needs the package gssapi: apt install libkrb5-dev, then make test",
        exc_type=ImportError,
    )
