"""Settings of a controller channel, under Kafka's names where Kafka has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from typing import Any, Final

from ctrlchan.channel.wire.security import SCRAM, SECURITY_PROTOCOLS, Credentials, SaslSettings, TlsSettings
from ctrlchan.errors import ConfigError
from ctrlchan.protocol import request_versions

__all__ = ["AUTO", "PER_BROKER", "ChannelConfig"]

#: ``senders``: a process for each broker.
PER_BROKER: Final = "per-broker"
#: ``senders``: as many processes as is fastest for the brokers and the cores at hand.
AUTO: Final = "auto"

#: A process that is ready to run may have to wait for so long on a machine with too much to do.
_LEAST_SENDER_TIMEOUT: Final = 0.5
#: A frame's size is an int32.
_MAX_FRAME: Final = 2**31 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelConfig:
    """How one controller talks to its brokers. Times are seconds, sizes bytes.

    Raises ConfigError, naming the setting, for a value that cannot work.

    - ``controller_id``: id in every request head; ``client_id``: Kafka's default is the id as a string.
    - ``inter_broker_protocol``: the IBP that fixes the request versions (``3.9``, ``2.8-IV1``, ...).
    - ``listener_name``: the control-plane listener (``control.plane.listener.name``). None: the inter-broker
      listener, ``inter_broker_listener`` (``inter.broker.listener.name``); None there: the listener named as
      ``security_protocol`` (``security.inter.broker.protocol``), else the first that speaks it.
    - ``security_protocol``: of that listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, with ``tls`` (None
      with SSL: the system's authorities, no certificate of ours) and ``sasl`` for how.
    - ``negotiate``: ask each broker for its versions (ApiVersions) with each connection, and connect without
      waiting for a request. False: nobody is asked, as in Kafka.
    - ``connection_setup_timeout``: for resolving and connecting; doubles with each attempt that runs into
      it, up to ``connection_setup_timeout_max`` (``socket.connection.setup.timeout[.max].ms``).
    - ``socket_timeout``: for getting a connection ready: name look-up, TCP, TLS, SASL and ApiVersions
      together (``controller.socket.timeout.ms``).
    - ``request_timeout``: from a request's first byte to its whole response (``request.timeout.ms``).
    - ``retry_backoff``: pause after every failure (100 ms in Kafka's RequestSendThread).
    - ``senders``: ``"auto"`` (as many processes as is fastest for the cores at hand share the brokers), a
      number of processes that share them, or ``"per-broker"`` (a process for each).
    - ``sender_timeout``: a sender process that has work and does not answer for so long is killed and
      replaced. Not below 0.5: a process that has just been started on a busy machine would be taken for one
      that hangs.
    - ``max_request_bytes``: a larger request is split, and ends as TOO_LARGE where that cannot be done (the
      brokers' ``socket.request.max.bytes``).
    - ``merge_update_metadata``: neighbouring UpdateMetadata that wait for a broker go as one.
    - ``max_backlog_bytes``: when more UpdateMetadata than that wait for one broker though they were merged,
      those of a batch give way to the whole state, read when the broker can take it (``full_state.py``); of
      others everything is merged that can be.
    - ``max_response_bytes``: a larger response is garbage.
    - ``shared_memory_bytes``: room for request bodies, sparse: what is not used costs nothing. A body that
      finds no room waits in private memory.
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
        """The settings of a broker's ``server.properties`` (a path, or its keys and values), which are also
        its controller's; ``settings`` win over them. ``listener``: use this one of its listeners, whatever
        the file says of controllers. See ``properties.py`` for the keys.

        Raises ConfigError naming file, line and key for a value that cannot work.
        """
        from ctrlchan.channel.properties import settings_of

        return cls(**(settings_of(source, listener) | settings))

    def check_credentials(self) -> None:
        """Raise ConfigError, naming the setting, for a TLS file or a Python package that cannot be used."""
        if self.credentials.tls is not None:
            from ctrlchan.channel.wire.tls_context import context_of

            try:
                context_of(self.credentials.tls)
            except (OSError, ValueError) as problem:
                raise ConfigError(f"tls: {problem}") from None
        if self.sasl is not None and self.sasl.mechanism != "PLAIN":
            try:
                import_module(SCRAM)
            except ImportError:
                raise ConfigError(
                    f"sasl: {self.sasl.mechanism} needs a package: pip install {SCRAM}"
                ) from None

    @property
    def credentials(self) -> Credentials:
        """How each connection begins."""
        tls = self.tls or TlsSettings() if self.security_protocol.endswith("SSL") else None
        return Credentials(
            client_id=self.client_id_bytes.decode(), negotiate=self.negotiate, tls=tls, sasl=self.sasl
        )

    @property
    def client_id_bytes(self) -> bytes:
        return (str(self.controller_id) if self.client_id is None else self.client_id).encode()

    @property
    def broker_listener(self) -> str:
        """The name of the inter-broker listener, which is what brokers are told of each other."""
        return self.inter_broker_listener or self.security_protocol
