"""Cores of brokers with the parts that a test needs, without a server."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace
from typing import Any

from ctrlchan.broker.config.broker_settings import BrokerSettings
from ctrlchan.broker.core import BrokerCore
from ctrlchan.broker.metadata.metadata_cache import MetadataCache
from ctrlchan.broker.metadata.published_metadata import PublishedMetadata
from ctrlchan.broker.node import BrokerNode
from ctrlchan.broker.quota._client_quotas import ClientQuotas
from ctrlchan.broker.replica._partitions import PartitionTable
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.state import Endpoint, SecurityProtocol

__all__ = ["broker_core", "node_of", "storing_core"]


def node_of(broker_id: int, port: int = 9092, **more: Any) -> BrokerNode:
    endpoint = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", port)
    return BrokerNode(broker_id, more.pop("endpoint", endpoint), **more)


def broker_core(broker_id: int, **more: Any) -> BrokerCore:
    """Return the core of a broker that stores no records. ``more``: of its ``BrokerNode``."""
    node = node_of(broker_id, **more)
    return BrokerCore(node=node, metadata=MetadataCache(node.cluster_id))


def storing_core(
    broker_id: int,
    *,
    epoch: int = -1,
    port: int = 9092,
    partitions: PartitionTable | None = None,
    **parts: Any,
) -> StoringCore:
    """Return the core of a broker that stores records. Parts that are not given are None."""
    node = node_of(broker_id, port, epoch=epoch)
    given: dict[str, Any] = {field.name: None for field in fields(StoringCore)}
    del given["replicas"], given["lock"]
    given["settings"], given["quotas"] = BrokerSettings.of({}), ClientQuotas()
    given |= {"metadata": PublishedMetadata(node.cluster_id)} | parts | {"node": node}
    if partitions is not None:
        given["replica_manager"] = SimpleNamespace(table=partitions)
    return StoringCore(**given)
