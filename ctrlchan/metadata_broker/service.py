"""A broker without a log directory, in a running event loop: its state, its APIs and its server."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ctrlchan.broker.config.broker_config import BrokerConfig
from ctrlchan.broker.core import BrokerCore
from ctrlchan.broker.metadata.metadata_cache import MetadataCache
from ctrlchan.broker.node import BrokerNode
from ctrlchan.metadata_broker.table import served_apis
from ctrlchan.server.asyncio_server import Server
from ctrlchan.server.request_handler import RequestHandler
from ctrlchan.state import Broker

__all__ = ["BrokerService", "answer_threads"]


def answer_threads() -> ThreadPoolExecutor:
    """Return the thread on which the brokers of one process make long answers, one at a time."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="broker-answers")


class BrokerService:
    """Runs one broker that stores no records.

    The event loop's thread alone changes ``core``. Threads of ``executor`` read the metadata, under the lock
    of its state.
    """

    def __init__(self, config: BrokerConfig, executor: ThreadPoolExecutor) -> None:
        self.config = config
        self.node = BrokerNode.of(config)
        self.core = BrokerCore(node=self.node, metadata=MetadataCache(config.cluster_id))
        self._handler = RequestHandler(self.core, served_apis(), executor=executor)
        self._server = Server(
            self._handler.serve,
            config.host,
            config.port,
            executor=executor,
            listener=config.listener,
            max_request_bytes=config.max_request_bytes,
            idle_timeout=config.idle_timeout,
            response_delay=config.response_delay,
        )

    def use_cluster_id(self, cluster_id: str) -> None:
        """Take the id that ZooKeeper has."""
        self.node.cluster_id = self.core.metadata.state.cluster_id = cluster_id

    async def start(self) -> Broker:
        """Listen, and return the broker with its port. Raises OSError."""
        port = await self._server.start()
        if not self.core.endpoint.port:
            self.node.endpoint = dataclasses.replace(self.node.endpoint, port=port)
        return self.core.broker

    @property
    def ports(self) -> dict[str, int]:
        """The port of each listener."""
        return {self.config.listener: self._server.port}

    async def stop(self) -> None:
        """Close the listener and every connection."""
        await self._server.stop()

    def describe(self) -> dict[str, Any]:
        """Return what the broker holds and its counters, in values that JSON can carry."""
        return self._handler.describe()
