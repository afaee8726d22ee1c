"""Other people's producers, with every codec that they have."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path

from confluent_kafka import KafkaError, Producer

import ctrlchan
from ctrlchan.broker.log._batches import read_header

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaProducer

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
RECORDS = 100


def lead(broker: ctrlchan.EmbeddedBroker, topic: str) -> None:
    """Let a channel make the broker the leader of one partition."""
    state = ctrlchan.ClusterState.empty(controller_id=0, controller_epoch=7)
    state.set_brokers([broker.broker])
    state.add_topic(topic, {0: [1]})
    state.update(state.rows_of_topic(topic), leader=[1], leader_epoch=0, isr=[[1]])
    with ctrlchan.ControllerChannelManager(ctrlchan.ChannelConfig(controller_id=0), 7) as channel:
        channel.startup(state.brokers)
        for make in (ctrlchan.ControlRequest.leader_and_isr, ctrlchan.ControlRequest.update_metadata):
            [outcome] = channel.wait(channel.send_requests([1], make(state, controller_epoch=7)))
            assert outcome.kind.value == "acknowledged"


def records_by_codec(log: Path) -> Counter[int]:
    data, position = log.read_bytes(), 0
    found: Counter[int] = Counter()
    while position < len(data):
        header = read_header(data, position)
        found[header.attributes & 7] += header.record_count
        position += header.size
    return found


def test_producers_compress_with_every_codec(tmp_path: Path) -> None:
    with ctrlchan.EmbeddedBroker(1, log_dir=str(tmp_path)) as broker:
        lead(broker, "t")
        endpoint = broker.broker.endpoints[0]
        address = f"{endpoint.host}:{endpoint.port}"
        failed: list[KafkaError] = []

        def note(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed.append(error)

        for codec in CODECS:
            producer = Producer(
                {
                    "bootstrap.servers": address,
                    "compression.type": codec,
                    "enable.idempotence": codec != "none",
                    "linger.ms": 20,
                }
            )
            for _ in range(RECORDS):
                producer.produce("t", b"value" * 50, partition=0, on_delivery=note)
            assert producer.flush(60) == 0
        assert failed == []
        for other in (None, "gzip"):
            sender = KafkaProducer(bootstrap_servers=address, compression_type=other, linger_ms=20)
            sent = [sender.send("t", b"value" * 50, partition=0) for _ in range(RECORDS)]
            assert sent[-1].get(timeout=60).offset >= RECORDS
            sender.close()
    [log] = tmp_path.glob("t-0/*.log")
    twice = {CODECS["none"], CODECS["gzip"]}
    assert records_by_codec(log) == {code: RECORDS * (1 + (code in twice)) for code in CODECS.values()}
