"""The settings with which one broker is started."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ctrlchan.broker.config.listener_configs import control_plane_problem, security_protocols
from ctrlchan.config import table
from ctrlchan.errors import ConfigError
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.text import quoted, why_unsendable

__all__ = ["DEFAULT_CLUSTER_ID", "DEFAULT_IDLE_TIMEOUT", "DEFAULT_MAX_REQUEST_BYTES", "BrokerConfig"]

DEFAULT_CLUSTER_ID = "ctrlchan-embedded"
DEFAULT_MAX_REQUEST_BYTES = 100 * 1024 * 1024  # Kafka's socket.request.max.bytes
DEFAULT_IDLE_TIMEOUT = 600.0  # seconds; Kafka's connections.max.idle.ms

_MAX_ID = 2**31 - 1


def _check_sendable(what: str, text: str) -> None:
    if (why := why_unsendable(text)) is not None:
        raise ConfigError(f"{what} {quoted(text)} {why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Settings of one embedded broker. Raises ConfigError when a value is not valid.

    ``id``: 0 to 2^31 − 1 (``broker.id``). ``host``: address to listen on and to be reached at. ``port``: 0 to
    65535, 0: any free one. ``listener``: name of the listener (``listeners``) that other brokers and the
    controller connect to. ``more_listeners``: name, host and port of others, of a broker that stores records.
    ``advertised``: the host and port that others are given, by listener, where they are not those to listen
    on. ``epoch``: broker epoch of its registration; requests with a lower one get STALE_BROKER_EPOCH; -1:
    unknown, every epoch is accepted. ``rack``: ``broker.rack``. ``cluster_id``: for clients.
    ``max_request_bytes``: a larger request closes the connection (``socket.request.max.bytes``).
    ``idle_timeout``: seconds until an idle connection is closed (``connections.max.idle.ms``), or None for no
    limit. ``response_delay``: seconds that every answer is delayed, for tests with a slow broker.
    ``log_dirs``: where records are stored (``log.dirs``); a broker without log directories stores no records.
    ``configs``: other settings of a broker that stores records, under Kafka's names, those that secure
    listeners among them; without ``listener.security.protocol.map`` all listeners are PLAINTEXT whose name is
    no security protocol. ``controller``: HOST:PORT of a controller that is no broker, or None if the metadata
    name the controller.
    """

    id: int
    host: str = "127.0.0.1"
    port: int = 0
    listener: str = "PLAINTEXT"
    epoch: int = -1
    rack: str | None = None
    cluster_id: str = DEFAULT_CLUSTER_ID
    max_request_bytes: int = DEFAULT_MAX_REQUEST_BYTES
    idle_timeout: float | None = DEFAULT_IDLE_TIMEOUT
    response_delay: float = 0.0
    log_dirs: Sequence[str] = ()
    # Some are secret.
    configs: Mapping[str, str] = field(default_factory=dict, repr=False)
    controller: str | None = None
    more_listeners: Sequence[tuple[str, str, int]] = ()
    advertised: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.id <= _MAX_ID:
            raise ConfigError(f"broker id {self.id} is not in 0 .. {_MAX_ID}")
        for name, host, port in self.listeners:
            if not 0 <= port <= 65_535:
                raise ConfigError(f"port {port} is not in 0 .. 65535")
            if not name:
                raise ConfigError("a listener needs a name")
            given = self.advertised.get(name, (host, port))[0]
            if not given:
                raise ConfigError(f"listener {name} needs a host that others are given")
            _check_sendable("the name of listener", name)
            _check_sendable("host", given)
        _check_sendable("rack", self.rack or "")
        _check_sendable("cluster id", self.cluster_id)
        names = [name for name, _, _ in self.listeners]
        if len(set(names)) < len(names):
            raise ConfigError(f"a listener comes twice: {', '.join(names)}")
        if not self.advertised.keys() <= set(names):
            unknown = ", ".join(sorted(self.advertised.keys() - set(names)))
            raise ConfigError(f"advertised, but none of the listeners: {unknown}")
        if self.more_listeners and not self.log_dirs:
            raise ConfigError("several listeners: only for a broker with a log directory")
        if self.max_request_bytes <= 0:
            raise ConfigError(f"max_request_bytes {self.max_request_bytes} leaves no room for a request")
        if self.idle_timeout is not None and self.idle_timeout <= 0:
            raise ConfigError(f"idle_timeout {self.idle_timeout} closes every connection; None is never")
        if not 0 <= self.response_delay < math.inf:
            raise ConfigError(f"response_delay {self.response_delay} is not a number of seconds from 0")
        if self.log_dirs and self.response_delay:
            raise ConfigError("response_delay: only for a broker without a log directory")
        if self.configs and not self.log_dirs:
            raise ConfigError(f"{next(iter(self.configs))}: only for a broker with a log directory")
        if self.log_dirs:
            self.security_protocols()
        control = self.control_plane_listener
        if control is not None and (why := control_plane_problem(control, names, self.listener)):
            raise ConfigError(f"{table.CONTROL_PLANE_LISTENER_NAME}: {control!r} {why}")

    @property
    def listeners(self) -> list[tuple[str, str, int]]:
        """Name, host and port of each listener; the first one is ``listener``."""
        return [(self.listener, self.host, self.port), *self.more_listeners]

    @property
    def control_plane_listener(self) -> str | None:
        """The listener that only the controller connects to, with threads of its own; None: there is none."""
        return self.configs.get(table.CONTROL_PLANE_LISTENER_NAME.name)

    def with_ports(self, ports: Mapping[str, int]) -> BrokerConfig:
        """Return the same settings with the ports that the listeners have got, by name."""
        more = [(name, host, ports[name]) for name, host, _ in self.more_listeners]
        return replace(self, port=ports[self.listener], more_listeners=more)

    def security_protocols(self) -> dict[str, SecurityProtocol]:
        """Return the security protocol of each listener. Raises ConfigError."""
        if not self.log_dirs:
            return dict.fromkeys((name for name, _, _ in self.listeners), SecurityProtocol.PLAINTEXT)
        return security_protocols(self.configs, [name for name, _, _ in self.listeners])

    def kafka_configs(self) -> dict[str, str]:
        """Return the settings that have a name of Kafka's, by name."""
        configs = {}
        if self.idle_timeout != DEFAULT_IDLE_TIMEOUT:
            idle_ms = -1 if self.idle_timeout is None else round(self.idle_timeout * 1000)
            configs[table.CONNECTIONS_MAX_IDLE_MS.name] = str(idle_ms)
        if self.max_request_bytes != DEFAULT_MAX_REQUEST_BYTES:
            configs[table.SOCKET_REQUEST_MAX_BYTES.name] = str(self.max_request_bytes)
        configs |= self.configs
        if self.log_dirs:
            configs[table.LOG_DIRS.name] = ",".join(self.log_dirs)
        return configs
