"""Quotas of a user's own class (client.quota.callback.class): clients of a tenant share them."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ctrlchan import EmbeddedCluster
from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.handlers._hot import BrokerHandler
from ctrlchan.broker.handlers._produce import ProduceApi
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.metadata.published_metadata import PublishedMetadata
from ctrlchan.broker.metrics import quotas as metrics
from ctrlchan.broker.quota import callback
from ctrlchan.broker.quota._client_quotas import ClientQuotas, QuotaType
from ctrlchan.broker.quota._replication_quota import ReplicationQuota
from ctrlchan.broker.quota.callback import (
    AskedQuotas,
    make_quota_callback,
)
from ctrlchan.broker.quota.replication import ReplicationQuotas
from ctrlchan.broker.replica._partitions import PartitionTable
from ctrlchan.errors import ConfigError
from ctrlchan.security.principals import Principal
from ctrlchan.server.socket_server import SocketServer
from tests.kafka.waiting import wait_until
from tests.unit.broker.log.made_batches import batch
from tests.unit.broker.quota.tenants import Tenants
from tests.unit.broker.quota.test_clusters import TIMEOUT, alter, ask, milliseconds, part
from tests.unit.broker.quota.test_hot_requests import body_size
from tests.unit.broker.replica.fetching import topic_id
from tests.unit.broker.replica.serving import OURS, produce_frame, produced
from tests.unit.server.serving import LOCAL, Client

CLASS = f"{Tenants.__module__}.{Tenants.__name__}"
ALICE = Principal.user("alice")
RECORDS = batch([b"0123456789ab"])
PRODUCE = 0


@dataclass
class Metadata:
    """Metadata of one topic."""

    partitions: list[int]

    def topic_names(self) -> list[str]:
        return ["t"]

    def partitions_of(self, topic: str) -> Any:
        return np.array(self.partitions, np.int32)

    def leader(self, topic: str, partition: int) -> tuple[int, int] | None:
        return None


@dataclass
class Asked:
    quotas: ClientQuotas = field(default_factory=ClientQuotas)
    tenants: Tenants = field(default_factory=Tenants)

    def __post_init__(self) -> None:
        self.metadata = Metadata([0])
        self.asked = AskedQuotas(1, self.quotas, self.tenants, lambda: self.metadata)

    def produce(self, client: str, size: int, principal: Principal = ALICE) -> int:
        """Charge a Produce as a handler thread does; return its throttle time."""
        user = self.asked.number_user(principal)
        return self.quotas.charge_request(
            user, client.encode(), 0, is_exempt=True, quota_type=QuotaType.PRODUCE, size=size
        )

    def rates(self) -> dict[str, float]:
        return {
            self.asked.tags_of(kind, name).get("tenant", ""): rate
            for kind, name, _, rate, _, _ in self.quotas.sensors_now()
            if kind == QuotaType.PRODUCE
        }


@pytest.fixture
def asked() -> Iterator[Asked]:
    asked = Asked()
    asked.asked.start()
    yield asked
    asked.asked.stop()
    assert asked.tenants.is_closed


def test_clients_of_a_tenant_share_a_quota(asked: Asked) -> None:
    asked.tenants.limits = {"blue": 100.0}
    assert asked.produce("red-1", 10_000) == 0
    assert asked.produce("blue-1", 900) == 0
    # 1,800 bytes in the window of 10 s are 180 a second.
    assert 7_900 <= asked.produce("blue-2", 900) <= 8_000
    assert {name: round(rate) for name, rate in asked.rates().items()} == {"red": 1000, "blue": 180}


def test_the_class_is_asked_once_for_a_client(asked: Asked) -> None:
    for _ in range(3):
        asked.produce("blue-1", 1)
    asked.produce("blue-1", 1, Principal("Robot", "alice"))
    assert asked.tenants.calls == [
        (QuotaType.PRODUCE, ALICE, "blue-1"),
        (QuotaType.PRODUCE, Principal("Robot", "alice"), "blue-1"),
    ]


def test_a_changed_limit_holds_after_a_reset(asked: Asked) -> None:
    assert asked.produce("blue-1", 5_000) == 0
    asked.tenants.limits = {"blue": 100.0}
    assert asked.produce("blue-1", 1) == 0
    asked.tenants.is_changed = True
    wait_until(lambda: asked.produce("blue-1", 1) > 0, what="the limit is known")
    asked.tenants.limits = {}
    asked.tenants.is_changed = True
    wait_until(lambda: asked.produce("blue-1", 1) == 0, what="there is no limit any more")


def test_the_class_gets_the_quotas_in_zookeeper(asked: Asked) -> None:
    assert asked.produce("blue-1", 5_000) == 0
    asked.asked.set_limits([(None, "blue", [100.0, None, None, None]), ("bob", "", [None, 7.0, None, None])])
    assert asked.produce("blue-1", 1) > 0
    asked.asked.set_limits([(None, "blue", [200.0, None, None, None])])
    asked.asked.set_limits([])
    assert asked.produce("blue-1", 1) == 0
    assert [call for call in asked.tenants.calls if call[1] != ALICE] == [
        (QuotaType.PRODUCE, None, "blue", 100.0),
        (QuotaType.FETCH, "bob", "", 7.0),
        (QuotaType.PRODUCE, None, "blue", 200.0),
        (QuotaType.FETCH, "bob", ""),
        (QuotaType.PRODUCE, None, "blue"),
    ]


def test_the_class_has_the_metadata(asked: Asked) -> None:
    asked.metadata = Metadata([0, 1, 2])
    wait_until(lambda: asked.tenants.topics == {"t": [0, 1, 2]}, what="they have come")


def test_after_an_exception_there_is_no_limit_for_a_moment(
    asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    asked.tenants.limits, asked.tenants.fails = {"blue": 1.0}, True
    with caplog.at_level(logging.ERROR, "ctrlchan.broker"):
        assert asked.produce("blue-1", 10_000) == 0
    assert "broker 1: the quota callback failed in tags" in caplog.text
    assert "the tenants' database is away" in caplog.text
    asked.tenants.fails = False
    wait_until(lambda: asked.produce("blue-1", 10_000) > 0, what="the class is asked again")


@pytest.mark.parametrize(
    ("method", "returned"), [("tags", ["tenant"]), ("tags", None), ("limit", "1"), ("limit", math.nan)]
)
def test_a_class_that_returns_what_it_must_not(
    asked: Asked, caplog: pytest.LogCaptureFixture, method: str, returned: object
) -> None:
    """It is an error of the class, as an exception is: clients are served, and it is asked again."""
    asked.tenants.limits = {"blue": 1.0}
    right = getattr(asked.tenants, method)
    setattr(asked.tenants, method, lambda *_: returned)
    with caplog.at_level(logging.ERROR, "ctrlchan.broker"):
        assert asked.produce("blue-1", 10_000) == 0
    assert f"broker 1: the quota callback failed in {method}" in caplog.text
    setattr(asked.tenants, method, right)
    wait_until(lambda: asked.produce("blue-1", 10_000) > 0, what="the class is asked again")


def test_no_client_gets_into_the_quota_of_another_one_by_its_name(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its id may look as if it had more tags."""
    known = {"1": {"a": "1", "b": "x"}}
    monkeypatch.setattr(asked.tenants, "tags", lambda *seen: known.get(seen[2], {"a": seen[2]}))
    asked.produce("1", 1_000)
    asked.produce("1,b=x", 10)
    asked.produce('1"], ["b", "x', 10)
    rates = [rate for kind, _, _, rate, _, _ in asked.quotas.sensors_now() if kind == QuotaType.PRODUCE]
    assert sorted(map(round, rates)) == [1, 1, 100]


def test_a_limit_that_changes_while_it_is_asked_for(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of before the change is not kept."""
    limits = chain([1.0], repeat(None))

    def limit(*_: object) -> float | None:
        found = next(limits)
        if found is not None:
            asked.tenants.is_changed = True
            wait_until(lambda: not asked.tenants.is_changed, what="the thread has seen the change")
            # Once more: then the first one was done.
            asked.tenants.is_changed = True
            wait_until(lambda: not asked.tenants.is_changed, what="the thread has asked for all")
        return found

    monkeypatch.setattr(asked.tenants, "limit", limit)
    assert asked.produce("blue-1", 10_000) == 0
    assert asked.produce("blue-1", 10_000) == 0


def test_a_class_that_does_not_return_does_not_keep_the_broker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(callback, "_LAST_CALL", 0.1)
    asked, entered, released = Asked(), threading.Event(), threading.Event()

    def hang(_: QuotaType) -> bool:
        entered.set()
        return not released.wait(60)

    monkeypatch.setattr(asked.tenants, "is_reset_required", hang)
    asked.asked.start()
    assert entered.wait(60)
    asked.asked.stop()
    assert "the quota callback has not returned" in caplog.text
    released.set()


def test_tokens_of_mutations(asked: Asked) -> None:
    asked.tenants.limits = {"blue": 1.0}
    user = asked.asked.number_user(ALICE)
    assert asked.quotas.mutate(user, b"blue-1", 20, is_strict=True) == 0
    assert asked.quotas.mutate(user, b"blue-2", 1, is_strict=True) > 8_000
    assert asked.quotas.mutate(user, b"red-1", 1_000, is_strict=True) == 0


def test_metrics_have_the_tags(asked: Asked) -> None:
    asked.produce("blue-1", 1_000)
    server: Any = SimpleNamespace(
        core=SimpleNamespace(
            quotas=asked.quotas,
            asked_quotas=asked.asked,
            replication_quotas=ReplicationQuotas(*(ReplicationQuota() for _ in range(3))),
        )
    )
    labels = [
        sample.labels
        for family in metrics.collect(server)
        for sample in family.samples
        if sample.name == "kafka_server_produce_byte_rate"
    ]
    assert labels == [{"tenant": "blue", "user_type": "User"}]


def test_a_class_that_cannot_be_made() -> None:
    key = "client.quota.callback.class"
    assert make_quota_callback({}) is None
    with pytest.raises(ConfigError, match=f"{key}: 'no.such.Class' cannot be imported"):
        make_quota_callback({key: "no.such.Class"})
    with pytest.raises(ConfigError, match=r"is no subclass of .*ClientQuotaCallback"):
        make_quota_callback({key: f"{__name__}.Metadata"})


def test_requests_that_processors_answer(tmp_path: Path) -> None:
    """They count from the first one on; the class is asked meanwhile, and then they are throttled."""
    table = PartitionTable(OURS)
    metadata = PublishedMetadata()
    asked = Asked()
    hot = BrokerHandler([ProduceApi(table, metadata.current)], asked.quotas)
    server = SocketServer([LOCAL], hot=hot)
    hot.attach(server.threads)
    asked.tenants.limits = {"client": 1.0}
    asked.asked.start()
    server.start()
    led = table.open("t", 0, topic_id("t"))
    led.make_leader(Log(tmp_path / "t-0", LogConfig()), 3, 0, [OURS], [OURS])
    frame = produce_frame(9, [("t", [(0, RECORDS)])], acks=1)
    with Client(server) as client:
        count = 0

        def throttle_time() -> int:
            nonlocal count
            count += 1
            client.frames(frame)
            return milliseconds(produced(9, client.answer()))

        assert throttle_time() == 0
        wait_until(lambda: throttle_time() > 0, what="the class was asked")
    (rate,) = asked.rates().values()
    # A rate is that of ten seconds, and of some milliseconds more.
    assert 0.9 * count * body_size(frame, 9) < 10 * rate <= count * body_size(frame, 9)
    server.stop()
    asked.asked.stop()
    table.close()


def test_many_clients_at_once(asked: Asked) -> None:
    """Threads charge new clients while limits change: each tenant has the bytes of all its clients."""
    count, threads = 200, []

    def charge(tenant: str) -> None:
        for number in range(count):
            asked.produce(f"{tenant}-{number}", 10)

    for tenant in ("a", "b", "c", "d"):
        threads.append(threading.Thread(target=charge, args=(tenant,)))
        threads[-1].start()
    while any(thread.is_alive() for thread in threads):
        asked.tenants.is_changed = True
        time.sleep(0.01)  # The case itself: changes come while threads charge.
    for thread in threads:
        thread.join()
    found = asked.rates()
    assert sorted(found) == ["a", "b", "c", "d"]
    assert all(rate > 0 for rate in found.values())


def test_a_cluster() -> None:
    """Its broker asks the class, and tells it of the quotas that a client sets."""
    with EmbeddedCluster(1, configs={"client.quota.callback.class": CLASS}) as cluster:
        cluster.create_topic("t", partitions=1)

        def throttle_time(client_id: str) -> int:
            partition = part(PRODUCE, 9, "PartitionProduceData", index=0, records=RECORDS)
            topic = part(PRODUCE, 9, "TopicProduceData", name="t", partition_data=(partition,))
            asked = {"transactional_id": None, "acks": 1, "timeout": TIMEOUT, "topic_data": (topic,)}
            return milliseconds(ask(cluster, PRODUCE, 9, client_id=client_id, **asked))

        assert throttle_time("blue-1") == 0
        assert alter(cluster, {"client-id": "blue"}, producer_byte_rate=1.0) == 0
        wait_until(lambda: throttle_time("blue-1") > 0, what="the class has the quota")
        assert alter(cluster, {"client-id": "blue"}, producer_byte_rate=None) == 0
        wait_until(lambda: throttle_time("blue-1") == 0, what="the quota is gone")
