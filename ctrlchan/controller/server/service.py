"""The server of a controller: its listeners, and the threads that answer what comes there."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Final

from ctrlchan.authorizer.interface import Authorizer
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event_loop import EventLoop
from ctrlchan.controller.server.apis.table import served_apis
from ctrlchan.controller.server.core import ProducerIds, ServerCore
from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.errors import ConfigError
from ctrlchan.security.listener_security import ListenerSecurity
from ctrlchan.server.delegation_tokens.delegation_tokens import DelegationTokens
from ctrlchan.server.handler_pool import HandlerPool, ListenerHandler
from ctrlchan.server.request_handler import RequestHandler
from ctrlchan.server.security.credentials import ListenerCredentials
from ctrlchan.server.security.listener import sasl_listener
from ctrlchan.server.security.sasl_server import SaslListener
from ctrlchan.server.socket_server import Listener, ListenError, SocketServer, SocketServerSettings
from ctrlchan.state import Endpoint

__all__ = ["ControllerServer"]

logger = logging.getLogger(__name__)

#: Some wait for ZooKeeper or check passwords. Kafka's ``num.io.threads``.
_HANDLER_THREADS: Final = 8
#: How long requests in progress may take at the end, in seconds.
_HANDLER_SECONDS: Final = 10.0
#: All brokers of a cluster may connect at once.
_SETTINGS: Final = SocketServerSettings(socket_listen_backlog_size=1024)


class ControllerServer:
    """Answers brokers and clients on the listeners of ``config``, from ``start`` to ``close``.

    ``loop`` runs what changes the cluster. ``current`` returns the core of this term, or None while this is
    not the controller. ``read_cluster_id`` returns the id of the cluster. ``read_user_config`` returns the
    config of a user in ZooKeeper, or None if there is none; it may take long, and raises CtrlchanError. All
    three are called on the server's threads. ``authorizer``: of all requests; None allows everything.
    ``tokens``: the delegation tokens, or None if there are none.
    """

    def __init__(
        self,
        config: ControllerConfig,
        loop: EventLoop[ControllerCore],
        current: Callable[[], ControllerCore | None],
        *,
        read_cluster_id: Callable[[], str],
        read_user_config: Callable[[str], Mapping[str, str] | None],
        authorizer: Authorizer | None = None,
        tokens: DelegationTokens | None = None,
    ) -> None:
        self._config = config
        self._tokens = tokens
        self._authorizer = authorizer
        self._loop = loop
        self._current = current
        self._read_cluster_id = read_cluster_id
        self._read_user_config = read_user_config
        self._producer_ids = ProducerIds()
        # Its own thread, so that leaders do not wait for clients.
        self._replies = ThreadPoolExecutor(1, thread_name_prefix="controller-replies")
        self._handlers: list[RequestHandler[ServerCore]] = []
        self._server: SocketServer | None = None
        # What ``close`` does, in reverse order; a ``start`` that fails does it at once.
        self._cleanup = ExitStack()
        self._cleanup.callback(self._replies.shutdown)
        #: The advertised endpoint of each listener, with the port that it has.
        self.endpoints: tuple[Endpoint, ...] = ()

    def start(self) -> tuple[Endpoint, ...]:
        """Listen; return the advertised endpoints. Raises ConfigError, naming the listener."""
        listeners = self._config.listeners
        with self._cleanup as cleanup:
            server = self._server = self._listen(self._make_sasl(cleanup))
            self.endpoints = tuple(map(self._advertised, listeners, server.listener_ports))
            self._handlers = [self._handler(endpoint) for endpoint in self.endpoints]
            owner = f"controller {self._config.controller_id}"
            pool = HandlerPool(
                server.requests,
                [ListenerHandler(owner, handler.serve) for handler in self._handlers],
                _HANDLER_THREADS,
            )
            cleanup.callback(self._end, server, pool)
            pool.start()
            server.start()
            self._cleanup = cleanup.pop_all()
        return self.endpoints

    def close(self) -> None:
        """Close the listeners and every connection; answers that are not finished are dropped."""
        self._cleanup.close()

    def describe(self) -> list[dict[str, Any]]:
        """Return each listener with the counters of its APIs, in values that JSON can carry."""
        connections: Counter[str] = Counter()
        if self._server is not None:
            processors, _ = self._server.counters()
            for one in processors:
                connections[one.listener] += one.connections
        return [
            handler.describe() | {"connections": connections[handler.core.endpoint.listener]}
            for handler in self._handlers
        ]

    def _make_sasl(self, cleanup: ExitStack) -> dict[str, SaslListener]:
        """Return the SASL of each listener that has it, by name. Raises ConfigError."""
        found = {}
        for endpoint in self._config.listeners:
            security = self._security(endpoint)
            if security.mechanisms:
                credentials = ListenerCredentials(security.users, self._read_user_config)
                found[endpoint.listener] = sasl_listener(
                    endpoint.listener, security, credentials.scram, self._tokens
                )
                cleanup.callback(found[endpoint.listener].close)
        return found

    def _listen(self, sasl: Mapping[str, SaslListener]) -> SocketServer:
        """Bind the ports. Raises ConfigError."""
        listeners = [
            Listener(one.listener, one.host, one.port, one.security_protocol, self._security(one))
            for one in self._config.listeners
        ]
        try:
            return SocketServer(listeners, _SETTINGS, sasl=sasl)
        except ListenError as error:
            raise ConfigError(
                f"listener {self._config.listeners[error.listener]}: {error.strerror}"
            ) from None

    def _handler(self, endpoint: Endpoint) -> RequestHandler[ServerCore]:
        """Return what answers the requests of a listener."""
        core = ServerCore(
            self._config,
            endpoint,
            self._loop,
            self._current,
            self._read_cluster_id,
            self._producer_ids,
            self._replies,
            self._tokens,
        )
        handler = RequestHandler(
            core, served_apis(), authorizer=self._authorizer, is_for_brokers=core.is_for_brokers
        )
        core.serve = handler.serve
        return handler

    def _end(self, server: SocketServer, pool: HandlerPool) -> None:
        server.stop(0)
        if not pool.join(_HANDLER_SECONDS):
            logger.error("a request is still handled after %.0f s", _HANDLER_SECONDS)

    def _advertised(self, listener: Endpoint, port: int) -> Endpoint:
        """Return the address that brokers and clients are given; port 0 is the port of the listener."""
        advertised = {one.listener: one for one in self._config.advertised_listeners or ()}
        endpoint = advertised.get(listener.listener, listener)
        return dataclasses.replace(endpoint, port=endpoint.port or port)

    def _security(self, listener: Endpoint) -> ListenerSecurity:
        return self._config.listener_security.get(listener.listener, ListenerSecurity())
