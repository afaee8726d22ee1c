"""Which configs a topic may have and which all brokers may have dynamically, and which values.

The names and types are those of ``broker.metadata.configs``; here are the ranges. Source:
``LogConfig.validate``, ``DynamicBrokerConfig.validateConfigs`` and ``ConfigDef`` (Kafka 3.9). Not checked:
whether the brokers have tiered storage, and what depends on a broker's own settings, such as how far the
number of its threads may change at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

from ctrlchan.broker.metadata.configs import ConfigType, cluster_wide_configs, topic_configs
from ctrlchan.errors import ConfigError, ErrorCode, KafkaError
from ctrlchan.protocol import request_versions

__all__ = ["broker_config_names", "check_broker_configs", "check_configs", "topic_config_names"]

_MIN: Final = {ConfigType.INT: -(2**31), ConfigType.LONG: -(2**63)}
_MAX: Final = {ConfigType.INT: 2**31 - 1, ConfigType.LONG: 2**63 - 1}
_TYPE_NAMES: Final = {ConfigType.INT: "INT", ConfigType.LONG: "LONG", ConfigType.DOUBLE: "DOUBLE"}

_LOWEST: Final = {
    "background.threads": 1,
    "compression.lz4.level": 1,
    "compression.zstd.level": -131_072,
    "delete.retention.ms": 0,
    "file.delete.delay.ms": 0,
    "flush.messages": 1,
    "flush.ms": 0,
    "follower.replication.throttled.rate": 0,
    "index.interval.bytes": 0,
    "leader.replication.throttled.rate": 0,
    "local.retention.bytes": -2,
    "local.retention.ms": -2,
    "log.cleaner.backoff.ms": 0,
    "log.cleaner.io.buffer.size": 0,
    "log.cleaner.threads": 0,
    "log.retention.ms": -1,
    "log.roll.jitter.ms": 0,
    "log.roll.ms": 1,
    "max.compaction.lag.ms": 1,
    "max.connection.creation.rate": 0,
    "max.connections": 0,
    "max.connections.per.ip": 0,
    "max.message.bytes": 0,
    "message.timestamp.after.max.ms": 0,
    "message.timestamp.before.max.ms": 0,
    "message.timestamp.difference.max.ms": 0,
    "min.cleanable.dirty.ratio": 0,
    "min.compaction.lag.ms": 0,
    "min.insync.replicas": 1,
    "num.io.threads": 1,
    "num.network.threads": 1,
    "num.recovery.threads.per.data.dir": 1,
    "producer.id.expiration.ms": 1,
    "remote.fetch.max.wait.ms": 1,
    "remote.log.index.file.cache.total.size.bytes": 1,
    "remote.log.manager.copy.max.bytes.per.second": 1,
    "remote.log.manager.fetch.max.bytes.per.second": 1,
    "replica.alter.log.dirs.io.max.bytes.per.second": 0,
    "retention.ms": -1,
    "segment.bytes": 14,
    "segment.index.bytes": 4,
    "segment.jitter.ms": 0,
    "segment.ms": 1,
}
_HIGHEST: Final = {"compression.lz4.level": 17, "compression.zstd.level": 22, "min.cleanable.dirty.ratio": 1}
_CHOICES: Final = {
    "cleanup.policy": ("compact", "delete"),
    "compression.type": ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
}
_THROTTLED: Final = ("follower.replication.throttled.replicas", "leader.replication.throttled.replicas")

#: Source: ``DynamicBrokerConfig.ClusterLevelListenerConfigs``.
_PER_LISTENER: Final = ("max.connection.creation.rate", "max.connections", "num.network.threads")
_LISTENER: Final = re.compile(r"^listener\.name\.[^.]*\.")

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
#: As Java's ``Double.parseDouble`` reads a number.
_DOUBLE: Final = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_REPLICA: Final = re.compile(r"[0-9]+:[0-9]+")
_COMMA: Final = re.compile(r"\s*,\s*")


@cache
def topic_config_names() -> Mapping[str, ConfigType]:
    """Return the type of each topic config by name."""
    return {config.name: config.type for config in topic_configs()}


def check_configs(configs: Mapping[str, str]) -> None:
    """Raise KafkaError (INVALID_CONFIG) for the first config that Kafka refuses."""
    types = topic_config_names()
    for name in configs:
        if name not in types:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    for name, value in configs.items():
        reason = _why_invalid(name, types[name], value)
        if reason is not None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Invalid value {value} for configuration {name}: {reason}"
            )
    if {"min.compaction.lag.ms", "max.compaction.lag.ms"} <= configs.keys():
        least, most = (int(configs[name]) for name in ("min.compaction.lag.ms", "max.compaction.lag.ms"))
        if least > most:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"conflict topic config setting min.compaction.lag.ms ({least}) > "
                f"max.compaction.lag.ms ({most})",
            )


@cache
def broker_config_names() -> Mapping[str, ConfigType]:
    """Return the type of each config that all brokers may have dynamically, by name."""
    return cluster_wide_configs()


def check_broker_configs(configs: Mapping[str, str]) -> None:
    """Raise KafkaError (INVALID_REQUEST) for the first dynamic config of brokers that is refused.

    What Kafka allows for one broker only is refused: listeners, TLS, SASL, passwords. So are configs that
    Kafka does not know, which brokers leave to their plug-ins.
    """
    types = broker_config_names()
    unknown = [name for name in configs if _listener_base(name) not in types]
    if unknown:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs dynamically through the controller: {', '.join(unknown)}",
        )
    for name, value in configs.items():
        base = _listener_base(name)
        reason = _why_invalid(_range_names().get(base, base), types[base], value)
        if reason is not None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Invalid value {value} for configuration {name}: {reason}"
            )


@cache
def _range_names() -> Mapping[str, str]:
    """Return the topic config that has the same range, for each broker config that is its default."""
    return {synonym: config.name for config in topic_configs() for synonym, _, _ in config.synonyms}


def _listener_base(name: str) -> str:
    """Return the config of all listeners for one of a single listener that all brokers may have."""
    base = _LISTENER.sub("", name)
    return base if base in _PER_LISTENER else name


def _why_invalid(name: str, kind: ConfigType, value: str) -> str | None:
    if kind is ConfigType.BOOLEAN:
        if value.strip().lower() not in ("true", "false"):
            return "Expected value to be either true or false"
        return None
    if kind in (ConfigType.INT, ConfigType.LONG):
        text = value.strip()
        if not _INTEGER.fullmatch(text) or not _MIN[kind] <= int(text) <= _MAX[kind]:
            return f"Not a number of type {_TYPE_NAMES[kind]}"
        return _out_of_range(name, int(text))
    if kind is ConfigType.DOUBLE:
        text = value.strip()
        if not _DOUBLE.fullmatch(text):
            return f"Not a number of type {_TYPE_NAMES[kind]}"
        return _out_of_range(name, float(text.rstrip("fFdD") if text[-1] in "fFdD" else text))
    if kind is ConfigType.LIST:
        return _why_invalid_list(name, _COMMA.split(value.strip()) if value.strip() else [])
    if name == "message.format.version":
        return _why_no_version(value)
    return _not_among(name, [value])


def _out_of_range(name: str, number: float) -> str | None:
    if name == "compression.gzip.level":
        return None if number == -1 or 1 <= number <= 9 else "Value must be between 1 and 9 or equal to -1"
    if name in _LOWEST and number < _LOWEST[name]:
        return f"Value must be at least {_LOWEST[name]}"
    if name in _HIGHEST and number > _HIGHEST[name]:
        return f"Value must be no more than {_HIGHEST[name]}"
    return None


def _why_invalid_list(name: str, values: list[str]) -> str | None:
    if name in _THROTTLED:
        if values == ["*"] or all(_REPLICA.fullmatch(value) for value in values):
            return None
        return (
            f"{name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )
    return _not_among(name, values)


def _not_among(name: str, values: Iterable[str]) -> str | None:
    choices = _CHOICES.get(name)
    if choices is None or all(value in choices for value in values):
        return None
    return f"String must be one of: {', '.join(choices)}"


def _why_no_version(value: str) -> str | None:
    try:
        request_versions(value)
    except ConfigError:
        return f"Version {value} is not a valid version"
    return None
