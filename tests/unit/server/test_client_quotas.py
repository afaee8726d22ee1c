"""Quotas in ZooKeeper that nobody could have written, and values as Kafka writes them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ctrlchan.errors import KafkaError
from ctrlchan.server.client_quotas import QuotaFilter, alter_quotas
from ctrlchan.zookeeper.quotas import QuotaEntity

LONG = "x" * 40_000
ALICE: QuotaEntity = (("user", "alice"),)


def test_a_quota_that_cannot_be_described_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    configs: dict[QuotaEntity, dict[str, str]] = {
        (("user", "bad"),): {"producer_byte_rate": LONG},
        (("user", LONG),): {"producer_byte_rate": "1"},
        ALICE: {"producer_byte_rate": "many", "consumer_byte_rate": "2", "SCRAM-SHA-256": "secret"},
    }
    assert QuotaFilter([], strict=False).select(configs) == {ALICE: {"consumer_byte_rate": 2.0}}
    assert "producer_byte_rate of (('user', 'alice'),) is left out: 'many' is not a number" in caplog.text
    assert "are left out: the name has 40000 bytes, more than the 32767" in caplog.text
    assert LONG not in caplog.text


class _Store:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written: dict[QuotaEntity, dict[str, str]] = {}

    def read_quota(self, entity: QuotaEntity) -> dict[str, str]:
        return {}

    def write_quota(self, entity: QuotaEntity, config: Mapping[str, str]) -> None:
        self.written[entity] = dict(config)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float(2**63), str(2**63 - 1)),  # Long.MAX_VALUE, as Java sends it
        (float(-(2**63)), str(-(2**63))),
        (1024.0000001, "1024"),
        (float(2**53), str(2**53)),
    ],
)
def test_a_rate_is_written_as_a_long(value: float, text: str) -> None:
    store = _Store()
    alter_quotas(store, ALICE, [("producer_byte_rate", value)], validate_only=False)
    assert store.written == {ALICE: {"producer_byte_rate": text}}


@pytest.mark.parametrize("value", [1.5, 1e19, -1e19, float("inf"), float("nan")])
def test_a_rate_that_is_no_long_is_refused(value: float) -> None:
    store = _Store()
    with pytest.raises(KafkaError, match="producer_byte_rate must be a LONG value"):
        alter_quotas(store, ALICE, [("producer_byte_rate", value)], validate_only=False)
    assert store.written == {}
