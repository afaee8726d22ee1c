"""Kafka's SocketServer: sockets, settings and log lines around ``_processor``.

``SocketServer`` opens the listening sockets and starts one acceptor for each listener, with processors of
its own, or one acceptor with processors for all listeners. Requests that the hot handler leaves to Python are
taken from ``requests`` by handler threads.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from ctrlchan.errors import ConfigError
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.rate_limit import LogRateLimit
from ctrlchan.security.listener_security import ListenerSecurity
from ctrlchan.server._connection_quotas import ConnectionQuotas
from ctrlchan.server._processor import EventKind, HotHandler, NetworkThreads, TakenRequest
from ctrlchan.server.request_context import Principal, RequestContext
from ctrlchan.server.request_times import PartTimes, RequestTimes
from ctrlchan.server.security.peer_names import PeerNames
from ctrlchan.server.security.sasl_server import SaslListener, SaslServer
from ctrlchan.server.store_watcher import StoreWatcher, Watched
from ctrlchan.server.tls_failures import why_tls_failed
from ctrlchan.state.brokers import format_host_port
from ctrlchan.text import printable

if TYPE_CHECKING:
    from ctrlchan.security.settings import TlsSettings
    from ctrlchan.server.listener_stores import ListenerStores
    from ctrlchan.server.tls_contexts import ListenerContext

__all__ = [
    "AUTHENTICATION_MS",
    "AcceptorCounters",
    "FileRange",
    "ListenError",
    "Listener",
    "ListenerLimits",
    "MemoryPool",
    "ProcessorCounters",
    "RequestQueue",
    "SocketServer",
    "SocketServerSettings",
    "packed_rates",
]

logger = logging.getLogger("ctrlchan.broker")

_UNLIMITED = 2**31 - 1
#: The first bytes of a TLS connection, and of HTTP requests: where the size of a frame is.
_TLS_BEGIN = b"\x16\x03"
_HTTP_BEGINS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN")
#: In nanoseconds it fits into 64 bits. More is no limit.
_MAX_IDLE_MS = (2**63 - 1) // 1_000_000
#: How long a peer may take to authenticate himself, unless ``connections_max_idle_ms`` is less. Kafka has no
#: such limit: there a peer that sends a byte now and then may stay for ever.
AUTHENTICATION_MS: Final = 30_000


class ListenError(OSError):
    """An address cannot be listened on; ``strerror`` names it. ``listener``: the number of the listener."""

    def __init__(self, number: int, listener: Listener, error: OSError) -> None:
        address = format_host_port(listener.host, listener.port)
        super().__init__(error.errno, f"cannot listen on {address}: {error.strerror}")
        self.listener = number


class Listener(NamedTuple):
    """A name and the address to listen on. ``host`` empty: all addresses; ``port`` 0: a free port.

    ``security``: enough for the security protocol. ``is_inter_broker``: brokers connect to each other there.
    ``is_control_plane``: only the controller connects there. It has one processor, and a request queue of its
    own, so its requests are never behind others (KIP-291).
    """

    name: str
    host: str
    port: int
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    security: ListenerSecurity = ListenerSecurity()
    is_inter_broker: bool = False
    is_control_plane: bool = False


class ListenerLimits(NamedTuple):
    """How many connections a listener may have, and how many new ones in a second; None: as all listeners."""

    max_connections: int | None = None
    max_connection_creation_rate: int | None = None


class SocketServerSettings(NamedTuple):
    """Kafka's settings of the same names. The defaults differ in two places.

    ``num_network_threads``, for each listener, is 1, not 3: a processor without an interpreter is seldom the
    limit. ``socket_send_buffer_bytes`` and ``socket_receive_buffer_bytes`` leave the size to the system.
    """

    num_network_threads: int = 1
    queued_max_requests: int = 500
    #: Bytes of the requests that were received and are not handled; -1 (or 0): no limit.
    queued_max_request_bytes: int = -1
    socket_request_max_bytes: int = 100 * 1024 * 1024
    socket_send_buffer_bytes: int = -1
    socket_receive_buffer_bytes: int = -1
    socket_listen_backlog_size: int = 50
    connections_max_idle_ms: int = 600_000
    max_connections: int = _UNLIMITED
    #: New connections in a second.
    max_connection_creation_rate: int = _UNLIMITED
    #: Of the listeners that have their own, by their name in lower case.
    limits_of_listeners: Mapping[str, ListenerLimits] = MappingProxyType({})
    max_connections_per_ip: int = _UNLIMITED
    #: Host or IP address -> limit.
    max_connections_per_ip_overrides: Mapping[str, int] = MappingProxyType({})
    sasl_server_max_receive_size: int = 524_288
    connection_failed_authentication_delay_ms: int = 100


class FileRange(NamedTuple):
    """``size`` bytes of an open file from ``position``: a part of an answer that Python never reads."""

    fileno: int
    position: int
    size: int


class ProcessorCounters(NamedTuple):
    """Counters of one processor since its start. ``idle_ns / running_ns`` is its idle share.

    ``listener``: the name of its listener, or of all.
    """

    listener: str
    connections: int
    opened: int
    requests: int
    bytes_in: int
    bytes_out: int
    idle_ns: int
    #: Parked requests whose deadline passed.
    expired: int
    #: Connections that were idle for too long.
    idle_closed: int
    running_ns: int
    #: Peers of SASL that proved who they are, and that did not; the same of those that renewed their session.
    authenticated: int
    authentications_failed: int
    renewed: int
    renewals_failed: int
    #: Peers whose client is too old to learn how long its session lasts.
    cannot_renew: int
    #: Connections that were closed because their session had ended.
    sessions_expired: int
    #: Connections whose peer did not authenticate himself in time.
    not_authenticated: int
    #: Of TLS, since the start.
    handshakes: int
    failed_handshakes: int
    #: Connections that were closed because the server had too many.
    excess_closed: int


class AcceptorCounters(NamedTuple):
    """Counters of the acceptor of one listener since its start."""

    listener: str
    #: Connections of addresses that had too many.
    rejected: int
    accept_errors: int
    #: Connections of addresses from which too many had come within a short time.
    ip_throttled: int
    #: For how long connections have waited for the limits.
    blocked_ns: int


class MemoryPool(NamedTuple):
    """The memory of requests that were received and are not handled (Kafka's SimpleMemoryPool)."""

    #: 0: there is no limit.
    size: int
    #: Below 0: the last request got more than was left.
    available: int
    #: For how many nanoseconds requests found none.
    empty_ns: int


#: The numbers of the request queues: of clients and other brokers, and of the controller's own listener.
_DATA_PLANE: Final = 0
_CONTROL_PLANE: Final = 1


class RequestQueue:
    """Requests for handler threads, at most ``queued_max_requests``; others wait in their connections.

    ``plane``: which of the server's queues it is.
    """

    def __init__(self, threads: NetworkThreads, plane: int) -> None:
        self._threads = threads
        self._plane = plane

    def take(self, timeout: float) -> TakenRequest | None:
        """Return the oldest request, or None if none came in ``timeout`` seconds or the server stopped.

        None also when answered requests have left work (``take_work``), and for threads that wait when
        ``wake`` is called. Threads take turns: one that has taken a request or work takes the next one too,
        unless it does not come back for two milliseconds.
        """
        return self._threads.take(timeout, self._plane)

    def take_work(self) -> bool:
        """Return whether answered requests have left work. The calling thread does all of it."""
        return self._threads.take_work(self._plane)

    def wake(self) -> None:
        """Let all threads that wait in ``take`` return."""
        self._threads.wake_idle(self._plane)

    @property
    def closed(self) -> bool:
        """Whether the server has stopped. If ``take`` returns None after that, no request comes any more."""
        return self._threads.closed

    @property
    def size(self) -> int:
        """Requests that no handler thread has taken."""
        return self._threads.queue_size(self._plane)

    @property
    def idle_ns(self) -> int:
        """For how many nanoseconds no request waited since the server was made."""
        return self._threads.idle_ns(self._plane)

    @property
    def held(self) -> int:
        """Requests that wait in their connections because the queue is full."""
        return self._threads.held_requests(self._plane)


class SocketServer:
    """Listens on ``listeners`` from its construction on, and serves from ``start`` until ``stop``.

    ``hot`` answers requests on the processors' threads; without it all requests go to ``requests``. ``sasl``:
    what the SASL exchanges of a listener share, by its name. ``quotas``: counts connections; None for new
    ones. ``is_shared``: one acceptor and the processors of one listener serve all of them, whose names may be
    the same. Raises ListenError, and ConfigError for a listener that cannot be secured.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        settings: SocketServerSettings | None = None,
        hot: HotHandler | None = None,
        sasl: Mapping[str, SaslListener] | None = None,
        quotas: ConnectionQuotas | None = None,
        *,
        is_shared: bool = False,
    ) -> None:
        settings = settings or SocketServerSettings()
        sasl = sasl or {}
        for listener in listeners:
            name, protocol = listener.name, listener.security_protocol
            if (name in sasl) != protocol.has_sasl:
                raise ConfigError(f"listener {name}: {protocol.name} with or without SASL")
        self._listeners = list(listeners)
        control = next((number for number, one in enumerate(listeners) if one.is_control_plane), -1)
        # None for listeners without TLS.
        self._stores = [_stores_of(listener) for listener in listeners]
        self.quotas = quotas or ConnectionQuotas(len(listeners))
        self.quotas.limit(*self._limits(settings))
        self.quotas.limit_ips(settings.max_connections_per_ip, _overrides(settings))
        names = [PeerNames(one.name, one.security_protocol, one.security) for one in listeners]
        sockets: list[socket.socket] = []
        try:
            for number, listener in enumerate(listeners):
                try:
                    sockets.append(_listen(listener, settings))
                except OSError as error:
                    raise ListenError(number, listener, error) from None
            #: The port of each listener, in their order.
            self.listener_ports: tuple[int, ...] = tuple(sock.getsockname()[1] for sock in sockets)
            idle_ms = settings.connections_max_idle_ms
            self.threads = NetworkThreads(
                [(listener.name, sock.fileno()) for listener, sock in zip(listeners, sockets, strict=True)],
                hot,
                processors=settings.num_network_threads,
                max_request_bytes=settings.socket_request_max_bytes,
                queue_capacity=settings.queued_max_requests,
                idle_ns=idle_ms * 1_000_000 if 0 <= idle_ms <= _MAX_IDLE_MS else -1,
                send_buffer=settings.socket_send_buffer_bytes,
                quotas=self.quotas,
                is_shared=is_shared,
                security_protocols=[listener.security_protocol for listener in listeners],
                contexts=[None if one is None else one.context for one in self._stores],
                namers=[_namer(one, named) for one, named in zip(listeners, names, strict=True)],
                names_all=[one.security.principal_builder is not None for one in listeners],
                authenticators=[
                    _authenticator(sasl.get(one.name), named)
                    for one, named in zip(listeners, names, strict=True)
                ],
                max_unauthenticated_bytes=settings.sasl_server_max_receive_size,
                authentication_ms=AUTHENTICATION_MS if idle_ms < 0 else min(idle_ms, AUTHENTICATION_MS),
                refusal_ms=settings.connection_failed_authentication_delay_ms,
                memory=settings.queued_max_request_bytes,
                control_listener=control,
            )
        except BaseException:
            for sock in sockets:
                sock.close()
            raise
        for sock in sockets:
            sock.detach()
        self.requests = RequestQueue(self.threads, _DATA_PLANE)
        #: None: there is no listener for the controller alone.
        self.control_requests = RequestQueue(self.threads, _CONTROL_PLANE) if control >= 0 else None
        #: Held while the number of threads changes.
        self._stopping = threading.Lock()
        self._is_stopped = False
        self._log_thread = threading.Thread(
            target=_log_events, args=[self.threads], name="socket-server-log", daemon=True
        )
        self._watcher = StoreWatcher(
            [
                Watched(stores.refresh_ms / 1000, partial(stores.refresh, partial(self._use_context, number)))
                for number, stores in enumerate(self._stores)
                if stores is not None and stores.refresh_ms
            ]
        )

    @property
    def ports(self) -> dict[str, int]:
        """Name of each listener -> its port."""
        names = (listener.name for listener in self._listeners)
        return dict(zip(names, self.listener_ports, strict=True))

    def start(self) -> None:
        """Start all threads. OSError when a thread or a descriptor cannot be had: nothing runs then."""
        try:
            self.threads.start()
        except BaseException:
            self.threads.stop(0)
            raise
        self._log_thread.start()
        self._watcher.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Stop accepting, let requests in progress end for ``timeout`` seconds, then close everything."""
        self._watcher.stop()
        with self._stopping:
            self._is_stopped = True
            if not self.threads.stop(timeout):
                logger.error("a processor did not end: its hot handler has not returned")
            if self._log_thread.is_alive():
                self._log_thread.join()

    def reconfigure(self, settings: SocketServerSettings) -> None:
        """Take other limits of connections, and other numbers of processors.

        Connections that are too many now are closed; those of an address stay. A processor that is not wanted
        any more keeps its own, and gets no new ones.
        Raises OSError when an address is not found, or a thread or a descriptor cannot be had;
        ConfigError for more processors than a server can have.
        """
        overrides = _overrides(settings)
        with self._stopping:
            if self._is_stopped:
                return
            self.quotas.limit_ips(settings.max_connections_per_ip, overrides)
            self.threads.limit_connections(*self._limits(settings))
            try:
                self.threads.resize(settings.num_network_threads)
            except ValueError as error:
                raise ConfigError(f"num.network.threads: {error}") from None

    def _limits(self, settings: SocketServerSettings) -> tuple[int, int, list[tuple[int, int]]]:
        """Return the limits of the server, and those of its listeners: the same without their own."""
        most, rate = settings.max_connections, settings.max_connection_creation_rate
        limits = []
        for listener in self._listeners:
            own = settings.limits_of_listeners.get(listener.name.lower(), ListenerLimits())
            limits.append(
                (
                    most if own.max_connections is None else own.max_connections,
                    rate if own.max_connection_creation_rate is None else own.max_connection_creation_rate,
                )
            )
        return most, rate, limits

    def check_stores(self, number: int, tls: TlsSettings) -> None:
        """Raise ConfigError for stores that ``use_stores`` would refuse, as their files are now."""
        if (stores := self._stores[number]) is not None:
            stores.check(tls)

    def use_stores(self, number: int, tls: TlsSettings) -> None:
        """Begin new connections of a listener with the stores of ``tls``, whose files are read now.

        Open connections go on. Raises ConfigError for stores that cannot be used: the ones before stay.
        """
        if (stores := self._stores[number]) is not None:
            stores.replace(tls, partial(self._use_context, number))

    def reread_stores(self, number: int) -> None:
        """Begin new connections of a listener with its files as they are now, if they have changed.

        Raises ConfigError as ``use_stores``.
        """
        if (stores := self._stores[number]) is not None:
            stores.reread(partial(self._use_context, number))

    def _use_context(self, number: int, context: ListenerContext) -> None:
        with self._stopping:
            if not self._is_stopped:
                self.threads.use_context(number, context)

    def memory(self) -> MemoryPool:
        """Return what is left of the memory of requests, and for how long there was none."""
        return MemoryPool(*self.threads.memory())

    def request_times(self) -> dict[int, RequestTimes]:
        """Return for each API key how long requests took whose answers are sent, if there were some."""
        return {
            key: RequestTimes(number, tuple(PartTimes(*part) for part in parts))
            for key, (number, parts) in self.threads.request_times().items()
        }

    def counters(self) -> tuple[list[ProcessorCounters], list[AcceptorCounters]]:
        """Return the counters of all processors (listener by listener) and of all acceptors."""
        processors, acceptors = self.threads.counters()
        return [ProcessorCounters(*row) for row in processors], [AcceptorCounters(*row) for row in acceptors]


def _authenticator(
    sasl: SaslListener | None, names: PeerNames
) -> Callable[[RequestContext, bytes], SaslServer] | None:
    """Return what makes the authenticator of a connection, or None if nobody has to authenticate himself."""
    if sasl is None:
        return None

    def make(context: RequestContext, subject: bytes) -> SaslServer:
        return SaslServer(sasl, partial(names.name, subject, context.client_host, context.client_port))

    return make


def _stores_of(listener: Listener) -> ListenerStores | None:
    """Return the stores of a listener with TLS. Raises ConfigError."""
    if not listener.security_protocol.has_tls:
        return None
    # Imported here: others need no OpenSSL.
    try:
        from ctrlchan.server.listener_stores import ListenerStores
    except ImportError as error:
        raise ConfigError(
            f"listener {listener.name}: TLS needs the module ssl, which this Python does not have: {error}"
        ) from None

    return ListenerStores(listener.name, listener.security, is_inter_broker=listener.is_inter_broker)


def _namer(listener: Listener, names: PeerNames) -> Callable[[bytes, str, int], Principal | None] | None:
    """Return what makes a principal of the name in a peer's certificate and its address.

    None: everybody is ANONYMOUS until SASL names him.
    """
    has_builder = listener.security.principal_builder is not None
    return names.name if has_builder or listener.security_protocol is SecurityProtocol.SSL else None


def _cause(size: int) -> str:
    """Return why a peer may have sent such a size, for the log."""
    begin = (size & 0xFFFFFFFF).to_bytes(4, "big")
    if begin.startswith(_TLS_BEGIN):
        return ": the bytes begin a TLS handshake, and this listener has no TLS"
    return ": the bytes begin an HTTP request" if begin in _HTTP_BEGINS else ""


def _spoken(size: int) -> str:
    """Return what the first bytes of a connection without TLS are, for the log."""
    begin = (size & 0xFFFFFFFF).to_bytes(4, "big")
    if begin in _HTTP_BEGINS:
        return "the client speaks HTTP"
    return "the client does not use it" if begin[0] == 0 else "its first bytes are no TLS handshake"


def _listen(listener: Listener, settings: SocketServerSettings) -> socket.socket:
    """Return a socket that listens, for both versions of IP when the host is empty."""
    host = listener.host
    if not host and not socket.has_dualstack_ipv6():
        host = "0.0.0.0"
    family = socket.AF_INET6
    address: tuple[str | int | bytes, ...] = ("::", listener.port)
    if host:
        resolved = socket.getaddrinfo(host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = resolved[0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1 if host else 0)
        if settings.socket_receive_buffer_bytes != -1:
            # Connections inherit it.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.socket_receive_buffer_bytes)
        sock.bind(address)
        sock.listen(settings.socket_listen_backlog_size)
    except BaseException:
        sock.close()
        raise
    return sock


def _overrides(settings: SocketServerSettings) -> list[tuple[bytes, int]]:
    """Return the limits of IP addresses that have their own."""
    return [
        (address, limit)
        for host, limit in settings.max_connections_per_ip_overrides.items()
        for address in _addresses(host)
    ]


def _addresses(host: str) -> list[bytes]:
    """Return the IP addresses of ``host``, each as 16 bytes: IPv4 as a mapped IPv6 address."""
    addresses = {str(row[4][0]) for row in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    packed = [ipaddress.ip_address(address.partition("%")[0]).packed for address in addresses]
    return [address if len(address) == 16 else bytes(10) + b"\xff\xff" + address for address in packed]


def packed_rates(rates: Mapping[str | None, int]) -> tuple[int, list[tuple[bytes, int]]]:
    """Return the arguments of ``ConnectionQuotas.limit_ip_rates``.

    ``rates``: by host; of None: of all addresses without their own. A host that has no address is left out,
    with an error in the log.
    """
    rows: dict[bytes, int] = {}
    for host, rate in rates.items():
        if host is None:
            continue
        try:
            rows.update(dict.fromkeys(_addresses(host), rate))
        except OSError as error:
            logger.error("the connection rate of %s is not limited: %s", printable(host), error)
    return rates.get(None, _UNLIMITED), list(rows.items())


def _log_events(threads: NetworkThreads) -> None:
    """Write what acceptors and processors report, rate-limited, until the server has stopped."""
    limit = LogRateLimit()
    while (event := threads.take_event()) is not None:
        kind, number, (host, port), left_out, listener = event
        suffix = limit.admit(kind, time.monotonic_ns())
        if suffix is None:
            continue
        level = logging.WARNING
        if left_out:
            suffix += f" ({left_out} lines were lost)"
        if kind == EventKind.WRONG_SIZE:
            text = f"closing the connection of {host}:{port}: a frame of {number:,} bytes{_cause(number)}"
        elif kind == EventKind.TOO_MANY_CONNECTIONS_OF_IP:
            text = f"rejected a connection from {host}: it has the maximum of {number} connections"
        elif kind == EventKind.TOO_MANY_CONNECTIONS:
            text = (
                f"closing the connection of {host}:{port} on listener {listener}, its least recently used "
                "one: there are more than max.connections"
            )
        elif kind == EventKind.ACCEPT_FAILED:
            text = f"no connection can be accepted: {os.strerror(number)}"
        elif kind == EventKind.NO_MEMORY:
            text = f"closing the connection of {host}:{port}: no memory"
        elif kind == EventKind.ANSWER_FAILED:
            text = (
                f"closing the connection of {host}:{port}: its answer has no memory or is larger than 2 GiB"
            )
        elif kind == EventKind.NOT_AUTHENTICATED:
            text = f"closing the connection of {host}:{port}: not authenticated within {number / 1000:g} s"
        elif kind == EventKind.UNAUTHENTICATED_MEMORY:
            text = (
                f"closing the connection of {host}:{port}: peers that are not authenticated have sent more "
                f"than {number:,} bytes"
            )
        elif kind == EventKind.NOT_TLS:
            text = (
                f"closing the connection of {host}:{port}: listener {listener} has TLS, and {_spoken(number)}"
            )
        elif kind == EventKind.HANDSHAKE_FAILED:
            text = f"TLS handshake with {host}:{port} on listener {listener} failed: {why_tls_failed(number)}"
        elif kind == EventKind.HANDSHAKE_TOO_SLOW:
            text = (
                f"closing the connection of {host}:{port}: its TLS handshake on listener {listener} has not "
                f"ended within {number / 1000:.0f} s"
            )
        elif kind == EventKind.TOO_MANY_HANDSHAKES:
            text = (
                f"closing the connection of {host}:{port}: {number:,} TLS handshakes on listener {listener} "
                "are unfinished, and its is the oldest"
            )
        elif kind == EventKind.IDLE_FOR_TOO_LONG:
            level = logging.INFO
            text = f"closing the connection of {host}:{port}: idle for {number / 1000:g} s"
        elif kind == EventKind.TOO_MANY_RECORDS:
            text = (
                f"closing the connection of {host}:{port}: more than {number} TLS records without data on "
                f"listener {listener} (requests for new keys or for another handshake, warnings)"
            )
        elif kind == EventKind.TLS_FAILED:
            text = (
                f"closing the connection of {host}:{port}: TLS on listener {listener} failed: "
                f"{why_tls_failed(number)}"
            )
        else:
            text = f"closing the connection of {host}:{port}: a file ended {number:,} bytes too early"
        logger.log(level, "%s%s", text, suffix)
