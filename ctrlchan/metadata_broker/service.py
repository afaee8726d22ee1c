"""A broker without a log directory: its state, and its answers."""

from __future__ import annotations

import dataclasses
from typing import Any

from ctrlchan.broker.config.broker_config import BrokerConfig
from ctrlchan.broker.core import BrokerCore
from ctrlchan.broker.metadata.metadata_cache import MetadataCache
from ctrlchan.broker.node import BrokerNode
from ctrlchan.metadata_broker.table import served_apis
from ctrlchan.server.request_handler import RequestHandler

__all__ = ["BrokerService"]


class BrokerService:
    """One broker that stores no records. ``MetadataBrokers`` listens for it."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.node = BrokerNode.of(config)
        self.core = BrokerCore(node=self.node, metadata=MetadataCache(config.cluster_id))
        self.handler = RequestHandler(self.core, served_apis(), self.core.lock)

    def use_cluster_id(self, cluster_id: str) -> None:
        """Take the id that ZooKeeper has."""
        self.node.cluster_id = self.core.metadata.state.cluster_id = cluster_id

    def listens_on(self, port: int) -> None:
        """Take the port of the listener."""
        if not self.core.endpoint.port:
            self.node.endpoint = dataclasses.replace(self.node.endpoint, port=port)
        self._port = port

    def registered(self, epoch: int) -> None:
        """Take the epoch of a new registration."""
        with self.core.lock:
            self.node.epoch = epoch

    @property
    def ports(self) -> dict[str, int]:
        """The port of each listener."""
        return {self.config.listener: self._port}

    def describe(self) -> dict[str, Any]:
        """Return what the broker holds and its counters, in values that JSON can carry."""
        with self.core.lock:
            return self.handler.describe()
