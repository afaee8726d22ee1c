"""The settings of a storing broker's parts, from its configs under Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ctrlchan.config.settings import boolean, integer, setting
from ctrlchan.config.values import invalid_value, parse_int, parse_list
from ctrlchan.server.socket_server import SocketServerSettings

__all__ = ["FetcherSettings", "check_topic_settings", "fetcher_settings", "server_settings"]


class FetcherSettings(NamedTuple):
    """Kafka's ``replica.fetch.``: wait.max.ms, min.bytes, response.max.bytes, max.bytes, backoff.ms."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10 * 2**20
    partition_max_bytes: int = 2**20
    backoff_ms: int = 1000


def check_topic_settings(configs: Mapping[str, str]) -> None:
    """Check the settings of topics that are created when they are asked for. Raises ConfigError."""
    boolean(configs, "auto.create.topics.enable")
    integer(configs, "num.partitions")
    integer(configs, "default.replication.factor")


def fetcher_settings(configs: Mapping[str, str]) -> FetcherSettings:
    """Return how a follower fetches. Raises ConfigError."""
    return FetcherSettings(
        max_wait_ms=integer(configs, "replica.fetch.wait.max.ms"),
        min_bytes=integer(configs, "replica.fetch.min.bytes"),
        max_bytes=integer(configs, "replica.fetch.response.max.bytes"),
        partition_max_bytes=integer(configs, "replica.fetch.max.bytes"),
        backoff_ms=integer(configs, "replica.fetch.backoff.ms"),
    )


def server_settings(configs: Mapping[str, str]) -> SocketServerSettings:
    """Return the limits and threads of the SocketServer. Raises ConfigError."""
    return SocketServerSettings(
        num_network_threads=integer(configs, "num.network.threads"),
        queued_max_requests=integer(configs, "queued.max.requests"),
        socket_request_max_bytes=integer(configs, "socket.request.max.bytes"),
        socket_send_buffer_bytes=integer(configs, "socket.send.buffer.bytes"),
        socket_receive_buffer_bytes=integer(configs, "socket.receive.buffer.bytes"),
        socket_listen_backlog_size=integer(configs, "socket.listen.backlog.size"),
        connections_max_idle_ms=integer(configs, "connections.max.idle.ms"),
        max_connections=integer(configs, "max.connections"),
        max_connections_per_ip=integer(configs, "max.connections.per.ip"),
        max_connections_per_ip_overrides=_overrides(setting(configs, "max.connections.per.ip.overrides")),
    )


def _overrides(text: str) -> dict[str, int]:
    """Return the limit of each host in ``host:limit,…``. Raises ConfigError."""
    name = "max.connections.per.ip.overrides"
    limits = {}
    for part in filter(None, parse_list(name, text)):
        host, _, limit = part.rpartition(":")
        if not host.strip():
            raise invalid_value(name, part, "Each entry must be HOST:LIMIT")
        limits[host.strip()] = parse_int(name, limit, 0)
    return limits
