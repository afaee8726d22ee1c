"""Settings of a controller channel, under Kafka's names where Kafka has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ctrlchan.errors import ConfigError
from ctrlchan.versions import request_versions

__all__ = ["AUTO", "PER_BROKER", "ChannelConfig"]

#: ``senders``: a process for each broker.
PER_BROKER: Final = "per-broker"
#: ``senders``: as many processes as is fastest for the brokers and the cores at hand.
AUTO: Final = "auto"

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
    - ``connection_setup_timeout``: for resolving and connecting; doubles with each attempt that runs into
      it, up to ``connection_setup_timeout_max`` (``socket.connection.setup.timeout[.max].ms``).
    - ``socket_timeout``: from a request's first byte to its whole response
      (``controller.socket.timeout.ms``).
    - ``retry_backoff``: pause after every failure (100 ms in Kafka's RequestSendThread).
    - ``senders``: ``"per-broker"`` (a process for each broker), a number of processes that share the
      brokers, or ``"auto"``.
    - ``max_request_bytes``: a larger request ends as TOO_LARGE (the brokers' ``socket.request.max.bytes``).
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
    connection_setup_timeout: float = 10.0
    connection_setup_timeout_max: float = 30.0
    socket_timeout: float = 30.0
    retry_backoff: float = 0.1
    senders: str | int = PER_BROKER
    max_request_bytes: int = 100 * 2**20
    max_response_bytes: int = 100 * 2**20
    shared_memory_bytes: int = 64 * 2**30

    def __post_init__(self) -> None:
        request_versions(self.inter_broker_protocol)
        if self.security_protocol != "PLAINTEXT":
            raise ConfigError(f"security_protocol: {self.security_protocol!r} is not PLAINTEXT")
        for name in ("connection_setup_timeout", "socket_timeout"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}: {getattr(self, name)!r} is not above 0 seconds")
        if not self.retry_backoff >= 0:
            raise ConfigError(f"retry_backoff: {self.retry_backoff!r} is below 0 seconds")
        if not self.connection_setup_timeout_max >= self.connection_setup_timeout:
            raise ConfigError("connection_setup_timeout_max is below connection_setup_timeout")
        for name in ("max_request_bytes", "max_response_bytes"):
            if not 0 < getattr(self, name) <= _MAX_FRAME:
                raise ConfigError(f"{name}: {getattr(self, name)!r} is not in 1 .. {_MAX_FRAME}")
        if len(self.client_id_bytes) > 2**15 - 1:
            raise ConfigError("client_id: longer than 32,767 bytes")
        if isinstance(self.senders, str):
            if self.senders not in (PER_BROKER, AUTO):
                raise ConfigError(f"senders: {self.senders!r} is not {PER_BROKER!r}, {AUTO!r} or a number")
        elif self.senders < 1:
            raise ConfigError(f"senders: {self.senders!r} is below 1")

    @property
    def client_id_bytes(self) -> bytes:
        return (str(self.controller_id) if self.client_id is None else self.client_id).encode()

    @property
    def broker_listener(self) -> str:
        """The name of the inter-broker listener, which is what brokers are told of each other."""
        return self.inter_broker_listener or self.security_protocol
