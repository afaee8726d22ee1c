"""A broker's registration in ZooKeeper: former sessions, later sessions, another session's node."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ctrlchan.broker import server
from ctrlchan.broker.config.broker_config import BrokerConfig
from ctrlchan.broker.config.log_configs import LogConfigs
from ctrlchan.broker.replica._partitions import PartitionTable
from ctrlchan.broker.server import BrokerServer
from ctrlchan.errors import ConfigError
from ctrlchan.launch.registration import Registrations
from ctrlchan.zookeeper import paths
from ctrlchan.zookeeper.memory.server import MemoryZooKeeper
from tests.fault.proxy import Proxy
from tests.kafka.waiting import wait_until
from tests.unit.batch.manual_channel import broker
from tests.unit.zookeeper.sessions import away, session


def test_a_registration_waits_for_a_former_one_over_a_lost_connection() -> None:
    epochs: dict[int, int] = {}
    with ExitStack() as cleanup:
        server = cleanup.enter_context(MemoryZooKeeper())
        proxy = cleanup.enter_context(Proxy(server.port))
        former = cleanup.enter_context(session(server.address))
        former.create_path(paths.BROKER_IDS)
        former.create(paths.broker(1), b"former", ephemeral=True)
        registrations = Registrations(f"127.0.0.1:{proxy.port}", epochs.__setitem__, session_timeout=60.0)
        cleanup.callback(registrations.stop)
        registrations.connect()
        waiting = threading.Event()
        watch_node = registrations.session.watch_node

        def watch(path, callback):  # type: ignore[no-untyped-def]
            node = watch_node(path, callback)
            waiting.set()
            return node

        registrations.session.watch_node = watch  # type: ignore[method-assign]
        registering = threading.Thread(target=registrations.register, args=([broker(1, -1)],), daemon=True)
        registering.start()
        assert waiting.wait(20)
        with away(proxy, registrations.session):
            former.delete(paths.broker(1))
        wait_until(lambda: epochs, what="the broker is registered")
        registering.join(20)
        node = former.get(paths.broker(1))
        assert node is not None
        assert epochs == {1: node.czxid}


def test_configs_are_read_again_after_each_later_registration(tmp_path: Path) -> None:
    """Also by a broker that does not serve yet: the watches of the former session are gone."""
    service = BrokerServer(BrokerConfig(id=1, log_dirs=[str(tmp_path)]))
    reads: list[int] = []
    store: Any = SimpleNamespace(read_again=lambda: reads.append(service.node.epoch))
    service._config_store = store
    for epoch in (5, 6, 7):
        service.registered(epoch)
    assert reads == [6, 7]


def test_configs_of_a_topic_that_cannot_be_are_not_used(caplog: pytest.LogCaptureFixture) -> None:
    configs = LogConfigs(1, {"log.segment.bytes": "100"}, threading.RLock())
    configs.own |= {"bad": {"segment.bytes": "many"}, "good": {"segment.bytes": "200"}}
    assert configs.of("bad") == configs.defaults
    assert configs.of("good").segment_bytes == 200
    assert (
        "the configs of topic bad are not used: Invalid value many for configuration segment.bytes"
        in caplog.text
    )


@pytest.mark.parametrize(
    "configs",
    [
        {"group.min.session.timeout.ms": "20000", "group.max.session.timeout.ms": "10000"},
        {"replica.fetch.max.bytes": "x"},
        {"num.io.threads": "0"},
        {"fetch.max.bytes": "1"},
    ],
)
def test_a_start_with_settings_that_cannot_be_makes_no_part(tmp_path: Path, configs: dict[str, str]) -> None:
    before = set(threading.enumerate())
    service = BrokerServer(BrokerConfig(id=1, log_dirs=[str(tmp_path)], configs=configs))
    with pytest.raises(ConfigError):
        service.start()
    assert [thread.name for thread in set(threading.enumerate()) - before] == []
    assert list(tmp_path.iterdir()) == []


def test_a_start_that_fails_closes_the_partition_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[PartitionTable] = []

    class Table(PartitionTable):
        def close(self) -> None:
            closed.append(self)
            super().close()

    def fail(*_: object) -> None:
        raise OSError("no part")

    monkeypatch.setattr(server, "PartitionTable", Table)
    monkeypatch.setattr(server, "GroupService", fail)
    with pytest.raises(OSError, match="no part"):
        BrokerServer(BrokerConfig(id=1, log_dirs=[str(tmp_path)])).start()
    assert len(closed) == 1
