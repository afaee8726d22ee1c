"""The metadata of a cluster as columns, in memory and on disk.

In: snapshots, Arrow tables, ZooKeeper, ``kafka-topics --describe`` text, decoded requests, single changes.
Out: the codec's columns (``Topics``, ``Partitions``, ``Brokers``), encoded without a copy. This room must
not import requests, connections or controllers. A partition is never a Python object in it, except where a
caller or a text names a single one.

``storage`` and ``importing`` are imported when they are used, not by this package: an embedded broker needs
neither Arrow nor ZooKeeper.
"""

from __future__ import annotations

from ctrlchan.protocol import NO_LEADER
from ctrlchan.state.brokers import Broker, Endpoint, SecurityProtocol, broker_at, brokers_from
from ctrlchan.state.cluster_state import ClusterState
from ctrlchan.state.difference import StateDifference
from ctrlchan.state.invariants import Violation
from ctrlchan.state.new_rows import NO_LEADERSHIP

__all__ = [
    "NO_LEADER",
    "NO_LEADERSHIP",
    "Broker",
    "ClusterState",
    "Endpoint",
    "SecurityProtocol",
    "StateDifference",
    "Violation",
    "broker_at",
    "brokers_from",
]
