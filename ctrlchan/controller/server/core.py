"""ServerCore: what the APIs of one listener answer from."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.events.event_loop import EventLoop
from ctrlchan.controller.handlers.producer_ids import next_block
from ctrlchan.controller.server.metadata import ControllerMetadata
from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.errors import ErrorCode, KafkaError, NotControllerError, SessionExpiredError
from ctrlchan.server.api import Buffers, CannotAnswer
from ctrlchan.server.apis.api_versions import FinalizedFeatures
from ctrlchan.server.delegation_tokens.delegation_tokens import DelegationTokens
from ctrlchan.server.futures import then
from ctrlchan.server.request_context import RequestContext
from ctrlchan.state import Endpoint
from ctrlchan.zookeeper.quotas import QuotaEntity

__all__ = ["ClusterView", "ProducerIds", "ServerCore"]

A = TypeVar("A")
R = TypeVar("R")
T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What Metadata and DescribeCluster answer from. Its reader holds ``metadata.state.lock``."""

    cluster_id: str
    metadata: ControllerMetadata


class ProducerIds:
    """Hands out producer ids of blocks that the controller allocates for itself. Any thread may take one."""

    def __init__(self) -> None:
        self._next = self._end = 0
        self._lock = threading.Lock()

    def take(self) -> int | None:
        """Return an id that nobody else has, or None if a block must be allocated first."""
        with self._lock:
            if self._next == self._end:
                return None
            self._next += 1
            return self._next - 1

    def allocate(self, controller: ControllerCore) -> int:
        """Return an id, of another block if there is none left; on the event loop's thread.

        Raises KafkaError if there is no block.
        """
        taken = self.take()
        if taken is not None:
            return taken
        block = next_block(controller, controller.config.controller_id)
        if block.error:
            raise KafkaError(block.error)
        with self._lock:
            self._next, self._end = block.first + 1, block.first + block.length
        return block.first


class ServerCore:
    """Leads from the APIs of one listener to the event loop and to the state of the controller.

    ``endpoint``: the listener's advertised endpoint. ``current``: returns the core of this term, None while
    this is not the controller. ``read_cluster_id``: returns the id of the cluster. Both are thread-safe.
    ``producer_ids``: of all listeners. ``replies``: makes the answers, after the event loop has done what was
    asked for: the event loop must not wait for that. ``tokens``: the delegation tokens, or None. ``serve``:
    answers a frame, as the listener does.
    """

    def __init__(
        self,
        config: ControllerConfig,
        endpoint: Endpoint,
        loop: EventLoop[ControllerCore],
        current: Callable[[], ControllerCore | None],
        read_cluster_id: Callable[[], str],
        producer_ids: ProducerIds,
        replies: Executor,
        tokens: DelegationTokens | None = None,
    ) -> None:
        self.config = config
        self.endpoint = endpoint
        self._loop = loop
        self._current = current
        self._read_cluster_id = read_cluster_id
        self.producer_ids = producer_ids
        self._replies = replies
        self.tokens = tokens
        #: Set by the server of the listener.
        self.serve: Callable[[memoryview, RequestContext], Buffers | Future[Buffers]]

    @property
    def id(self) -> int:
        """The id of the controller, as that of a broker."""
        return self.config.controller_id

    @property
    def is_active(self) -> bool:
        """Whether this is the controller. An API of which Kafka answers NOT_CONTROLLER first asks it."""
        return self._current() is not None

    @property
    def is_for_brokers(self) -> bool:
        """Whether brokers ask the controller on this listener."""
        return self.config.is_for_brokers(self.endpoint.listener)

    def features(self) -> FinalizedFeatures | None:
        """Return the finalized features; None while this is not the controller, or where there are none."""
        core = self._current()
        if core is None or core.features is None:
            return None
        return FinalizedFeatures(core.features.features, core.features.version)

    def cluster(self) -> ClusterView:
        """Return what clients see of the cluster.

        Raises CannotAnswer while this is not the controller, or has not read the cluster yet: librdkafka
        forgets all brokers that a Metadata response leaves out, and would be alone with this server.
        """
        return ClusterView(self._read_cluster_id(), ControllerMetadata(self._loaded().state))

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

    def call(
        self,
        kind: ControllerState,
        name: str,
        function: Callable[[ControllerCore], T],
        reply: Callable[[T | KafkaError], R | Future[R]],
    ) -> Future[R]:
        """Run ``function`` on the event loop's thread; return what ``reply`` makes of its result.

        ``reply`` gets a KafkaError where the request is to be answered with one. ``name``: Kafka's name of
        the event, for logs.
        """
        return self._reply(self._loop.call(kind, function, name), name, reply)

    def call_jointly(
        self,
        kind: ControllerState,
        name: str,
        function: Callable[[ControllerCore, Sequence[A]], Sequence[T | Exception]],
        argument: A,
        reply: Callable[[T | KafkaError], R | Future[R]],
    ) -> Future[R]:
        """Do the same for several calls of a function at once, as ``EventLoop.call_jointly``."""
        return self._reply(self._loop.call_jointly(kind, function, argument, name), name, reply)

    def _reply(
        self, done: Future[T], name: str, reply: Callable[[T | KafkaError], R | Future[R]]
    ) -> Future[R]:
        # Errors are results, too.
        ended: Future[Future[T]] = Future()
        done.add_done_callback(ended.set_result)

        def answer(done: Future[T]) -> R | Future[R]:
            result = _result(done, name)
            return reply(result)

        return then(ended, answer, self._replies)

    def wait_until(
        self,
        condition: Callable[[ControllerCore], bool],
        timeout: float,
        reply: Callable[[], R | Future[R]],
    ) -> Future[R]:
        """Return what ``reply`` makes when ``condition`` holds, or the time or this term is over."""

        def ended(result: bool | KafkaError) -> R | Future[R]:
            if isinstance(result, KafkaError):
                _LOG.info("a request that waited for its effect ends: this controller has resigned")
            return reply()

        return self._reply(self._loop.wait_until(condition, timeout), "Wait", ended)

    def describe(self) -> dict[str, Any]:
        """Return the listener, in values that JSON can carry."""
        return {"listener": self.endpoint.listener, "host": self.endpoint.host, "port": self.endpoint.port}


def _result(done: Future[T], name: str) -> T | KafkaError:
    """Return the result of an event, or the error to answer with."""
    try:
        return done.result()
    except KafkaError as error:
        return error
    except SessionExpiredError as error:
        # Another controller may be elected already; this one is about to resign. The client asks again.
        _LOG.warning("%s was not done: %s", name, error)
        return KafkaError(ErrorCode.NOT_CONTROLLER)
    except Exception:  # noqa: BLE001  (Kafka answers so, and keeps the connection)
        _LOG.exception("%s failed", name)
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
