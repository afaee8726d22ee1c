"""Metrics of quotas: Kafka's names, and a value for each sensor."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ctrlchan.broker.metrics import connections as connection_metrics
from ctrlchan.broker.metrics import quotas as metrics
from ctrlchan.broker.quota._client_quotas import ClientQuotas, QuotaType
from ctrlchan.broker.quota._replication_quota import ReplicationQuota
from ctrlchan.broker.quota.replication import ReplicationQuotas
from ctrlchan.server.socket_server import AcceptorCounters
from tests.simulation._operating_system import SimulatedClock
from tests.unit.server.connecting import ADMIN, EXTERNAL, REPLICATION, Connecting, packed

LEADER = ReplicationQuota(clock=SimulatedClock(1000))
LEADER.record(70)


def samples(quotas: ClientQuotas) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    server: Any = SimpleNamespace(
        core=SimpleNamespace(
            quotas=quotas,
            asked_quotas=None,
            replication_quotas=ReplicationQuotas(LEADER, ReplicationQuota(), ReplicationQuota()),
        )
    )
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in metrics.collect(server)
        for sample in family.samples
    }


def test_without_quotas_there_is_no_sensor() -> None:
    assert samples(ClientQuotas()) == {
        ("kafka_server_request_exempt_request_time", ()): 0.0,
        ("kafka_server_leaderreplication_byte_rate", ()): 70.0,
        ("kafka_server_followerreplication_byte_rate", ()): 0.0,
        ("kafka_server_alterlogdirsreplication_byte_rate", ()): 0.0,
    }


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


def test_limits_of_connections() -> None:
    connecting = Connecting(samples=11)
    connecting.limit(rate=1, own_rate=5)
    connecting.quotas.limit_ip_rates(0, [])
    assert connecting.quotas.arrive(REPLICATION) == 0
    for _ in range(11):
        wait_ms = connecting.quotas.arrive(EXTERNAL)
    assert wait_ms == 1000
    assert connecting.quotas.admit(ADMIN, packed("::1"))[1] == 1000
    counters = [AcceptorCounters(name, 0, 0, 0, ns) for name, ns in (("EXTERNAL", 7), ("ADMIN", 0))]
    sockets: Any = SimpleNamespace(
        quotas=connecting.quotas,
        counters=lambda: ([], counters),
        ports=dict.fromkeys(("EXTERNAL", "ADMIN", "REPLICATION"), 0),
    )
    server: Any = SimpleNamespace(server=sockets)
    found = {
        (
            sample.name.removeprefix("kafka_server_socket_server_metrics_"),
            *sample.labels.values(),
        ): sample.value
        for family in connection_metrics.collect(server)
        for sample in family.samples
    }
    assert found == {
        ("kafka_network_acceptor_acceptorblockedpercent_total", "EXTERNAL"): 7,
        ("kafka_network_acceptor_acceptorblockedpercent_total", "ADMIN"): 0,
        ("broker_connection_accept_rate",): 1.0,
        ("connection_accept_rate", "EXTERNAL", ""): 1.1,
        ("connection_accept_rate", "ADMIN", ""): -0.1,
        ("connection_accept_rate", "REPLICATION", ""): 0.1,
        ("connection_accept_rate", "", "0:0:0:0:0:0:0:1"): 0.0,
        ("connection_accept_throttle_time", "EXTERNAL"): 1000.0,
        ("ip_connection_accept_throttle_time", "ADMIN"): 1000.0,
    }
