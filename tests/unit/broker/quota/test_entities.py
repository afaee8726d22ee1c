"""Quotas in ZooKeeper: parsed, followed, and kept where a node is damaged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from ctrlchan.broker.config.zookeeper_configs import BrokerConfigs
from ctrlchan.broker.quota._client_quotas import ClientQuotas, QuotaType
from ctrlchan.broker.quota.entities import QuotaEntities
from ctrlchan.zookeeper import paths
from ctrlchan.zookeeper.memory.server import MemoryZooKeeper
from ctrlchan.zookeeper.operations import Create, SetData
from ctrlchan.zookeeper.quotas import QuotaEntity, changed_entity
from ctrlchan.zookeeper.session import ZooKeeperSession
from tests.kafka.waiting import wait_until
from tests.unit.zookeeper.sessions import session

ALICE: QuotaEntity = (("user", "alice"),)
ALICES_APP: QuotaEntity = (("user", "alice"), ("client-id", "an app/1"))
DEFAULT_CLIENT: QuotaEntity = (("client-id", None),)
IP: QuotaEntity = (("ip", "1.2.3.4"),)
ANY_IP: QuotaEntity = (("ip", None),)


class Broker:
    """A broker without configs."""

    id = 7

    def set_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """Take nothing."""

    def set_broker_configs(self, own: Mapping[str, str], defaults: Mapping[str, str]) -> None:
        """Take nothing."""

    def check_broker_configs(self, configs: Mapping[str, str], *, per_broker: bool) -> None: ...

    def decoded(self, configs: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
        return dict(configs)

    def encoded(self, configs: Mapping[str, str]) -> Mapping[str, str]:
        return configs

    def encoded_again(self, configs: Mapping[str, str]) -> None: ...

    def written(self, configs: Mapping[str, str]) -> None: ...


class Limited:
    """The quotas of a broker, as they are applied."""

    def __init__(self) -> None:
        self.quotas = ClientQuotas()
        self.rates: Mapping[str | None, int] = {}
        self.entities = QuotaEntities(7, self.quotas, self.take)

    def take(self, rates: Mapping[str | None, int]) -> None:
        self.rates = rates

    def fetched(self, user: str, client_id: bytes = b"") -> int | None:
        """Return the Fetch quota of a client, None for none."""
        most = self.quotas.fetch_limit(self.quotas.user_number(user), client_id)
        return None if most == 2**31 - 1 else most // 10


@pytest.fixture
def limited() -> Limited:
    return Limited()


@pytest.fixture
def one() -> Iterator[ZooKeeperSession]:
    with MemoryZooKeeper() as server, session(server.address) as made:
        yield made


def following(one: ZooKeeperSession, limited: Limited) -> BrokerConfigs:
    configs = BrokerConfigs(Broker(), one, lambda _name: False, limited=limited.entities)
    configs.start()
    return configs


def test_all_keys(limited: Limited) -> None:
    config = {
        "producer_byte_rate": "1",
        "consumer_byte_rate": "2",
        "request_percentage": "1e-9",
        "controller_mutation_rate": "1",
        "SCRAM-SHA-256": "secret",
    }
    limited.entities.replace_all({ALICE: config, ANY_IP: {"connection_creation_rate": "4"}}, {})
    alice = limited.quotas.user_number("alice")
    assert limited.fetched("alice") == 2
    assert limited.quotas.charge_request(alice, b"", 1_000_000) == 1000
    charged = limited.quotas.charge_request(
        alice, b"", 0, is_exempt=True, quota_type=QuotaType.PRODUCE, size=20
    )
    assert charged == 10_000
    assert limited.quotas.mutate(alice, b"", 21, is_strict=False) == 10_000
    assert limited.rates == {None: 4}


def test_users_with_credentials_alone_are_no_quotas(limited: Limited) -> None:
    limited.entities.replace_all({ALICE: {"SCRAM-SHA-256": "secret"}}, {})
    assert not limited.quotas.are_enabled


def test_entities_come_and_go(limited: Limited) -> None:
    limited.entities.replace_all({ALICE: {"consumer_byte_rate": "5"}}, {})
    limited.entities.replace({DEFAULT_CLIENT: {"consumer_byte_rate": "7"}, IP: {}}, {})
    assert (limited.fetched("alice"), limited.fetched("bob", b"x")) == (5, 7)
    limited.entities.replace({ALICE: {}}, {})
    assert limited.fetched("alice", b"x") == 7
    limited.entities.replace_all({}, {})
    assert limited.fetched("alice", b"x") is None


@pytest.mark.parametrize("value", ["many", "", "1.5", "NaN", str(2**63), "-9223372036854775809"])
def test_a_value_that_is_none_changes_nothing(
    limited: Limited, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    limited.entities.replace_all({ALICE: {"consumer_byte_rate": "5"}}, {})
    limited.entities.replace({ALICE: {"consumer_byte_rate": value, "producer_byte_rate": "6"}}, {})
    assert limited.fetched("alice") == 5
    assert "/config/users/alice: consumer_byte_rate is" in caplog.text
    assert "the former quota stays" in caplog.text


@pytest.mark.parametrize("value", ["inf", "nan", "x"])
def test_a_percentage_that_is_none(limited: Limited, value: str, caplog: pytest.LogCaptureFixture) -> None:
    limited.entities.replace_all({ALICE: {"request_percentage": value}}, {})
    assert not limited.quotas.are_enabled
    assert "there is no quota" in caplog.text


def test_what_a_notification_names() -> None:
    assert changed_entity("users", "alice") == ALICE
    assert changed_entity("users", "alice/clients/an%20app%2F1") == ALICES_APP
    assert changed_entity("users", "<default>/clients/<default>") == (("user", None), ("client-id", None))
    assert changed_entity("clients", "<default>") == DEFAULT_CLIENT
    assert changed_entity("ips", "1.2.3.4") == IP
    assert changed_entity("topics", "t") is None


def test_a_broker_follows_the_quotas(one: ZooKeeperSession, limited: Limited) -> None:
    writer = BrokerConfigs(Broker(), one, lambda _name: False)
    writer.write_quota(ALICE, {"consumer_byte_rate": "5"})
    configs = following(one, limited)
    assert limited.fetched("alice") == 5
    writer.write_quota(ALICES_APP, {"consumer_byte_rate": "8"})
    wait_until(lambda: limited.fetched("alice", b"an app/1") == 8, what="the new quota is followed")
    writer.write_quota(ALICE, {})
    wait_until(lambda: limited.fetched("alice") is None, what="the removed quota is followed")
    writer.write_quota(IP, {"connection_creation_rate": "3"})
    wait_until(lambda: limited.rates == {"1.2.3.4": 3}, what="the rate of an address is followed")
    configs.stop()


@pytest.mark.parametrize(
    "data", [b"{", b"[]", b'{"version":1}', b'{"config":{"consumer_byte_rate":5}}', b"\xff"]
)
def test_a_damaged_node_keeps_the_quota(
    one: ZooKeeperSession, limited: Limited, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Also when everything is read again; at the start there is no quota to keep."""
    writer = BrokerConfigs(Broker(), one, lambda _name: False)
    writer.write_quota(ALICE, {"consumer_byte_rate": "5"})
    configs = following(one, limited)
    change = b'{"version":2,"entity_path":"users/alice"}'
    one.multi([SetData("/config/users/alice", data), Create(paths.config_change(), change, sequential=True)])
    writer.write_quota(DEFAULT_CLIENT, {"consumer_byte_rate": "7"})
    wait_until(lambda: limited.fetched("bob", b"x") == 7, what="later changes are followed")
    assert limited.fetched("alice") == 5
    assert "/config/users/alice: " in caplog.text
    caplog.clear()
    configs.read_again()
    wait_until(lambda: "/config/users/alice: " in caplog.text, what="all quotas are read again")
    assert limited.fetched("alice") == 5
    configs.stop()
    fresh = Limited()
    following(one, fresh).stop()
    assert fresh.fetched("alice", b"x") == 7
