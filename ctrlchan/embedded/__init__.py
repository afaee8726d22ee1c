"""A whole Kafka cluster without ZooKeeper and JVM: brokers in child processes, the controller in this one.

In: the settings of the brokers. Out: addresses for clients. The controller is ``KafkaController`` itself, on
nodes that are kept in memory: the brokers see what they see in a cluster with ZooKeeper.
"""

from __future__ import annotations

from ctrlchan.embedded.cluster import ClusterBroker, EmbeddedCluster

__all__ = ["ClusterBroker", "EmbeddedCluster"]
