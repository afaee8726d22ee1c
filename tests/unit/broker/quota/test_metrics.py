"""Metrics of client quotas: Kafka's names, and a value for each sensor."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ctrlchan.broker.metrics import quotas as metrics
from ctrlchan.broker.quota._client_quotas import ClientQuotas, QuotaType
from tests.simulation._operating_system import SimulatedClock


def samples(quotas: ClientQuotas) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    server: Any = SimpleNamespace(core=SimpleNamespace(quotas=quotas))
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in metrics.collect(server)
        for sample in family.samples
    }


def test_without_quotas_there_is_no_sensor() -> None:
    assert samples(ClientQuotas()) == {("kafka_server_request_exempt_request_time", ()): 0.0}


def test_each_sensor_has_its_values() -> None:
    quotas = ClientQuotas(clock=SimulatedClock(1000))
    user = quotas.user_number("a b")
    quotas.set_limits([("a b", "app", [100.0, None, None, 1.0])])
    assert quotas.charge_request(user, b"app", 0, is_exempt=True, quota_type=QuotaType.PRODUCE, size=1500)
    assert quotas.mutate(user, b"app", 4, is_strict=True) == 0
    labels = (("client_id", "app"), ("user", "a%20b"))
    found = samples(quotas)
    assert found["kafka_server_produce_byte_rate", labels] == 150.0
    assert found["kafka_server_produce_throttle_time", labels] == 5000.0
    assert found["kafka_server_controllermutation_tokens", labels] == 7.0
    assert ("kafka_server_controllermutation_throttle_time", labels) not in found
    assert not [name for name, _ in found if "fetch" in name]
