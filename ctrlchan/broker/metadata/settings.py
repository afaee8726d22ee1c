"""The settings that a broker with a log directory acts on, under Kafka's names, with their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ctrlchan.errors import ConfigError

__all__ = ["DEFAULTS", "boolean", "integer", "setting"]

#: Kafka's defaults, but for ``num.network.threads`` and the sizes of socket buffers.
#: See ``SocketServerSettings``.
DEFAULTS: Final[Mapping[str, str]] = {
    "auto.create.topics.enable": "true",
    "connections.max.idle.ms": "600000",
    "controlled.shutdown.enable": "true",
    "controlled.shutdown.max.retries": "3",
    "controlled.shutdown.retry.backoff.ms": "5000",
    "default.replication.factor": "1",
    "fetch.max.bytes": "57671680",
    "max.connections": "2147483647",
    "max.connections.per.ip": "2147483647",
    "max.connections.per.ip.overrides": "",
    "max.incremental.fetch.session.cache.slots": "1000",
    "num.io.threads": "8",
    "num.network.threads": "1",
    "num.partitions": "1",
    "queued.max.requests": "500",
    "replica.fetch.backoff.ms": "1000",
    "replica.fetch.max.bytes": "1048576",
    "replica.fetch.min.bytes": "1",
    "replica.fetch.response.max.bytes": "10485760",
    "replica.fetch.wait.max.ms": "500",
    "replica.lag.time.max.ms": "30000",
    "socket.listen.backlog.size": "50",
    "socket.receive.buffer.bytes": "-1",
    "socket.request.max.bytes": "104857600",
    "socket.send.buffer.bytes": "-1",
}


def setting(configs: Mapping[str, str], name: str) -> str:
    """Return the value of a setting. Raises KeyError when it is not set and has no default here."""
    value = configs.get(name)
    return DEFAULTS[name] if value is None else value.strip()


def integer(configs: Mapping[str, str], name: str, least: int = 1, most: int = 2**31 - 1) -> int:
    """Return the value of a setting that is a number. Raises ConfigError, naming it."""
    text = setting(configs, name)
    try:
        value = int(text)
    except ValueError:
        raise ConfigError(f"{name}={text}: not a number") from None
    if not least <= value <= most:
        raise ConfigError(f"{name}={value}: not from {least} to {most}")
    return value


def boolean(configs: Mapping[str, str], name: str) -> bool:
    """Return the value of a setting that is true or false. Raises ConfigError, naming it."""
    text = setting(configs, name).lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{name}={text}: neither true nor false")
    return text == "true"
