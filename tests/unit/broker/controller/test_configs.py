"""Configs in ZooKeeper reach a broker at its start and whenever they change, also after a lost connection."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterator, Mapping

import pytest

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.config.zookeeper_configs import BrokerConfigs
from ctrlchan.zookeeper import paths
from ctrlchan.zookeeper.memory.server import MemoryZooKeeper
from ctrlchan.zookeeper.session import ZooKeeperSession
from tests.fault.proxy import Proxy
from tests.kafka.waiting import wait_until
from tests.kafka.zookeeper import ZooKeeperServer
from tests.unit.zookeeper.sessions import away, session

#: Of the metadata.
NO_TOPICS: frozenset[str] = frozenset()


class Broker:
    """A broker that keeps what it is given."""

    id = 7

    def __init__(self) -> None:
        self.topics: dict[str, Mapping[str, str]] = {}
        self.dynamic: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})

    def set_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        LogConfig().with_configs(configs)
        self.topics[topic] = configs

    def set_broker_configs(self, own: Mapping[str, str], defaults: Mapping[str, str]) -> None:
        LogConfig.from_broker_configs({**defaults, **own})
        self.dynamic = (own, defaults)

    def check_broker_configs(self, configs: Mapping[str, str], *, per_broker: bool) -> None: ...

    def decoded(self, configs: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
        return dict(configs)

    def encoded(self, configs: Mapping[str, str]) -> Mapping[str, str]:
        return configs

    def encoded_again(self, configs: Mapping[str, str]) -> None: ...

    def written(self, configs: Mapping[str, str]) -> None: ...


@pytest.fixture
def one() -> Iterator[ZooKeeperSession]:
    with MemoryZooKeeper() as server, session(server.address) as made:
        yield made


def test_a_broker_gets_its_configs_and_the_changes(one: ZooKeeperSession) -> None:
    writer = BrokerConfigs(Broker(), one, NO_TOPICS.__contains__)
    writer.write_topic_config("old", {"retention.ms": "1"})
    writer.write_broker_config(None, {"log.retention.ms": "2"})
    broker = Broker()
    configs = BrokerConfigs(broker, one, NO_TOPICS.__contains__)
    configs.start()
    assert broker.topics == {"old": {"retention.ms": "1"}}
    assert broker.dynamic == ({}, {"log.retention.ms": "2"})
    writer.write_topic_config("new", {"segment.ms": "3"})
    writer.write_broker_config(7, {"background.threads": "4"})
    writer.write_broker_config(8, {"background.threads": "5"})
    writer.write_topic_config("old", {})
    wait_until(
        lambda: broker.topics == {"old": {}, "new": {"segment.ms": "3"}}, what="changed configs of topics"
    )
    assert broker.dynamic == ({"background.threads": "4"}, {"log.retention.ms": "2"})
    assert configs.read_topic_config("new") == {"segment.ms": "3"}
    assert configs.read_topic_config("none") is None
    broker.topics.clear()
    configs.read_again()
    wait_until(lambda: set(broker.topics) == {"old", "new"}, what="all configs again")
    configs.stop()


def test_a_topic_that_is_not_in_the_metadata_yet_exists(one: ZooKeeperSession) -> None:
    configs = BrokerConfigs(Broker(), one, {"known"}.__contains__)
    for path in (paths.topic("new"), paths.topic("dying"), paths.deleted_topic("dying")):
        one.create_path(path)
    names = ("known", "new", "dying", "none", "", "../ids", "new/partitions")
    assert [name for name in names if configs.has_topic(name)] == ["known", "new"]


def test_stopping_does_not_wait_for_zookeeper() -> None:
    with (
        MemoryZooKeeper() as server,
        Proxy(server.port) as proxy,
        session(f"127.0.0.1:{proxy.port}") as one,
        session(server.address) as other,
    ):
        writer = BrokerConfigs(Broker(), other, NO_TOPICS.__contains__)
        writer.write_topic_config("t", {"max.message.bytes": "1"})
        broker = Broker()
        configs = BrokerConfigs(broker, one, NO_TOPICS.__contains__)
        configs.start()
        [thread] = [each for each in threading.enumerate() if each.name == "broker-7-configs"]
        with away(proxy, one):
            writer.write_topic_config("t", {"max.message.bytes": "2"})
            configs.read_again()
            wait_until(lambda: waits_for_a_connection(thread), what="the thread waits for ZooKeeper")
            stopping = threading.Thread(target=configs.stop, daemon=True)
            stopping.start()
            stopping.join(20)
            assert not stopping.is_alive()
            assert thread.is_alive()
        # ZooKeeper answers the thread, which gives the broker nothing any more.
        wait_until(lambda: not thread.is_alive(), what="the thread has ended")
        assert broker.topics == {"t": {"max.message.bytes": "1"}}


def waits_for_a_connection(thread: threading.Thread) -> bool:
    assert thread.ident is not None
    frame = sys._current_frames().get(thread.ident)
    return frame is not None and "submit" in {one.name for one in traceback.extract_stack(frame)}


def test_values_that_cannot_be_harm_nothing_else(
    one: ZooKeeperSession, caplog: pytest.LogCaptureFixture
) -> None:
    writer = BrokerConfigs(Broker(), one, NO_TOPICS.__contains__)
    writer.write_topic_config("bad", {"segment.bytes": "x" * 40_000})
    writer.write_topic_config("good", {"segment.bytes": "100"})
    writer.write_broker_config(None, {"log.segment.bytes": "many"})
    broker = Broker()
    configs = BrokerConfigs(broker, one, NO_TOPICS.__contains__)
    configs.start()
    assert broker.topics == {"good": {"segment.bytes": "100"}}
    writer.write_topic_config("bad", {"segment.bytes": "-1"})
    writer.write_topic_config("good", {"segment.bytes": "200"})
    wait_until(lambda: broker.topics["good"] == {"segment.bytes": "200"}, what="the changed config")
    writer.write_broker_config(7, {"log.segment.bytes": "-1"})
    writer.write_broker_config(None, {"log.segment.bytes": "300"})
    writer.write_broker_config(7, {"log.segment.bytes": "400"})
    wait_until(lambda: broker.dynamic[0] == {"log.segment.bytes": "400"}, what="the changed dynamic config")
    configs.stop()
    assert "the configs of topic bad stay as they were: Invalid value xxx" in caplog.text
    assert "its dynamic configs stay as they were: " in caplog.text
    assert "x" * 1_000 not in caplog.text


@pytest.mark.parametrize("name", ["zzz", "config_change_9999999999", "config_change_x", "a"])
def test_a_notification_of_another_name_hides_no_other(one: ZooKeeperSession, name: str) -> None:
    writer = BrokerConfigs(Broker(), one, NO_TOPICS.__contains__)
    writer.write_topic_config("t", {"segment.ms": "1"})
    broker = Broker()
    configs = BrokerConfigs(broker, one, NO_TOPICS.__contains__)
    configs.start()
    one.create(f"/config/changes/{name}", b"{")
    for value in ("2", "3"):
        writer.write_topic_config("t", {"segment.ms": value})
        wait_until(lambda value=value: broker.topics["t"] == {"segment.ms": value}, what="the change")  # type: ignore[misc]
    configs.stop()


def changes_are_taken_after_a_lost_connection(port: int, chroot: str = "") -> None:
    with (
        Proxy(port) as proxy,
        session(f"127.0.0.1:{proxy.port}{chroot}") as one,
        session(f"127.0.0.1:{port}{chroot}") as other,
    ):
        writer = BrokerConfigs(Broker(), other, NO_TOPICS.__contains__)
        writer.write_topic_config("t", {"max.message.bytes": "1"})
        broker = Broker()
        configs = BrokerConfigs(broker, one, NO_TOPICS.__contains__)
        configs.start()
        for number in (2, 4):
            with away(proxy, one):
                writer.write_topic_config("t", {"max.message.bytes": str(number)})
                writer.write_broker_config(7, {"background.threads": str(number)})
            for value in (str(number), str(number + 1)):
                wait_until(
                    lambda value=value: (  # type: ignore[misc]
                        broker.topics["t"] == {"max.message.bytes": value}
                        and broker.dynamic == ({"background.threads": value}, {})
                    ),
                    what=f"the configs of change {value}",
                )
                writer.write_topic_config("t", {"max.message.bytes": str(number + 1)})
                writer.write_broker_config(7, {"background.threads": str(number + 1)})
        one.close()
        configs.stop()


def test_changes_are_taken_after_a_lost_connection_to_nodes_in_memory() -> None:
    with MemoryZooKeeper() as server:
        changes_are_taken_after_a_lost_connection(server.port)


def test_changes_are_taken_after_a_lost_connection_to_zookeeper(
    zookeeper_server: ZooKeeperServer, zookeeper: str
) -> None:
    changes_are_taken_after_a_lost_connection(zookeeper_server.port, "/" + zookeeper.partition("/")[2])
