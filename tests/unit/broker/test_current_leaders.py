"""Answers that name the leader to a client that asked another broker (KIP-951)."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from kio.static.primitive import i32Timedelta

from ctrlchan._codec import LEADER_AND_ISR, UPDATE_METADATA
from ctrlchan.broker import EmbeddedBroker
from ctrlchan.errors import ErrorCode
from tests.kafka.waiting import wait_until
from tests.kafka.wire import exchange, receive_frame, send_frame
from tests.unit.broker.local_broker import (
    LiveBroker,
    Part,
    client_frame,
    control_frame,
    read_client_response,
    topic_id,
)
from tests.unit.broker.log.made_batches import batch

PRODUCE, FETCH = 0, 1
OTHER = LiveBroker(2, host="other", port=4242, rack="a rack")
ENDPOINTS = [(2, "other", 4242, "a rack")]
BOTH: Any = {"replicas": (1, 2), "isr": (1, 2)}
SECOND = i32Timedelta.parse(timedelta(seconds=30))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(1, log_dir=tmp_path / "logs") as started:
        yield started


def control(broker: EmbeddedBroker, *parts: Part) -> None:
    """Tell the broker about partitions: LeaderAndIsr for those that it has."""
    live = [LiveBroker(1, host="127.0.0.1", port=broker.port), OTHER]
    for api_key, version in ((UPDATE_METADATA, 8), (LEADER_AND_ISR, 7)):
        wanted = [part for part in parts if api_key == UPDATE_METADATA or 1 in part.replicas]
        if wanted:
            frame = control_frame(api_key, version, wanted, live=live, broker_epoch=-1)
            exchange("127.0.0.1", broker.port, frame)


def leaders(partition: Any, body: Any) -> tuple[int, int, list[tuple[Any, ...]]]:
    nodes = [(node.node_id, node.host, node.port, node.rack) for node in body.node_endpoints]
    return partition.current_leader.leader_id, partition.current_leader.leader_epoch, nodes


@pytest.mark.parametrize("version", [15, 16, 17])
def test_fetch_names_the_leader(broker: EmbeddedBroker, version: int) -> None:
    control(
        broker,
        Part("elsewhere", leader=2, leader_epoch=5, replicas=(2,), isr=(2,)),
        Part("here", leader=2, leader_epoch=7, **BOTH),
    )
    schema: Any = import_module(f"kio.schema.fetch.v{version}.request")

    def fetch(topic: str, epoch: int) -> tuple[int, Any]:
        more = {"replica_directory_id": uuid.UUID(int=0)} if version >= 17 else {}
        partition = schema.FetchPartition(
            partition=0,
            current_leader_epoch=epoch,
            fetch_offset=0,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=100,
            **more,
        )
        wanted = schema.FetchTopic(topic_id=uuid.UUID(bytes=topic_id(topic)), partitions=(partition,))
        frame = client_frame(
            FETCH,
            version,
            max_wait=i32Timedelta.parse(timedelta()),
            min_bytes=1,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=(wanted,),
            forgotten_topics_data=(),
        )
        body = read_client_response(FETCH, version, exchange("127.0.0.1", broker.port, frame))
        ((answered,),) = (topic.partitions for topic in body.responses)
        if version < 16:
            return int(answered.error_code), None
        return int(answered.error_code), leaders(answered, body)

    named = version >= 16
    assert fetch("elsewhere", -1) == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        (2, 5, ENDPOINTS) if named else None,
    )
    assert fetch("here", 3) == (ErrorCode.FENCED_LEADER_EPOCH, (2, 7, ENDPOINTS) if named else None)
    # Other errors do not name it.
    assert fetch("here", 8) == (ErrorCode.UNKNOWN_LEADER_EPOCH, (-1, -1, []) if named else None)
    assert fetch("unknown", -1)[0] == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [9, 10, 11])
def test_produce_names_the_leader(broker: EmbeddedBroker, version: int) -> None:
    schema: Any = import_module(f"kio.schema.produce.v{version}.request")

    def frame() -> bytes:
        partition = schema.PartitionProduceData(index=0, records=batch([b"value"]))
        topic = schema.TopicProduceData(name="moved", partition_data=(partition,))
        return client_frame(
            PRODUCE, version, transactional_id=None, acks=-1, timeout=SECOND, topic_data=(topic,)
        )

    def answered(data: bytes) -> Any:
        body = read_client_response(PRODUCE, version, data)
        ((partition,),) = (topic.partition_responses for topic in body.responses)
        assert partition.error_code.value == ErrorCode.NOT_LEADER_OR_FOLLOWER
        return leaders(partition, body) if version >= 10 else None

    def watchers_of_moved(core: Any) -> int:
        return int(core.partitions.get("moved", 0).watchers)

    # One that waits for the follower while the leader moves is answered by the processor.
    control(broker, Part("moved", leader_epoch=1, **BOTH))
    with socket.create_connection(("127.0.0.1", broker.port), timeout=30) as connection:
        send_frame(connection, frame())
        wait_until(
            lambda: broker.inspect(watchers_of_moved) == 1,
            what="the request waits",
        )
        control(broker, Part("moved", leader=2, leader_epoch=2, **BOTH))
        expected = (2, 2, ENDPOINTS) if version >= 10 else None
        assert answered(receive_frame(connection)) == expected
        # A later one is answered by a handler thread.
        send_frame(connection, frame())
        assert answered(receive_frame(connection)) == expected
