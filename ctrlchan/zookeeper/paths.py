"""Paths of Kafka's nodes in ZooKeeper, below the chroot. Source: ``kafka.zk.ZkData`` (Kafka 3.9)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

__all__ = [
    "BROKER_IDS",
    "CLUSTER_ID",
    "CONTROLLER",
    "CONTROLLER_EPOCH",
    "DELETED_TOPICS",
    "TOPICS",
    "TOPIC_CONFIGS",
    "Kind",
    "Place",
    "broker",
    "deleted_topic",
    "partition",
    "partition_state",
    "partitions",
    "place_of",
    "topic",
    "topic_config",
]

CLUSTER_ID: Final = "/cluster/id"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
#: Parent of the registrations of live brokers.
BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
TOPIC_CONFIGS: Final = "/config/topics"
#: Parent of the names of topics that are queued for deletion.
DELETED_TOPICS: Final = "/admin/delete_topics"


def broker(broker_id: int | str) -> str:
    """Return the path of a broker's registration."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """Return the path of a topic: its id and its assignment."""
    return f"{TOPICS}/{name}"


def partitions(topic_name: str) -> str:
    """Return the parent path of a topic's partitions."""
    return f"{TOPICS}/{topic_name}/partitions"


def partition(topic_name: str, number: int | str) -> str:
    """Return the path of a partition."""
    return f"{TOPICS}/{topic_name}/partitions/{number}"


def partition_state(topic_name: str, number: int | str) -> str:
    """Return the path of a partition's leader and ISR."""
    return f"{TOPICS}/{topic_name}/partitions/{number}/state"


def topic_config(name: str) -> str:
    """Return the path of a topic's configuration."""
    return f"{TOPIC_CONFIGS}/{name}"


def deleted_topic(name: str) -> str:
    """Return the path that queues a topic for deletion."""
    return f"{DELETED_TOPICS}/{name}"


class Kind(StrEnum):
    """What a node holds."""

    CLUSTER_ID = "cluster id"
    CONTROLLER = "controller"
    CONTROLLER_EPOCH = "controller epoch"
    BROKER = "broker"
    TOPIC = "topic"
    PARTITION_STATE = "partition state"
    DELETED_TOPIC = "deleted topic"
    OTHER = "other"


class Place(NamedTuple):
    """What a path names. ``topic`` and ``number`` are empty where the kind has none.

    ``number``: the broker id or the partition as the path writes it, unchecked.
    """

    kind: Kind
    topic: str = ""
    number: str = ""


_SINGLE: Final = {
    CLUSTER_ID: Place(Kind.CLUSTER_ID),
    CONTROLLER: Place(Kind.CONTROLLER),
    CONTROLLER_EPOCH: Place(Kind.CONTROLLER_EPOCH),
}
_OTHER: Final = Place(Kind.OTHER)


def place_of(path: str) -> Place:
    """Return what a path below the chroot names; ``Kind.OTHER`` for every path that is not listed above."""
    match path.split("/"):
        case ["", "brokers", "topics", name, "partitions", number, "state"] if name and number:
            return Place(Kind.PARTITION_STATE, name, number)
        case ["", "brokers", "topics", name] if name:
            return Place(Kind.TOPIC, name)
        case ["", "brokers", "ids", number] if number:
            return Place(Kind.BROKER, number=number)
        case ["", "admin", "delete_topics", name] if name:
            return Place(Kind.DELETED_TOPIC, name)
    return _SINGLE.get(path, _OTHER)
