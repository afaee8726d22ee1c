"""The embedded broker: a process, or a thread, that a controller can drive and a client can ask.

In: frames on a socket. Out: responses, and a state that others can look at: what the controllers told it of
the cluster (a ClusterState) and which replicas it hosts. It answers as a Kafka 3.9 broker in ZooKeeper mode
does, down to the order of partitions in a response to a controller; it stores no records.

It is stricter than Kafka with what no controller sends: bytes after the end of a control request, names that
are not UTF-8 and, in clients' requests, tagged fields that kio does not know close the connection.

``server`` knows bytes and no requests, the files of the APIs know requests and no sockets. This room knows
nothing of channels and controllers: what drives it may be ours or Kafka's own.
"""

from __future__ import annotations

from ctrlchan.broker.launch.cluster import EmbeddedCluster
from ctrlchan.broker.launch.embedded import EmbeddedBroker

__all__ = ["EmbeddedBroker", "EmbeddedCluster"]
