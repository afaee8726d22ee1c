"""The request batch: decides which rows of the cluster's state go to which broker, and in which order.

In: rows of a ``ClusterState`` with flags, brokers, request versions. Out: one ``ControlRequest`` for each
(API, version,
selection of rows), handed to the channel, and lines of the state-change log. This room knows no queues and
no connections.
"""

from __future__ import annotations

from ctrlchan.batch.request_batch import ControllerBrokerRequestBatch

__all__ = ["ControllerBrokerRequestBatch"]
