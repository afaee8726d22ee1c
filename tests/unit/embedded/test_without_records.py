"""A broker without records logs the first Produce that it refuses."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from ctrlchan import CtrlchanError, EmbeddedBroker, EmbeddedCluster
from ctrlchan._codec import UPDATE_METADATA
from tests.kafka.wire import exchange
from tests.unit.broker.local_broker import LiveBroker, Part, control_frame

WARNING = (
    "broker 1 stores no records, and refuses those of client 'a-producer': start it with a log directory"
)


def produce(host: str, port: int) -> None:
    live = [LiveBroker(1, host=host, port=port)]
    exchange(host, port, control_frame(UPDATE_METADATA, 8, [Part("orders", 0, leader=1)], live=live))
    settings = {"client.id": "a-producer", "message.send.max.retries": 0, "log_level": 0}
    producer = Producer({"bootstrap.servers": f"{host}:{port}"} | settings)
    for _ in range(3):
        producer.produce("orders", b"1", partition=0)
        producer.flush(60)


def test_the_first_produce_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(1) as broker:
        produce("127.0.0.1", broker.port)
    assert [one.getMessage().startswith(WARNING) for one in caplog.records] == [True]


def test_a_cluster_says_so_on_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with EmbeddedCluster(log_dir=None) as cluster:
        endpoint = cluster.brokers[0].endpoints[0]
        produce(endpoint.host, endpoint.port)
    assert [line.startswith(WARNING) for line in capfd.readouterr().err.splitlines()] == [True]


def test_its_own_calls_say_so_at_once() -> None:
    with EmbeddedCluster(log_dir=None) as cluster:
        for call in (cluster.produce, cluster.records):
            with pytest.raises(CtrlchanError, match="store no records: it was given log_dir=None"):
                call("orders")
