"""Quotas in ZooKeeper that nobody could have written."""

from __future__ import annotations

import pytest

from ctrlchan.server.client_quotas import QuotaFilter
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
