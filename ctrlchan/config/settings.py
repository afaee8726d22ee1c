"""The settings that a broker with a log directory acts on, under Kafka's names, with their defaults."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Final

from ctrlchan.config.definitions import broker_configs
from ctrlchan.config.parsing import parse_setting
from ctrlchan.errors import ConfigError

__all__ = ["DEFAULTS", "boolean", "check_arguments", "integer", "names_without_effect", "setting"]

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

#: Settings that a broker acts on and that no table of configs has.
_OTHERS: Final = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "broker.rack",
        "controlled.shutdown.enable",
        "group.initial.rebalance.delay.ms",
        "group.max.session.timeout.ms",
        "group.max.size",
        "group.min.session.timeout.ms",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "log.flush.offset.checkpoint.interval.ms",
        "log.flush.scheduler.interval.ms",
        "log.flush.start.offset.checkpoint.interval.ms",
        "log.initial.task.delay.ms",
        "log.retention.check.interval.ms",
        "log.retention.hours",
        "log.retention.minutes",
        "log.roll.hours",
        "log.roll.jitter.hours",
        "offset.metadata.max.bytes",
        "offsets.commit.timeout.ms",
        "offsets.load.buffer.size",
        "offsets.retention.check.interval.ms",
        "offsets.retention.minutes",
        "offsets.topic.compression.codec",
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        "offsets.topic.segment.bytes",
        "producer.id.expiration.check.interval.ms",
        "replica.high.watermark.checkpoint.interval.ms",
        "security.inter.broker.protocol",
        "zookeeper.connect",
        "zookeeper.session.timeout.ms",
    }
)
#: Settings that are arguments of ``EmbeddedBroker`` and ``EmbeddedCluster``.
_ARGUMENTS: Final[Mapping[str, str]] = {
    "advertised.listeners": "advertised_listeners",
    "broker.id": "id, first_id",
    "broker.rack": "rack, racks",
    "inter.broker.listener.name": "listener",
    "listeners": "host, port, more_listeners",
    "log.dir": "log_dir",
    "log.dirs": "log_dir",
    "zookeeper.connect": "zookeeper",
}


def names_without_effect(names: Iterable[str]) -> list[str]:
    """Return those of the names that are no settings which a broker acts on."""
    known = _OTHERS | DEFAULTS.keys() | {config.name for config in broker_configs({})}
    return [name for name in names if name not in known]


def check_arguments(configs: Mapping[str, str]) -> None:
    """Check the ``configs`` of an embedded broker: warn of settings without effect.

    Raises ConfigError for a value that is no text, and for a setting that is an argument.
    """
    for name, value in configs.items():
        if name in _ARGUMENTS:
            raise ConfigError(f"{name}: is set by arguments ({_ARGUMENTS[name]})")
        if not isinstance(value, str):
            raise ConfigError(f"{name}: {value!r} is not a text")
    for name in names_without_effect(configs):
        warnings.warn(f"{name} has no effect on an embedded broker", stacklevel=3)


def setting(configs: Mapping[str, str], name: str) -> str:
    """Return the text of a setting. Raises KeyError when it is not set and has no default here."""
    value = configs.get(name)
    return DEFAULTS[name] if value is None else value


def integer(configs: Mapping[str, str], name: str) -> int:
    """Return the value of a setting that is a whole number. Raises ConfigError."""
    value = parse_setting(name, setting(configs, name))
    assert isinstance(value, int)
    return value


def boolean(configs: Mapping[str, str], name: str) -> bool:
    """Return the value of a setting that is true or false. Raises ConfigError."""
    value = parse_setting(name, setting(configs, name))
    assert isinstance(value, bool)
    return value
