"""The server of brokers without log directories. Those of a process share its threads."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from math import ceil
from typing import Final, NamedTuple

from ctrlchan.broker.config.broker_config import BrokerConfig
from ctrlchan.metadata_broker.late_answers import LateAnswers
from ctrlchan.metadata_broker.service import BrokerService
from ctrlchan.server.api import Buffers
from ctrlchan.server.futures import then
from ctrlchan.server.handler_pool import HandlerPool, ListenerHandler
from ctrlchan.server.request_context import RequestContext
from ctrlchan.server.socket_server import Listener, SocketServer, SocketServerSettings

__all__ = ["MetadataBrokers", "brokers_together"]

logger = logging.getLogger("ctrlchan.broker")

#: A controller may connect to every broker of a process at once.
_BACKLOG: Final = 1024
#: One makes a long answer of Metadata while the other answers the controller.
_HANDLER_THREADS: Final = 2
#: How long requests in progress may take at the end, in seconds.
_HANDLER_SECONDS: Final = 10.0


class _Settings(NamedTuple):
    """What the brokers of one server have in common."""

    max_request_bytes: int
    idle_timeout: float | None
    response_delay: float

    @classmethod
    def of(cls, config: BrokerConfig) -> _Settings:
        return cls(config.max_request_bytes, config.idle_timeout, config.response_delay)

    def server_settings(self) -> SocketServerSettings:
        return SocketServerSettings(
            socket_request_max_bytes=self.max_request_bytes,
            socket_listen_backlog_size=_BACKLOG,
            connections_max_idle_ms=-1 if self.idle_timeout is None else ceil(self.idle_timeout * 1000),
        )


def brokers_together(services: Iterable[BrokerService]) -> list[MetadataBrokers]:
    """Return the servers of these brokers: one for all whose settings are the same."""
    groups: dict[_Settings, list[BrokerService]] = {}
    for service in services:
        groups.setdefault(_Settings.of(service.config), []).append(service)
    return [MetadataBrokers(group) for group in groups.values()]


class MetadataBrokers:
    """Serves brokers whose settings are the same: an acceptor, a processor and a few handler threads."""

    def __init__(self, services: Sequence[BrokerService]) -> None:
        self.services = tuple(services)
        self._settings = _Settings.of(services[0].config)
        self._server: SocketServer | None = None
        self._pool: HandlerPool | None = None
        self._late: LateAnswers | None = None

    def listen(self) -> None:
        """Bind the ports, and give them to the brokers. Raises ListenError."""
        listeners = [Listener(one.config.listener, one.config.host, one.config.port) for one in self.services]
        self._server = SocketServer(listeners, self._settings.server_settings(), is_shared=True)
        for service, port in zip(self.services, self._server.listener_ports, strict=True):
            service.listens_on(port)

    def serve(self) -> None:
        """Answer requests."""
        assert self._server is not None
        if self._settings.response_delay:
            self._late = LateAnswers(self._settings.response_delay)
        handlers = [
            ListenerHandler(f"broker {one.config.id}", partial(self._answer, one)) for one in self.services
        ]
        self._pool = HandlerPool(self._server.requests, handlers, _HANDLER_THREADS)
        self._pool.start()
        self._server.start()

    def stop(self) -> None:
        """Close the listeners and every connection; answers that are not finished are dropped."""
        if self._server is not None:
            self._server.stop(0)
        if self._pool is not None and not self._pool.join(_HANDLER_SECONDS):
            logger.error("a request is still handled after %.0f s", _HANDLER_SECONDS)
        if self._late is not None:
            self._late.close()

    def connections(self) -> int:
        """Return how many connections are open."""
        if self._server is None:
            return 0
        return sum(one.connections for one in self._server.counters()[0])

    def _answer(
        self, service: BrokerService, frame: bytes | memoryview, context: RequestContext
    ) -> Buffers | Future[Buffers]:
        answer = service.handler.serve(frame, context)
        if self._late is None:
            return answer
        return then(answer, self._late.delay) if isinstance(answer, Future) else self._late.delay(answer)
