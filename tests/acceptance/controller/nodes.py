"""What ZooKeeper has of topics, as a client sees it that is no part of the package under test."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

__all__ = [
    "Controller",
    "PartitionNode",
    "children",
    "controller",
    "controller_epoch",
    "partition_nodes",
    "topic_id",
    "topic_names",
]


@dataclass(frozen=True)
class PartitionNode:
    """A partition: of the topic's node its replicas, of its state node the rest. Leader -2: no state node."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    leader: int = -2
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    controller_epoch: int = -1


@dataclass(frozen=True)
class Controller:
    """``/controller``: the id and the node's czxid, which is another one after each election."""

    id: int
    czxid: int


def controller(client: KazooClient) -> Controller | None:
    """Return who the controller is, None while nobody is."""
    found = _json(client, "/controller")
    return None if found is None else Controller(int(found[0]["brokerid"]), found[1])


def controller_epoch(client: KazooClient) -> int:
    """Return ``/controller_epoch``, 0 where there is none."""
    found = _json(client, "/controller_epoch")
    return 0 if found is None else int(found[0])


def topic_names(client: KazooClient) -> set[str]:
    """Return the names of all topics."""
    return children(client, "/brokers/topics")


def children(client: KazooClient, path: str) -> set[str]:
    """Return the children of a node, none where the node is not there."""
    try:
        return set(client.get_children(path))
    except NoNodeError:
        return set()


def topic_id(client: KazooClient, topic: str) -> bytes:
    """Return the topic's id, no bytes where it has none."""
    found = _json(client, f"/brokers/topics/{topic}")
    text = "" if found is None else found[0].get("topic_id", "")
    return base64.urlsafe_b64decode(text + "==") if text else b""


def partition_nodes(
    client: KazooClient, topics: set[str] | None = None
) -> dict[tuple[str, int], PartitionNode]:
    """Return the partitions of these topics, None for all; topics that are not there are left out."""
    partitions = {}
    for topic in sorted(topic_names(client) if topics is None else topics):
        found = _json(client, f"/brokers/topics/{topic}")
        if found is None:
            continue
        assignment = found[0]
        for text, replicas in assignment["partitions"].items():
            lists = (
                tuple(replicas),
                tuple(assignment.get("adding_replicas", {}).get(text, ())),
                tuple(assignment.get("removing_replicas", {}).get(text, ())),
            )
            state = _json(client, f"/brokers/topics/{topic}/partitions/{text}/state")
            if state is None:
                partitions[topic, int(text)] = PartitionNode(*lists)
            else:
                partitions[topic, int(text)] = PartitionNode(
                    *lists,
                    leader=int(state[0]["leader"]),
                    leader_epoch=int(state[0]["leader_epoch"]),
                    isr=tuple(state[0]["isr"]),
                    controller_epoch=int(state[0]["controller_epoch"]),
                )
    return partitions


def _json(client: KazooClient, path: str) -> tuple[Any, int] | None:
    try:
        data, stat = client.get(path)
    except NoNodeError:
        return None
    return json.loads(data), int(stat.czxid)
