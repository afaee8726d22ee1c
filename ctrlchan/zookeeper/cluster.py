"""Everything that a controller reads from Kafka's nodes and writes to them."""

from __future__ import annotations

from ctrlchan.zookeeper.admin_requests import AdminRequestNodes
from ctrlchan.zookeeper.brokers import BrokerNodes
from ctrlchan.zookeeper.election import ElectionNodes
from ctrlchan.zookeeper.notifications import NotificationNodes
from ctrlchan.zookeeper.partition_states import PartitionStateNodes
from ctrlchan.zookeeper.quotas import QuotaNodes
from ctrlchan.zookeeper.topics import TopicNodes

__all__ = ["ClusterNodes"]


class ClusterNodes(
    ElectionNodes,
    BrokerNodes,
    TopicNodes,
    PartitionStateNodes,
    NotificationNodes,
    AdminRequestNodes,
    QuotaNodes,
):
    """Kafka's nodes in ZooKeeper as values and columns; no caller sees a path's data or JSON.

    Every write but an election is a multi with a check of ``/controller_epoch`` at ``epoch_zk_version``, and
    raises ControllerMovedError when another controller was elected. Lost answers are read back. Bulk reads do
    not raise for malformed nodes: they return path or row, and reason. A session that ended raises
    SessionExpiredError, one without an answer waits.
    """
