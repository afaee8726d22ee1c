from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.conformance.oracle import Oracle
from tests.kafka.requirement import require_kafka

# Two cores, a Java process on one of them: a deadline for each example would only measure the machine.
settings.register_profile(
    "conformance",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("conformance")


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """Kafka's own classes; skipped without Java or Maven, failed in CI."""
    require_kafka()
    with Oracle() as running:
        yield running
