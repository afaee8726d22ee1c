"""The server of a controller: one asyncio thread that serves all listeners."""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from ctrlchan.authorizer.interface import Authorizer
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event_loop import EventLoop
from ctrlchan.controller.server.apis.table import served_apis
from ctrlchan.controller.server.core import ProducerIds, ServerCore
from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.errors import ConfigError, IllegalStateError
from ctrlchan.security.listener_security import ClientAuth, ListenerSecurity
from ctrlchan.security.tls_context import server_context_of
from ctrlchan.server.asyncio_server import Authenticator, Server
from ctrlchan.server.delegation_tokens.delegation_tokens import DelegationTokens
from ctrlchan.server.request_handler import RequestHandler
from ctrlchan.server.security.credentials import ListenerCredentials
from ctrlchan.server.security.mechanisms import mechanisms
from ctrlchan.server.security.sasl_server import SaslListener, SaslServer
from ctrlchan.state import Endpoint

__all__ = ["ControllerServer"]

#: Threads that call handlers that block, such as the one of Metadata, and check passwords.
_HANDLER_THREADS: Final = 4
_VERIFY_MODES: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


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
        self._executor = ThreadPoolExecutor(_HANDLER_THREADS, thread_name_prefix="controller-handlers")
        # Its own thread, so that leaders do not wait for clients.
        self._replies = ThreadPoolExecutor(1, thread_name_prefix="controller-replies")
        self._handlers: list[RequestHandler[ServerCore]] = []
        self._servers: list[Server] = []
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread: threading.Thread | None = None
        #: The advertised endpoint of each listener, with the port that it has.
        self.endpoints: tuple[Endpoint, ...] = ()

    def start(self) -> tuple[Endpoint, ...]:
        """Listen; return the advertised endpoints. Raises ConfigError, naming the listener."""
        contexts = [self._tls_context(listener) for listener in self._config.listeners]
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(contexts)), name="controller-server", daemon=True
        )
        self._thread.start()
        try:
            self._asyncio, self._stop = self._started.result()
        except BaseException:
            self._thread.join()
            self._shut_down()
            raise
        return self.endpoints

    def close(self) -> None:
        """Close the listeners and every connection; answers that are not finished are dropped."""
        thread = self._thread
        if thread is None:
            self._shut_down()
            return
        if threading.current_thread() is thread:
            raise IllegalStateError("a server cannot be closed from its own thread")
        if thread.is_alive() and self._started.exception() is None:
            self._asyncio.call_soon_threadsafe(self._stop.set)
        thread.join()
        self._shut_down()

    def _shut_down(self) -> None:
        self._executor.shutdown()
        self._replies.shutdown()

    def describe(self) -> list[dict[str, Any]]:
        """Return each listener with the counters of its APIs, in values that JSON can carry."""
        return [
            handler.describe() | {"connections": len(server.connections)}
            for handler, server in zip(self._handlers, self._servers, strict=True)
        ]

    async def _serve(self, contexts: list[ssl.SSLContext | None]) -> None:
        stop = asyncio.Event()
        try:
            for listener, context in zip(self._config.listeners, contexts, strict=True):
                await self._listen(listener, context)
        except BaseException as error:  # noqa: BLE001  (``start`` raises it)
            await self._stop_all()
            self._started.set_exception(error)
            return
        self._started.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()
        await self._stop_all()

    async def _stop_all(self) -> None:
        await asyncio.gather(*(server.stop() for server in self._servers))

    async def _listen(self, listener: Endpoint, context: ssl.SSLContext | None) -> None:
        core = ServerCore(
            self._config,
            listener,
            self._loop,
            self._current,
            self._read_cluster_id,
            self._producer_ids,
            self._replies,
            self._tokens,
        )
        handler = RequestHandler(core, served_apis(), executor=self._executor, authorizer=self._authorizer)
        core.serve = handler.serve
        server = Server(
            handler.serve,
            listener.host,
            listener.port,
            executor=self._executor,
            listener=listener.listener,
            security_protocol=listener.security_protocol,
            tls=context,
            authenticator=self._authenticator(self._security(listener)),
        )
        try:
            port = await server.start()
        except OSError as error:
            raise ConfigError(f"listener {listener}: {error.strerror}") from None
        core.endpoint = self._advertised(listener, port)
        self.endpoints = (*self.endpoints, core.endpoint)
        self._handlers.append(handler)
        self._servers.append(server)

    def _advertised(self, listener: Endpoint, port: int) -> Endpoint:
        """Return the address that brokers and clients are given; port 0 is the port of the listener."""
        advertised = {one.listener: one for one in self._config.advertised_listeners or ()}
        endpoint = advertised.get(listener.listener, listener)
        return dataclasses.replace(endpoint, port=endpoint.port or port)

    def _security(self, listener: Endpoint) -> ListenerSecurity:
        return self._config.listener_security.get(listener.listener, ListenerSecurity())

    def _tls_context(self, listener: Endpoint) -> ssl.SSLContext | None:
        security = self._security(listener)
        if security.tls is None:
            return None
        try:
            return server_context_of(security.tls, _VERIFY_MODES[security.client_auth])
        except (OSError, ValueError) as error:
            raise ConfigError(f"listener {listener}: {error}") from None

    def _authenticator(self, security: ListenerSecurity) -> Callable[[], Authenticator] | None:
        if not security.mechanisms:
            return None
        credentials = ListenerCredentials(security.users, self._read_user_config)
        listener = SaslListener(mechanisms(security.mechanisms, credentials.password, credentials.scram))
        return lambda: SaslServer(listener)
