"""ServerCore: what the APIs of one listener answer from."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.handlers.producer_ids import Allocation, next_block
from ctrlchan.controller.server.metadata import ControllerMetadata
from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.controller.term.event_loop import EventLoop
from ctrlchan.controller.term.events import ControllerState
from ctrlchan.errors import ErrorCode, KafkaError, NotControllerError, SessionExpiredError
from ctrlchan.server.asyncio_server import CannotAnswer
from ctrlchan.state import Endpoint
from ctrlchan.zookeeper.quotas import QuotaEntity

__all__ = ["ClusterView", "ProducerIds", "ServerCore"]

A = TypeVar("A")
T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What Metadata and DescribeCluster answer from. Its reader holds ``metadata.state.lock``."""

    endpoint: Endpoint
    cluster_id: str
    metadata: ControllerMetadata


class ProducerIds:
    """Hands out producer ids of blocks that the controller allocates for itself, on the server's thread."""

    def __init__(self) -> None:
        self._next = self._end = 0
        self._allocating = asyncio.Lock()

    async def take(self, core: ServerCore) -> int | KafkaError:
        """Return an id that nobody else has, or the error to answer with."""
        async with self._allocating:
            if self._next == self._end:

                def allocate(controller: ControllerCore) -> Allocation:
                    return next_block(controller, core.id)

                block = await core.call(ControllerState.IDLE, "AllocateProducerIds", allocate)
                if isinstance(block, KafkaError):
                    return block
                if block.error:
                    return KafkaError(block.error)
                self._next, self._end = block.first, block.first + block.length
            self._next += 1
            return self._next - 1


class ServerCore:
    """Leads from the APIs of one listener to the event loop and to the state of the controller.

    ``endpoint``: the listener's advertised endpoint. ``current``: returns the core of this term, None while
    this is not the controller. ``read_cluster_id``: returns the id of the cluster. Both are thread-safe.
    ``producer_ids``: of all listeners.
    """

    def __init__(
        self,
        config: ControllerConfig,
        endpoint: Endpoint,
        loop: EventLoop[ControllerCore],
        current: Callable[[], ControllerCore | None],
        read_cluster_id: Callable[[], str],
        producer_ids: ProducerIds,
    ) -> None:
        self.config = config
        self.endpoint = endpoint
        self._loop = loop
        self._current = current
        self._read_cluster_id = read_cluster_id
        self.producer_ids = producer_ids

    @property
    def id(self) -> int:
        """The id of the controller, as that of a broker."""
        return self.config.controller_id

    def cluster(self) -> ClusterView:
        """Return what clients see of the cluster.

        Raises CannotAnswer while this is not the controller, or has not read the cluster yet: librdkafka
        forgets all brokers that a Metadata response leaves out, and would be alone with this server.
        """
        return ClusterView(self.endpoint, self._read_cluster_id(), ControllerMetadata(self._loaded().state))

    def read_topic_config(self, name: str) -> Mapping[str, str]:
        """Return the config of a topic from ZooKeeper. Takes long.

        Raises CannotAnswer as ``cluster``, ZooKeeperError.
        """
        return self._loaded().nodes.read_topic_config(name) or {}

    def read_broker_config(self, broker_id: int | None) -> Mapping[str, str]:
        """Return the dynamic config of a broker, or that of all brokers (None), in the same way."""
        return self._loaded().nodes.read_broker_config(broker_id)

    def read_quotas(self, types: Iterable[str]) -> Mapping[QuotaEntity, Mapping[str, str]]:
        """Return the configs of the users, client ids and IPs of these types. Takes long.

        Raises NotControllerError while this is not the controller, ZooKeeperError.
        """
        core = self._current()
        if core is None:
            raise NotControllerError
        return core.nodes.read_quotas(types)

    def _loaded(self) -> ControllerCore:
        core = self._current()
        if core is None or not core.is_loaded:
            raise CannotAnswer("this controller is not active, or is just taking over")
        return core

    async def call(
        self, kind: ControllerState, name: str, function: Callable[[ControllerCore], T]
    ) -> T | KafkaError:
        """Run ``function`` on the event loop's thread; return its result, or the error to answer with.

        ``name``: Kafka's name of the event, for logs.
        """
        return await self._result(self._loop.call(kind, function, name), name)

    async def call_jointly(
        self,
        kind: ControllerState,
        name: str,
        function: Callable[[ControllerCore, Sequence[A]], Sequence[T | Exception]],
        argument: A,
    ) -> T | KafkaError:
        """Do the same for several calls of a function at once, as ``EventLoop.call_jointly``."""
        return await self._result(self._loop.call_jointly(kind, function, argument, name), name)

    async def _result(self, future: Future[T], name: str) -> T | KafkaError:
        try:
            return await asyncio.wrap_future(future)
        except KafkaError as error:
            return error
        except SessionExpiredError as error:
            # Another controller may be elected already; this one is about to resign. The client asks again.
            _LOG.warning("%s was not done: %s", name, error)
            return KafkaError(ErrorCode.NOT_CONTROLLER)
        except Exception:  # noqa: BLE001  (Kafka answers so, and keeps the connection)
            _LOG.exception("%s failed", name)
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

    async def wait_until(self, condition: Callable[[ControllerCore], bool], timeout: float) -> None:
        """Wait until ``condition`` holds, the time is over, or this is not the controller any more."""
        try:
            await asyncio.wrap_future(self._loop.wait_until(condition, timeout))
        except NotControllerError:
            _LOG.info("a request that waited for its effect ends: this controller has resigned")

    def describe(self) -> dict[str, Any]:
        """Return the listener, in values that JSON can carry."""
        return {"listener": self.endpoint.listener, "host": self.endpoint.host, "port": self.endpoint.port}
