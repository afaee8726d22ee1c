"""The request batch decides which rows of the state go to which broker, and in which order.

In: rows of a ``ClusterState`` with flags, brokers, request versions. Out: one ``ControlRequest`` for each
(API, version, selection of rows), handed to the channel, and lines of the state-change log. Nothing here
depends on queues or connections.
"""

from __future__ import annotations

from ctrlchan.batch.request_batch import ControllerBrokerRequestBatch

__all__ = ["ControllerBrokerRequestBatch"]
