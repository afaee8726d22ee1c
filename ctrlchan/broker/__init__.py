"""The embedded broker: answers controllers and clients like a Kafka broker, in this process or in a child.

In: frames on a socket. Out: responses, and a state that tests can inspect: the cluster as the controllers
have sent it (a ClusterState), and the replicas that the broker hosts. It answers as a Kafka 3.9 broker in
ZooKeeper mode does, down to the order of partitions in a response to a controller. A broker without a log
directory has one thread and hosts replicas without records. One with log directories stores records: it has
the threads of Kafka's broker, follows leaders, coordinates groups, and asks the controller.

It is stricter than Kafka with frames that no controller sends: bytes after the end of a control request,
names that are not UTF-8 and, in the clients' requests that kio reads, tagged fields that kio does not have
close the connection.

Rooms: ``network`` reads and writes frames, ``apis`` answers requests, ``metadata`` holds the metadata cache,
the hosted replicas and the configs, ``launch`` starts and ends brokers. Brokers that store records have also
``log``, ``replication``, ``coordinator`` with ``groups``, and ``controller``, their way to the controller.
This package imports nothing of ``ctrlchan.channel`` and ``ctrlchan.controller``: ours or Kafka's own
controller may drive the broker.
"""

from __future__ import annotations

from ctrlchan.broker.launch.embedded import EmbeddedBroker
from ctrlchan.broker.launch.processes import BrokerProcesses

__all__ = ["BrokerProcesses", "EmbeddedBroker"]
