"""The settings of a controller channel, with Kafka's keys where Kafka has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, Final

from ctrlchan.channel.listeners import ListenerRule
from ctrlchan.channel.wire.credentials import Credentials
from ctrlchan.errors import ConfigError
from ctrlchan.protocol import SECURITY_PROTOCOLS, request_versions
from ctrlchan.security.settings import SaslSettings, TlsSettings

__all__ = ["AUTO", "PER_BROKER", "ChannelConfig"]

#: Value of ``senders``: a process for each broker.
PER_BROKER: Final = "per-broker"
#: Value of ``senders``: as many processes as is fastest for this number of brokers and processors.
AUTO: Final = "auto"

#: On an overloaded machine a process that is ready to run may have to wait for this many seconds.
_LEAST_SENDER_TIMEOUT: Final = 0.5
#: A frame's size is an int32.
_MAX_FRAME: Final = 2**31 - 1
#: Seconds; a longer time does not fit into 64 bits of nanoseconds when it is added to the clock's.
_MAX_SECONDS: Final = 2**31 - 1
_TIMES: Final = (
    "connection_setup_timeout",
    "connection_setup_timeout_max",
    "socket_timeout",
    "request_timeout",
    "retry_backoff",
    "sender_timeout",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelConfig:
    """How one controller talks to its brokers. Times are seconds, sizes bytes; the defaults are Kafka's.

    Raises ConfigError, naming the setting, for a value that cannot work.

    Who sends, and what:

    - ``controller_id`` (-1): the id in every request (``broker.id`` of the controller).
    - ``client_id`` (None: the controller's id as text): the client id in every request header.
    - ``inter_broker_protocol`` ("3.9"): the IBP that fixes the request versions
      (``inter.broker.protocol.version``: ``3.9``, ``2.8-IV1``, ...).
    - ``negotiate`` (False, as in Kafka): ask each broker for its versions (ApiVersions) on each connection,
      and connect without waiting for a request.

    Which endpoint of a broker, and how connections begin:

    - ``listener_name`` (None: the inter-broker listener): the control-plane listener
      (``control.plane.listener.name``).
    - ``inter_broker_listener`` (None: the listener named as ``security_protocol``, else the first with that
      protocol): the inter-broker listener (``inter.broker.listener.name``).
    - ``security_protocol`` ("PLAINTEXT"): PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
      (``security.inter.broker.protocol``).
    - ``tls`` (None; with SSL: the system's certificate authorities, no certificate of ours): TLS.
    - ``sasl`` (None): the SASL user; SASL_PLAINTEXT and SASL_SSL need one.

    Time limits:

    - ``connection_setup_timeout`` (10): of name look-up and TCP together; doubles with each attempt that runs
      into it, up to ``connection_setup_timeout_max`` (30) (``socket.connection.setup.timeout.ms`` and
      ``socket.connection.setup.timeout.max.ms``).
    - ``socket_timeout`` (30): of everything until a connection is ready: name look-up, TCP, TLS, ApiVersions
      and SASL together (``controller.socket.timeout.ms``).
    - ``request_timeout`` (30): from a request's first byte to its whole response (``request.timeout.ms``).
    - ``retry_backoff`` (0.1): the pause after every failure, as in Kafka's RequestSendThread.
    - ``sender_timeout`` (10, at least 0.5): a sender process that has work and does not answer for this long
      is killed and replaced.

    Processes and memory:

    - ``senders`` ("auto"): "auto" (as many processes as is fastest on this machine share the brokers), the
      number of processes that share them, or "per-broker" (one process for each broker).
    - ``max_request_bytes`` (100 MiB): a larger request is split, or ends as TOO_LARGE if it cannot be split
      (``socket.request.max.bytes`` of the brokers).
    - ``max_response_bytes`` (100 MiB): a larger response fails the connection.
    - ``merge_update_metadata`` (True): UpdateMetadata requests that wait for one broker, one behind the
      other, are merged.
    - ``max_backlog_bytes`` (256 MiB): when more UpdateMetadata than this waits for one broker although it was
      merged, a full state replaces it, where a batch can make one.
    - ``shared_memory_bytes`` (64 GiB): address space for request bodies; unused pages cost nothing. A body
      that finds no room waits in private memory.
    """

    controller_id: int = -1
    client_id: str | None = None
    inter_broker_protocol: str = "3.9"
    listener_name: str | None = None
    inter_broker_listener: str | None = None
    security_protocol: str = "PLAINTEXT"
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None
    negotiate: bool = False
    connection_setup_timeout: float = 10.0
    connection_setup_timeout_max: float = 30.0
    socket_timeout: float = 30.0
    request_timeout: float = 30.0
    retry_backoff: float = 0.1
    senders: str | int = AUTO
    sender_timeout: float = 10.0
    max_request_bytes: int = 100 * 2**20
    max_response_bytes: int = 100 * 2**20
    merge_update_metadata: bool = True
    max_backlog_bytes: int = 256 * 2**20
    shared_memory_bytes: int = 64 * 2**30

    def __post_init__(self) -> None:
        request_versions(self.inter_broker_protocol)
        self._check_security()
        for name in ("connection_setup_timeout", "socket_timeout", "request_timeout"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}: {getattr(self, name)!r} is not above 0 seconds")
        if not self.sender_timeout >= _LEAST_SENDER_TIMEOUT:
            raise ConfigError(
                f"sender_timeout: {self.sender_timeout!r} is below {_LEAST_SENDER_TIMEOUT} seconds"
            )
        if not self.retry_backoff >= 0:
            raise ConfigError(f"retry_backoff: {self.retry_backoff!r} is below 0 seconds")
        if not self.connection_setup_timeout_max >= self.connection_setup_timeout:
            raise ConfigError("connection_setup_timeout_max is below connection_setup_timeout")
        for name in _TIMES:
            if not getattr(self, name) <= _MAX_SECONDS:
                raise ConfigError(f"{name}: {getattr(self, name)!r} is above {_MAX_SECONDS} seconds")
        for name in ("max_request_bytes", "max_response_bytes"):
            if not 0 < getattr(self, name) <= _MAX_FRAME:
                raise ConfigError(f"{name}: {getattr(self, name)!r} is not in 1 .. {_MAX_FRAME}")
        if not self.max_backlog_bytes > 0:
            raise ConfigError(f"max_backlog_bytes: {self.max_backlog_bytes!r} is not above 0")
        if len(self.client_id_bytes) > 2**15 - 1:
            raise ConfigError("client_id: longer than 32,767 bytes")
        if isinstance(self.senders, str):
            if self.senders not in (PER_BROKER, AUTO):
                raise ConfigError(f"senders: {self.senders!r} is not {PER_BROKER!r}, {AUTO!r} or a number")
        elif self.senders < 1:
            raise ConfigError(f"senders: {self.senders!r} is below 1")

    def _check_security(self) -> None:
        protocol = self.security_protocol
        if protocol not in SECURITY_PROTOCOLS:
            raise ConfigError(f"security_protocol: {protocol!r} is not {', '.join(SECURITY_PROTOCOLS)}")
        if self.tls is not None and not protocol.endswith("SSL"):
            raise ConfigError(f"tls: security_protocol {protocol} has no TLS")
        if self.sasl is not None and not protocol.startswith("SASL"):
            raise ConfigError(f"sasl: security_protocol {protocol} has no SASL")
        if self.sasl is None and protocol.startswith("SASL"):
            raise ConfigError(f"sasl: security_protocol {protocol} needs it")

    @classmethod
    def from_properties(
        cls,
        source: str | PathLike[str] | Mapping[str, str],
        *,
        listener: str | None = None,
        **settings: Any,
    ) -> ChannelConfig:
        """Return the settings of a broker's ``server.properties``, which are also its controller's.

        ``source`` is a path, or a mapping of its keys and values; ``settings`` override what it has.
        ``listener``: use this listener instead of ``control.plane.listener.name``. ``properties.py`` lists
        the keys.

        Raises ConfigError naming file, line and key for a value that cannot work.
        """
        from ctrlchan.channel.properties import settings_of

        return cls(**(settings_of(source, listener) | settings))

    def check_credentials(self) -> None:
        """Raise ConfigError, naming the setting, for a TLS file or a Python package that cannot be used."""
        if self.credentials.tls is not None:
            from ctrlchan.security.tls_context import context_of

            try:
                context_of(self.credentials.tls)
            except (OSError, ValueError) as problem:
                raise ConfigError(f"tls: {problem}") from None
        if self.sasl is not None and self.sasl.package is not None:
            from ctrlchan.security.kerberos import load_gssapi

            try:
                load_gssapi()
            except ConfigError as problem:
                raise ConfigError(f"sasl: {problem}") from None

    @property
    def credentials(self) -> Credentials:
        """What each connection begins with."""
        tls = self.tls or TlsSettings() if self.security_protocol.endswith("SSL") else None
        return Credentials(
            client_id=self.client_id_bytes.decode(), negotiate=self.negotiate, tls=tls, sasl=self.sasl
        )

    @property
    def client_id_bytes(self) -> bytes:
        """The client id in request headers."""
        return (str(self.controller_id) if self.client_id is None else self.client_id).encode()

    @property
    def broker_listener(self) -> str:
        """The name of the inter-broker listener."""
        return self.inter_broker_listener or self.security_protocol

    @property
    def connection_rule(self) -> ListenerRule:
        """How the endpoint that the channel connects to is chosen."""
        protocol = SECURITY_PROTOCOLS[self.security_protocol]
        if self.listener_name is not None:
            return ListenerRule(self.listener_name, protocol)
        # If only the protocol was named, a listener of any name will do.
        return ListenerRule(self.broker_listener, protocol, self.inter_broker_listener is None)

    @property
    def leader_rule(self) -> ListenerRule:
        """How the endpoints of leaders in LeaderAndIsr are chosen, to which followers connect.

        They are those that the channel connects to, unless it has a control-plane listener of its own: the
        security protocol is that listener's, so the inter-broker listener is chosen by its name.
        """
        if self.listener_name is None:
            return self.connection_rule
        return ListenerRule(self.broker_listener)
