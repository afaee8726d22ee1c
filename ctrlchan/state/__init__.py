"""The cluster as columns, on disk and in memory.

In: snapshots, Arrow tables, ZooKeeper, ``kafka-topics --describe`` text, decoded requests, single changes.
Out: the codec's columns (``Topics``, ``Partitions``, ``Brokers``), to be encoded without a copy. This room
knows nothing of requests, connections or controllers; a partition is never a Python object in it, except
where a person or a text names a single one.

Arrow and ZooKeeper are imported by those who read or write them, not by this package: a sender process or an
embedded broker carries neither.
"""

from __future__ import annotations

from ctrlchan.state.brokers import Broker, Endpoint, SecurityProtocol, broker_at, brokers_from
from ctrlchan.state.cluster_state import ClusterState
from ctrlchan.state.difference import StateDifference
from ctrlchan.state.invariants import Violation
from ctrlchan.state.new_rows import NO_LEADER, NO_LEADERSHIP

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
