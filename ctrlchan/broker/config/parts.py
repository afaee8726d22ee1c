"""The settings of a storing broker's parts, from its configs under Kafka's names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

from ctrlchan.config import table
from ctrlchan.config.dynamic import listener_of
from ctrlchan.config.typed import TypedSettings, value_of
from ctrlchan.config.values import invalid_value, parse_int, parse_list
from ctrlchan.errors import ConfigError
from ctrlchan.peers.setup_time import SetupTime
from ctrlchan.server.socket_server import ListenerLimits, SocketServerSettings

__all__ = [
    "FetcherSettings",
    "LogDirMoveSettings",
    "NewTopicSettings",
    "PeerSettings",
    "QuotaSettings",
    "ReplicaSettings",
    "RequestSettings",
    "ShutdownSettings",
    "server_settings",
]


#: ``Utils.VALID_HOST_CHARACTERS``
_HOST: Final = re.compile(r"[0-9a-zA-Z\-%._:]*")


@dataclass(frozen=True, slots=True)
class _SetupSettings(TypedSettings):
    """How long connections to other nodes may take to be set up."""

    setup_ms: int = value_of(table.SOCKET_CONNECTION_SETUP_TIMEOUT_MS)
    setup_max_ms: int = value_of(table.SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS)

    def setup_time(self) -> SetupTime:
        """Return the times for the connections to one node."""
        return SetupTime(self.setup_ms / 1000, self.setup_max_ms / 1000)


@dataclass(frozen=True, slots=True)
class FetcherSettings(_SetupSettings):
    """How a follower fetches. ``threads``: for each leader."""

    max_wait_ms: int = value_of(table.REPLICA_FETCH_WAIT_MAX_MS)
    min_bytes: int = value_of(table.REPLICA_FETCH_MIN_BYTES)
    max_bytes: int = value_of(table.REPLICA_FETCH_RESPONSE_MAX_BYTES)
    partition_max_bytes: int = value_of(table.REPLICA_FETCH_MAX_BYTES)
    backoff_ms: int = value_of(table.REPLICA_FETCH_BACKOFF_MS)
    #: For an answer.
    socket_timeout_ms: int = value_of(table.REPLICA_SOCKET_TIMEOUT_MS)
    receive_buffer: int = value_of(table.REPLICA_SOCKET_RECEIVE_BUFFER_BYTES)
    threads: int = value_of(table.NUM_REPLICA_FETCHERS, lambda number: max(1, number))

    def __post_init__(self) -> None:
        if self.max_wait_ms > self.socket_timeout_ms:
            raise ConfigError(
                f"{table.REPLICA_SOCKET_TIMEOUT_MS} should always be at least "
                f"{table.REPLICA_FETCH_WAIT_MAX_MS} to prevent unnecessary socket timeouts"
            )


@dataclass(frozen=True, slots=True)
class LogDirMoveSettings(TypedSettings):
    """How replicas are moved to other log directories. ``threads``: 0 for one for each directory."""

    partition_max_bytes: int = value_of(table.REPLICA_FETCH_MAX_BYTES)
    backoff_ms: int = value_of(table.REPLICA_FETCH_BACKOFF_MS)
    threads: int = 0

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> Self:
        settings, threads = cls().with_configs(configs), table.NUM_REPLICA_ALTER_LOG_DIRS_THREADS
        if threads.name not in configs:
            return settings
        return replace(settings, threads=threads.parse(configs[threads.name]))


@dataclass(frozen=True, slots=True)
class ReplicaSettings(TypedSettings):
    """When a follower is out of sync."""

    max_lag_ms: int = value_of(table.REPLICA_LAG_TIME_MAX_MS)


@dataclass(frozen=True, slots=True)
class RequestSettings(TypedSettings):
    """How requests are answered: handler threads, the bytes of a Fetch, and fetch sessions."""

    handler_threads: int = value_of(table.NUM_IO_THREADS)
    fetch_max_bytes: int = value_of(table.FETCH_MAX_BYTES)
    fetch_sessions: int = value_of(table.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS)


@dataclass(frozen=True, slots=True)
class PeerSettings(_SetupSettings):
    """How long requests to other brokers and to the controller, and the connections for them, may take."""

    request_ms: int = value_of(table.REQUEST_TIMEOUT_MS)
    #: For the answer to a ControlledShutdown.
    controller_ms: int = value_of(table.CONTROLLER_SOCKET_TIMEOUT_MS)


@dataclass(frozen=True, slots=True)
class NewTopicSettings(TypedSettings):
    """Settings of topics that are created on demand."""

    auto_create: bool = value_of(table.AUTO_CREATE_TOPICS_ENABLE)
    num_partitions: int = value_of(table.NUM_PARTITIONS)
    replication_factor: int = value_of(table.DEFAULT_REPLICATION_FACTOR)


@dataclass(frozen=True, slots=True)
class QuotaSettings(TypedSettings):
    """Of how many samples, and of how many seconds each, the rates of quotas are made."""

    samples: int = value_of(table.QUOTA_WINDOW_NUM)
    window_seconds: int = value_of(table.QUOTA_WINDOW_SIZE_SECONDS)
    mutation_samples: int = value_of(table.CONTROLLER_QUOTA_WINDOW_NUM)
    mutation_window_seconds: int = value_of(table.CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS)
    replication_samples: int = value_of(table.REPLICATION_QUOTA_WINDOW_NUM)
    replication_window_seconds: int = value_of(table.REPLICATION_QUOTA_WINDOW_SIZE_SECONDS)
    log_dirs_samples: int = value_of(table.ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_NUM)
    log_dirs_window_seconds: int = value_of(table.ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_SIZE_SECONDS)


@dataclass(frozen=True, slots=True)
class ShutdownSettings(TypedSettings):
    """How often the controller is asked to move the leaders of a broker that stops."""

    is_controlled: bool = value_of(table.CONTROLLED_SHUTDOWN_ENABLE)
    attempts: int = value_of(table.CONTROLLED_SHUTDOWN_MAX_RETRIES)
    pause_ms: int = value_of(table.CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS)


def server_settings(configs: Mapping[str, str]) -> SocketServerSettings:
    """Return the limits and threads of the SocketServer. Raises ConfigError."""
    if not table.MAX_CONNECTIONS_PER_IP.of(configs) and not table.MAX_CONNECTIONS_PER_IP_OVERRIDES.of(
        configs
    ):
        raise ConfigError(
            f"requirement failed: {table.MAX_CONNECTIONS_PER_IP} can be set to zero only if "
            f"{table.MAX_CONNECTIONS_PER_IP_OVERRIDES} property is set."
        )
    memory = table.QUEUED_MAX_REQUEST_BYTES.of(configs)
    largest = table.SOCKET_REQUEST_MAX_BYTES.of(configs)
    if 0 < memory < largest:
        raise ConfigError(
            f"requirement failed: {table.QUEUED_MAX_REQUEST_BYTES} must be larger or equal to "
            f"{table.SOCKET_REQUEST_MAX_BYTES}"
        )
    return SocketServerSettings(
        num_network_threads=table.NUM_NETWORK_THREADS.of(configs),
        queued_max_request_bytes=memory,
        queued_max_requests=table.QUEUED_MAX_REQUESTS.of(configs),
        socket_request_max_bytes=largest,
        socket_send_buffer_bytes=table.SOCKET_SEND_BUFFER_BYTES.of(configs),
        socket_receive_buffer_bytes=table.SOCKET_RECEIVE_BUFFER_BYTES.of(configs),
        socket_listen_backlog_size=table.SOCKET_LISTEN_BACKLOG_SIZE.of(configs),
        connections_max_idle_ms=table.CONNECTIONS_MAX_IDLE_MS.of(configs),
        max_connections=table.MAX_CONNECTIONS.of(configs),
        max_connection_creation_rate=table.MAX_CONNECTION_CREATION_RATE.of(configs),
        limits_of_listeners=_limits_of_listeners(configs),
        max_connections_per_ip=table.MAX_CONNECTIONS_PER_IP.of(configs),
        max_connections_per_ip_overrides=_overrides(table.MAX_CONNECTIONS_PER_IP_OVERRIDES.of(configs)),
        sasl_server_max_receive_size=table.SASL_SERVER_MAX_RECEIVE_SIZE.of(configs),
        connection_failed_authentication_delay_ms=table.CONNECTION_FAILED_AUTHENTICATION_DELAY_MS.of(configs),
    )


def _limits_of_listeners(configs: Mapping[str, str]) -> dict[str, ListenerLimits]:
    """Return the limits of connections of each listener that has its own. Raises ConfigError."""
    limits: dict[str, ListenerLimits] = {}
    for setting, field in (
        (table.MAX_CONNECTIONS, "max_connections"),
        (table.MAX_CONNECTION_CREATION_RATE, "max_connection_creation_rate"),
    ):
        for name, text in configs.items():
            listener, base = listener_of(name)
            if listener is not None and base == setting.name:
                number = setting.parse(text, name)
                limits[listener] = limits.get(listener, ListenerLimits())._replace(**{field: number})
    return limits


def _overrides(text: str) -> dict[str, int]:
    """Return the limit of each host in ``host:limit,…``. Raises ConfigError."""
    name = table.MAX_CONNECTIONS_PER_IP_OVERRIDES.name
    limits = {}
    for part in filter(None, parse_list(name, text)):
        host, _, limit = part.rpartition(":")
        if not host.strip():
            raise invalid_value(name, part, "Each entry must be HOST:LIMIT")
        limits[host.strip()] = parse_int(name, limit, 0)
    if invalid := [host for host in limits if not _HOST.fullmatch(host)]:
        raise ConfigError(f"{name} contains invalid addresses : {','.join(invalid)}")
    return limits
