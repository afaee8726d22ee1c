"""What the requests of several subjects share: topics, and their records."""

from __future__ import annotations

import uuid
from typing import Any, Final

from tests.acceptance.same_answers.recorder import Broker
from tests.unit.broker.log.batches import PlainRecord, batch_of

__all__ = ["UNKNOWN_ID", "create_topic", "plain", "produce", "topic_id"]

UNKNOWN_ID: Final = uuid.UUID(int=0xABCDEF)
_TIMEOUT_MS: Final = 30_000
_TOO_FEW_BROKERS: Final = 38


def create_topic(broker: Broker, name: str, partitions: int = 1, **configs: str) -> None:
    """Create a topic; wait until the broker leads it."""
    answer = broker.wait(
        # The controller has not seen the broker yet when it has just started.
        lambda answer: answer["Topics"][0]["ErrorCode"] != _TOO_FEW_BROKERS,
        "CreateTopics",
        7,
        Topics=[
            {
                "Name": name,
                "NumPartitions": partitions,
                "ReplicationFactor": 1,
                "Configs": [
                    {"Name": key.replace("_", "."), "Value": value} for key, value in configs.items()
                ],
            }
        ],
        timeoutMs=_TIMEOUT_MS,
    )
    assert answer["Topics"][0]["ErrorCode"] == 0, answer
    broker.wait(
        lambda answer: [one["LeaderId"] for one in answer["Topics"][0]["Partitions"]] == [1] * partitions,
        "Metadata",
        12,
        Topics=[{"Name": name}],
    )
    # A leader that is known to all may not know it itself yet.
    broker.wait(
        lambda answer: not any(one["ErrorCode"] for one in answer["Topics"][0]["Partitions"]),
        "ListOffsets",
        9,
        ReplicaId=-1,
        Topics=[
            {"Name": name, "Partitions": [{"PartitionIndex": i, "Timestamp": -2} for i in range(partitions)]}
        ],
    )


def topic_id(broker: Broker, name: str) -> uuid.UUID:
    """Return the id of a topic."""
    found: uuid.UUID = broker.look("Metadata", 12, Topics=[{"Name": name}])["Topics"][0]["TopicId"]
    return found


def plain(*values: str, codec: int = 0, **fields: Any) -> bytes:
    """Return a batch of records with these values; a second lies between two timestamps."""
    records = [
        PlainRecord(number, timestamp_delta=1000 * number, value=value.encode())
        for number, value in enumerate(values)
    ]
    return batch_of(records, codec, **fields).encoded()


def produce(broker: Broker, topic: str, data: bytes, partition: int = 0) -> None:
    """Append a batch, which must succeed."""
    answer = broker.look("Produce", 11, **one_produce(topic, data, partition))
    assert answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"] == 0, answer


def one_produce(topic: str, data: bytes | None, partition: int = 0, acks: int = -1) -> dict[str, Any]:
    """Return the fields of a Produce for one partition."""
    return {
        "TransactionalId": None,
        "Acks": acks,
        "TimeoutMs": _TIMEOUT_MS,
        "TopicData": [{"Name": topic, "PartitionData": [{"Index": partition, "Records": data}]}],
    }
