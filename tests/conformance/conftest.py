from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.oracle import Oracle
from tests.kafka.requirement import require_kafka


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """Kafka's own classes; skipped without Java or Maven, failed in CI."""
    require_kafka()
    with Oracle() as running:
        yield running
