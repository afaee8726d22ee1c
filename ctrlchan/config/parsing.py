"""Which configs a topic may have and which all brokers may have dynamically, and the value of each setting.

The names and types are those of ``broker.metadata.configs``; here are the ranges. Source:
``LogConfig.validate``, ``DynamicBrokerConfig.validateConfigs`` and ``ConfigDef`` (Kafka 3.9). Not checked:
whether the brokers have tiered storage, and what depends on a broker's own settings, such as how far the
number of its threads may change at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final, TypeAlias

from ctrlchan.config.definitions import ConfigType, broker_configs, cluster_wide_configs, topic_configs
from ctrlchan.config.values import (
    invalid_value,
    parse_boolean,
    parse_double,
    parse_int,
    parse_list,
    parse_long,
    parse_short,
    parse_string,
)
from ctrlchan.errors import ConfigError, ErrorCode, KafkaError
from ctrlchan.protocol import request_versions

__all__ = [
    "InvalidValueError",
    "Value",
    "broker_config_names",
    "check_broker_configs",
    "check_configs",
    "checked",
    "parse_setting",
    "topic_config_names",
]

Value: TypeAlias = bool | int | float | str | list[str]

_NUMBERS: Final = {ConfigType.INT: parse_int, ConfigType.SHORT: parse_short, ConfigType.LONG: parse_long}
#: Settings of a broker that DescribeConfigs does not show.
_INTERNAL: Final = {
    "log.initial.task.delay.ms": ConfigType.LONG,
    "producer.id.expiration.check.interval.ms": ConfigType.INT,
}

_LOWEST: Final = {
    "background.threads": 1,
    "compression.lz4.level": 1,
    "compression.zstd.level": -131_072,
    "controlled.shutdown.max.retries": 0,
    "controlled.shutdown.retry.backoff.ms": 0,
    "default.replication.factor": 1,
    "delete.retention.ms": 0,
    "fetch.max.bytes": 1024,
    "file.delete.delay.ms": 0,
    "flush.messages": 1,
    "flush.ms": 0,
    "follower.replication.throttled.rate": 0,
    "group.initial.rebalance.delay.ms": 0,
    "group.max.session.timeout.ms": 1,
    "group.max.size": 1,
    "group.min.session.timeout.ms": 0,
    "index.interval.bytes": 0,
    "leader.replication.throttled.rate": 0,
    "local.retention.bytes": -2,
    "local.retention.ms": -2,
    "log.cleaner.backoff.ms": 0,
    "log.cleaner.io.buffer.size": 0,
    "log.cleaner.threads": 1,
    "log.flush.interval.ms": 0,
    "log.flush.offset.checkpoint.interval.ms": 0,
    "log.flush.scheduler.interval.ms": 0,
    "log.flush.start.offset.checkpoint.interval.ms": 0,
    "log.initial.task.delay.ms": 0,
    "log.retention.check.interval.ms": 1,
    "log.roll.hours": 1,
    "log.roll.jitter.hours": 0,
    "log.roll.jitter.ms": 0,
    "log.roll.ms": 1,
    "max.compaction.lag.ms": 1,
    "max.connection.creation.rate": 0,
    "max.connections": 0,
    "max.connections.per.ip": 0,
    "max.incremental.fetch.session.cache.slots": 0,
    "max.message.bytes": 0,
    "message.timestamp.after.max.ms": 0,
    "message.timestamp.before.max.ms": 0,
    "message.timestamp.difference.max.ms": 0,
    "min.cleanable.dirty.ratio": 0,
    "min.compaction.lag.ms": 0,
    "min.insync.replicas": 1,
    "num.io.threads": 1,
    "num.network.threads": 1,
    "num.partitions": 1,
    "num.recovery.threads.per.data.dir": 1,
    "offset.metadata.max.bytes": 0,
    "offsets.commit.timeout.ms": 1,
    "offsets.load.buffer.size": 1,
    "offsets.retention.check.interval.ms": 1,
    "offsets.retention.minutes": 1,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.segment.bytes": 1,
    "producer.id.expiration.check.interval.ms": 1,
    "producer.id.expiration.ms": 1,
    "queued.max.requests": 1,
    "remote.fetch.max.wait.ms": 1,
    "remote.log.index.file.cache.total.size.bytes": 1,
    "remote.log.manager.copy.max.bytes.per.second": 1,
    "remote.log.manager.fetch.max.bytes.per.second": 1,
    "replica.alter.log.dirs.io.max.bytes.per.second": 0,
    "replica.fetch.backoff.ms": 0,
    "replica.fetch.max.bytes": 0,
    "replica.fetch.response.max.bytes": 0,
    "replica.lag.time.max.ms": 1,
    "retention.ms": -1,
    "segment.bytes": 14,
    "segment.index.bytes": 4,
    "segment.jitter.ms": 0,
    "segment.ms": 1,
    "socket.listen.backlog.size": 1,
    "socket.receive.buffer.bytes": -1,
    "socket.request.max.bytes": 1,
    "socket.send.buffer.bytes": -1,
}
_HIGHEST: Final = {
    "compression.lz4.level": 17,
    "compression.zstd.level": 22,
    "default.replication.factor": 2**15 - 1,
    "min.cleanable.dirty.ratio": 1,
}
_CHOICES: Final = {
    "cleanup.policy": ("compact", "delete"),
    "compression.type": ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
}
_RETENTION: Final = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
_THROTTLED: Final = ("follower.replication.throttled.replicas", "leader.replication.throttled.replicas")

#: Source: ``DynamicBrokerConfig.ClusterLevelListenerConfigs``.
_PER_LISTENER: Final = ("max.connection.creation.rate", "max.connections", "num.network.threads")
_LISTENER: Final = re.compile(r"^listener\.name\.[^.]*\.")

_REPLICA: Final = re.compile(r"[0-9]+:[0-9]+")


@cache
def topic_config_names() -> Mapping[str, ConfigType]:
    """Return the type of each topic config by name."""
    return {config.name: config.type for config in topic_configs()}


class InvalidValueError(KafkaError):
    """A config has a value that it cannot have: Kafka's ConfigException."""


def check_configs(configs: Mapping[str, str]) -> None:
    """Raise KafkaError (INVALID_CONFIG) for the first config that Kafka refuses.

    InvalidValueError: its value cannot be.
    """
    types = topic_config_names()
    for name in configs:
        if name not in types:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    try:
        values = {name: parse_setting(name, text) for name, text in configs.items()}
    except ConfigError as refused:
        raise InvalidValueError(ErrorCode.INVALID_CONFIG, str(refused)) from None
    if {"min.compaction.lag.ms", "max.compaction.lag.ms"} <= configs.keys():
        least, most = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
        assert isinstance(least, int)
        assert isinstance(most, int)
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
    try:
        for name, text in configs.items():
            parse_setting(name, text)
    except ConfigError as refused:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(refused)) from None


@cache
def _range_names() -> Mapping[str, str]:
    """Return the topic config that has the same range, for each broker config that is its default."""
    return {synonym: config.name for config in topic_configs() for synonym, _, _ in config.synonyms}


def _listener_base(name: str) -> str:
    """Return the config of all listeners for one of a single listener that all brokers may have."""
    base = _LISTENER.sub("", name)
    return base if base in _PER_LISTENER else name


def parse_setting(name: str, text: str) -> Value:
    """Return the value of a setting of a topic, a broker or a listener. Raises ConfigError.

    KeyError: neither ``broker.metadata.configs`` nor this file has the setting.
    """
    base = _listener_base(name)
    kind, ranged = _types()[base], _range_names().get(base, base)
    if kind is ConfigType.BOOLEAN:
        return parse_boolean(name, text)
    if kind is ConfigType.DOUBLE:
        return parse_double(name, text, _LOWEST.get(ranged), _HIGHEST.get(ranged))
    if kind is ConfigType.LIST:
        values = parse_list(name, text, _CHOICES.get(ranged))
        if name in _THROTTLED:
            _check_throttled(name, values)
        return values
    if kind is ConfigType.STRING:
        value = parse_string(name, text, _CHOICES.get(ranged))
        if ranged == "message.format.version":
            _check_version(name, value)
        return value
    number = _NUMBERS[kind](name, text, _LOWEST.get(ranged), _HIGHEST.get(ranged))
    if ranged == "compression.gzip.level" and number != -1 and not 1 <= number <= 9:
        raise invalid_value(name, number, "Value must be between 1 and 9 or equal to -1")
    if name in _RETENTION and number == 0:
        raise invalid_value(name, number, "Value must be at least 1, or negative for no limit")
    return number


def checked(name: str, text: str) -> str:
    """Return the text of a setting that ``parse_setting`` takes. Raises ConfigError."""
    parse_setting(name, text)
    return text


@cache
def _types() -> Mapping[str, ConfigType]:
    topics = {config.name: config.type for config in topic_configs()}
    # Where a topic and a broker have a config of the same name, it has the same type.
    brokers = {config.name: config.type for config in broker_configs({})}
    return {**topics, **brokers, **cluster_wide_configs(), **_INTERNAL}


def _check_throttled(name: str, values: list[str]) -> None:
    if values != ["*"] and not all(map(_REPLICA.fullmatch, values)):
        raise invalid_value(
            name,
            f"[{', '.join(values)}]",
            f"{name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )


def _check_version(name: str, value: str) -> None:
    try:
        request_versions(value)
    except ConfigError:
        raise invalid_value(name, value, f"Version {value} is not a valid version") from None
