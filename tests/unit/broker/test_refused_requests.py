"""Produce and Fetch fail in every version with an error that clients report; coordinators are found."""

from __future__ import annotations

import sys
import uuid
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from ctrlchan.errors import ProtocolError
from tests.unit.broker.local_broker import NO_TIME, OURS, LocalBroker, client_frame

PRODUCE, FETCH, FIND_COORDINATOR = 0, 1, 10
FOLLOWER, CONSUMER = 2, -1


def of_version(entity: Any, **fields: Any) -> Any:
    return entity(**{name: value for name, value in fields.items() if name in entity.__dataclass_fields__})


def produce_fields(version: int, acks: int) -> dict[str, Any]:
    schema: Any = sys.modules[load_request_schema(PRODUCE, version).__module__]
    data = tuple(schema.PartitionProduceData(index=index, records=b"abc") for index in (4, 0))
    topics = (schema.TopicProduceData(name="alpha", partition_data=data),)
    return {"acks": acks, "timeout": NO_TIME, "topic_data": topics}


def fetch_fields(version: int, replica_id: int) -> dict[str, Any]:
    schema: Any = sys.modules[load_request_schema(FETCH, version).__module__]
    partitions = tuple(
        of_version(schema.FetchPartition, partition=index, fetch_offset=7, partition_max_bytes=1)
        for index in (4, 0)
    )
    topic = of_version(schema.FetchTopic, topic="alpha", topic_id=uuid.UUID(int=5), partitions=partitions)
    fields: dict[str, Any] = {"max_wait": NO_TIME, "min_bytes": 1, "topics": (topic,)}
    if version >= 7:
        fields["forgotten_topics_data"] = ()
    if version >= 15:
        fields["replica_state"] = schema.ReplicaState(replica_id=replica_id)
    else:
        fields["replica_id"] = replica_id
    return fields


@pytest.mark.parametrize("version", range(12))
def test_produce_fails_for_each_partition(version: int) -> None:
    body = LocalBroker().client(PRODUCE, version, **produce_fields(version, acks=-1))
    (topic,) = body.responses
    assert topic.name == "alpha"
    assert [(one.index, one.error_code, one.base_offset) for one in topic.partition_responses] == [
        (4, ErrorCode.unsupported_version, -1),
        (0, ErrorCode.unsupported_version, -1),
    ]
    if version >= 8:
        assert "stores no records" in topic.partition_responses[0].error_message


@pytest.mark.parametrize("version", range(12))
def test_produce_without_acknowledgement_closes_the_connection(version: int) -> None:
    with pytest.raises(ProtocolError, match="stores no records"):
        LocalBroker().ask(client_frame(PRODUCE, version, **produce_fields(version, acks=0)))


@pytest.mark.parametrize("version", range(18))
@pytest.mark.parametrize(
    ("replica_id", "error"),
    [(FOLLOWER, ErrorCode.not_leader_or_follower), (CONSUMER, ErrorCode.unsupported_version)],
)
def test_fetch_fails_for_each_partition(version: int, replica_id: int, error: ErrorCode) -> None:
    body = LocalBroker().client(FETCH, version, **fetch_fields(version, replica_id))
    (topic,) = body.responses
    if version >= 13:
        assert topic.topic_id == uuid.UUID(int=5)
    else:
        assert topic.topic == "alpha"
    assert [(one.partition_index, one.error_code, one.high_watermark) for one in topic.partitions] == [
        (4, error, -1),
        (0, error, -1),
    ]
    assert {bytes(one.records) for one in topic.partitions} == {b""}
    if version >= 1:
        assert body.throttle_time.total_seconds() == 1
    if version >= 7:
        assert (body.error_code, body.session_id) == (ErrorCode.none, 0)


@pytest.mark.parametrize("version", range(7))
def test_this_broker_is_every_coordinator(version: int) -> None:
    fields: dict[str, Any] = {"coordinator_keys": ("g", "h")} if version >= 4 else {"key": "g"}
    body = LocalBroker().client(FIND_COORDINATOR, version, **fields)
    results = body.coordinators if version >= 4 else (body,)
    assert {(one.error_code, one.node_id, one.host, one.port) for one in results} == {
        (ErrorCode.none, OURS, "127.0.0.1", 9092)
    }
    if version >= 4:
        assert [one.key for one in results] == ["g", "h"]


def test_a_request_that_is_not_served_is_named() -> None:
    with pytest.raises(ProtocolError, match=r"ListOffsets \(API key 2\) is not served"):
        LocalBroker().ask((2).to_bytes(2, "big") + bytes(20))
