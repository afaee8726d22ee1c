"""The page of API keys is what ``tools/api_table.py`` makes of Kafka's jar and of our tables of APIs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.requirement import require_kafka
from tools import api_table


@pytest.fixture(scope="module")
def clients_jar() -> Path:
    return next(require_kafka().glob("kafka-clients-3.9.1.jar"))


def test_the_page_is_true(clients_jar: Path) -> None:
    """``python -m tools.api_table`` writes it."""
    assert api_table.PAGE.read_text() == api_table.page(clients_jar)


def test_kafkas_versions_are_served(clients_jar: Path) -> None:
    """A broker serves all keys that Kafka's announces in ZooKeeper mode, and no others."""
    kafkas = {
        (key, name, versions)
        for key, (name, versions) in api_table.kafka_versions(clients_jar).items()
        if versions is not None
    }
    assert len(kafkas) == 62
    assert {(key, api.name, range(api.lowest, api.highest + 1)) for key, api in api_table.BROKER.items()} == (
        kafkas
    )
