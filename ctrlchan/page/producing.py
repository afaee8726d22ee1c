"""Writes one message to a topic."""

from __future__ import annotations

import random
import time
from typing import Any, Final

from ctrlchan.embedded.batches import Header, encode_records, partition_of
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.page.brokers import PRODUCE, Brokers, check
from ctrlchan.page.offsets import leaders_of
from ctrlchan.peers.connection import Address
from ctrlchan.peers.messages import duration

__all__ = ["produce"]

_ALL_IN_SYNC: Final = -1
_TIMEOUT: Final = 4.0
#: Until a partition has a leader that takes the message.
_MOVING: Final = (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
#: The same of a leader that the metadata name: that of a new topic may not have heard of it yet.
_MOVING_OF_LEADER: Final = (*_MOVING, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_MOVING_SECONDS: Final = 3.0
_PAUSE_SECONDS: Final = 0.1


def produce(
    brokers: Brokers,
    topic: str,
    partition: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: list[Header],
) -> dict[str, Any]:
    """Write a message, and return its partition and offset when all in-sync replicas have it.

    Without ``partition`` the key chooses it, as in Kafka's producer, and chance does without a key. Raises
    KafkaError.
    """
    timestamp = time.time_ns() // 1_000_000
    record = encode_records([value], key, headers, timestamp)
    deadline = time.monotonic() + _MOVING_SECONDS
    while True:
        moving: tuple[ErrorCode, ...] = _MOVING
        try:
            number, leader = _choose(brokers, topic, partition, key)
            moving = _MOVING_OF_LEADER
            offset = _append(brokers, leader, topic, number, record)
        except KafkaError as error:
            # Nothing was written: the leader is new, or another one will be in the metadata soon.
            if error.code not in moving or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return {"topic": topic, "partition": number, "offset": offset, "timestamp": timestamp}


def _choose(brokers: Brokers, topic: str, partition: int | None, key: bytes | None) -> tuple[int, Address]:
    """Return a partition and the address of its leader."""
    metadata = brokers.metadata([topic])
    check(metadata.topics[0].error_code.value, topic)
    leaders = {number: leader for (_, number), leader in leaders_of(metadata).items()}
    if partition is None:
        if key is not None:
            partition = partition_of(key, len(leaders))
        else:
            partition = random.choice([one for one in leaders if leaders[one] is not None] or list(leaders))
    if partition not in leaders:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has no partition {partition}")
    leader = leaders[partition]
    if leader is None:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition}")
    return partition, leader


def _append(brokers: Brokers, leader: Address, topic: str, partition: int, record: bytes) -> int:
    """Return the offset of the record in the leader's log."""
    data = PRODUCE.part("PartitionProduceData", index=partition, records=record)
    answer = brokers.ask(
        leader,
        PRODUCE,
        acks=_ALL_IN_SYNC,
        timeout=duration(_TIMEOUT),
        topic_data=(PRODUCE.part("TopicProduceData", name=topic, partition_data=(data,)),),
    )
    found = answer.responses[0].partition_responses[0]
    check(found.error_code.value, f"{topic}-{partition}", found.error_message)
    return int(found.base_offset)
