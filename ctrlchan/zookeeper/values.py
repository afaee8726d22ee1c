"""What is read from Kafka's nodes and written to them, as values and columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn
from ctrlchan.zookeeper.nodes import Listener
from ctrlchan.zookeeper.operations import Node

__all__ = [
    "BrokersRead",
    "ControllerEpoch",
    "ControllerNode",
    "Elected",
    "ElectionRead",
    "FeatureNode",
    "PartitionStateColumns",
    "PartitionStatesRead",
    "PartitionsNamed",
    "ProducerIdBlock",
    "Reassignments",
    "RegisteredBroker",
    "TopicsRead",
    "Written",
]

Int32 = npt.NDArray[np.int32]
UInt8 = npt.NDArray[np.uint8]


class ControllerNode(NamedTuple):
    """``/controller``. ``kraft_epoch``: -1 unless a KRaft controller has taken over (a migration)."""

    broker_id: int
    kraft_epoch: int
    version: int
    ephemeral_owner: int
    czxid: int


class ControllerEpoch(NamedTuple):
    """``/controller_epoch``: the epoch, and the version of its node, which every write checks."""

    epoch: int
    zk_version: int


class ElectionRead(NamedTuple):
    """``/controller``, and ``/controller_epoch`` unparsed, as they were at one moment; None: no such node."""

    controller: ControllerNode | None
    epoch: Node | None


class Elected(NamedTuple):
    """A won election."""

    epoch: int
    epoch_zk_version: int


class RegisteredBroker(NamedTuple):
    """A live broker. ``epoch``: the czxid of its registration. ``features``: name -> (lowest, highest)."""

    id: int
    epoch: int
    listeners: tuple[Listener, ...]
    rack: str | None
    features: dict[str, tuple[int, int]]


class BrokersRead(NamedTuple):
    """Live brokers in the order of their ids. ``malformed``: path -> reason, of those left out."""

    brokers: list[RegisteredBroker]
    malformed: dict[str, str]


class TopicsRead(NamedTuple):
    """Topics and their partitions, ascending by topic row and partition.

    ``names``: of the topics that were found. ``ids``: uint8[topics, 16], all zero where a topic has none.
    ``versions``: int32[topics], of the topics' nodes. ``topic_row``, ``partition``: int32[n], and three list
    columns of n lists of broker ids. ``malformed``: path -> reason, of topics that were left out.
    """

    names: list[bytes]
    ids: UInt8
    versions: Int32
    topic_row: Int32
    partition: Int32
    replicas: ListColumn
    adding: ListColumn
    removing: ListColumn
    malformed: dict[str, str]


@dataclass(frozen=True, slots=True)
class PartitionStateColumns:
    """The state nodes of n partitions: int32[n] each, and n lists of broker ids.

    ``leader``: -1 for none. ``recovery_state``: 0 recovered, 1 recovering.
    """

    leader: Int32
    leader_epoch: Int32
    controller_epoch: Int32
    recovery_state: Int32
    isr: ListColumn


@dataclass(frozen=True, slots=True)
class PartitionStatesRead(PartitionStateColumns):
    """``version``: int32[n], of the state nodes, which is Kafka's partition epoch; -1: there is no node.

    ``malformed``: row -> reason. Rows without a node, and malformed ones, have leader and epochs -1 and no
    ISR.
    """

    version: Int32
    malformed: dict[int, str]


class Written(NamedTuple):
    """Results of n writes: ``version`` int32[n], of the nodes now; ``error`` int32[n], a ``ResultCode``."""

    version: Int32
    error: Int32


class PartitionsNamed(NamedTuple):
    """Partitions that nodes name, each once, in order. ``malformed``: path -> reason."""

    partitions: list[tuple[str, int]]
    malformed: Mapping[str, str] = MappingProxyType({})


class Reassignments(NamedTuple):
    """``/admin/reassign_partitions``: (topic, partition) -> new replicas, and reasons against entries."""

    partitions: dict[tuple[str, int], list[int]]
    reasons: tuple[str, ...] = ()


class ProducerIdBlock(NamedTuple):
    """``/latest_producer_id_block``: the producer ids ``first`` to ``last`` were given to a broker."""

    broker_id: int
    first: int
    last: int
    version: int


class FeatureNode(NamedTuple):
    """``/feature``: name -> finalized version. ``format_version``: 1, or 2 from inter-broker protocol 3.3."""

    format_version: int
    enabled: bool
    features: dict[str, int]
    version: int
