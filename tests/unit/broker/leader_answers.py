"""Requests for partitions that another broker leads, and what their answers say of the leader."""

from __future__ import annotations

import uuid
from datetime import timedelta
from importlib import import_module
from typing import Any, NamedTuple

from kio.static.primitive import i32Timedelta

from tests.unit.broker.local_broker import client_frame, read_client_response, topic_id
from tests.unit.broker.log.made_batches import batch

PRODUCE, FETCH = 0, 1
SECOND = i32Timedelta.parse(timedelta(seconds=30))


class LeaderAnswer(NamedTuple):
    """The answer for one partition. ``nodes``: (id, host, port, rack) of each endpoint."""

    error: int
    leader: int = -1
    leader_epoch: int = -1
    nodes: tuple[tuple[int, str, int, str | None], ...] = ()


def fetch_frame(topic: str, *, version: int = 17, epoch: int = -1) -> bytes:
    """Return a Fetch of partition 0 of a topic, from its beginning, which does not wait."""
    schema: Any = import_module(f"kio.schema.fetch.v{version}.request")
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
    return client_frame(
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


def read_fetched(data: bytes, *, version: int = 17) -> LeaderAnswer:
    body = read_client_response(FETCH, version, data)
    ((partition,),) = (topic.partitions for topic in body.responses)
    return _answer(partition, body, named=version >= 16)


def produce_frame(topic: str, *, version: int = 11, acks: int = -1) -> bytes:
    """Return a Produce of one record for partition 0 of a topic."""
    schema: Any = import_module(f"kio.schema.produce.v{version}.request")
    partition = schema.PartitionProduceData(index=0, records=batch([b"value"]))
    wanted = schema.TopicProduceData(name=topic, partition_data=(partition,))
    return client_frame(
        PRODUCE, version, transactional_id=None, acks=acks, timeout=SECOND, topic_data=(wanted,)
    )


def read_produced(data: bytes, *, version: int = 11) -> LeaderAnswer:
    body = read_client_response(PRODUCE, version, data)
    ((partition,),) = (topic.partition_responses for topic in body.responses)
    return _answer(partition, body, named=version >= 10)


def _answer(partition: Any, body: Any, *, named: bool) -> LeaderAnswer:
    error = int(partition.error_code)
    if not named:
        return LeaderAnswer(error)
    nodes = tuple((node.node_id, node.host, node.port, node.rack) for node in body.node_endpoints)
    leader = partition.current_leader
    return LeaderAnswer(error, leader.leader_id, leader.leader_epoch, nodes)
