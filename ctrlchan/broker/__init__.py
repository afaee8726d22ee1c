"""The embedded broker: a thread or a process that answers controllers and clients like a Kafka broker.

In: frames on a socket. Out: responses, and a state that tests can inspect: the cluster as the controllers
have sent it (a ClusterState), and the replicas that the broker hosts. It answers as a Kafka 3.9 broker in
ZooKeeper mode does, down to the order of partitions in a response to a controller. It stores records when it
has a log directory.

It is stricter than Kafka with frames that no controller sends: bytes after the end of a control request,
names that are not UTF-8 and, in clients' requests, tagged fields that kio does not have close the connection.

Rooms: ``network`` reads and writes frames, ``apis`` has one file for each API key, ``metadata`` holds the
state, ``launch`` starts and ends brokers. This package imports nothing of the channel and the controller:
ours or Kafka's own may drive the broker.
"""

from __future__ import annotations

from ctrlchan.broker.launch.embedded import EmbeddedBroker
from ctrlchan.broker.launch.processes import BrokerProcesses

__all__ = ["BrokerProcesses", "EmbeddedBroker"]
