"""Names, types and defaults of Kafka 3.9's topic configs, and of its broker configs that matter here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

__all__ = ["ConfigSource", "ConfigType", "DescribedConfig", "broker_configs", "topic_configs"]

_MAX_LONG = "9223372036854775807"


class ConfigType(IntEnum):
    """``DescribeConfigsResponse.ConfigType``."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigSource(IntEnum):
    """``DescribeConfigsResponse.ConfigSource``."""

    TOPIC = 1
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class DescribedConfig(NamedTuple):
    """A config with its value; ``synonyms``: (name, value, source) of the broker configs behind it."""

    name: str
    value: str | None
    type: ConfigType
    source: ConfigSource
    read_only: bool
    synonyms: tuple[tuple[str, str, ConfigSource], ...]


class _Topic(NamedTuple):
    """``LogConfig``. ``broker_config``: the broker config that is this config's default, if there is one."""

    name: str
    type: ConfigType
    default: str
    broker_config: str | None = None


class _Broker(NamedTuple):
    """``KafkaConfig``. ``dynamic``: can be changed while the broker runs."""

    name: str
    type: ConfigType
    default: str | None
    dynamic: bool = False


_BOOLEAN, _STRING, _INT, _LONG, _DOUBLE, _LIST = ConfigType

_TOPIC_CONFIGS = (
    _Topic("cleanup.policy", _LIST, "delete", "log.cleanup.policy"),
    _Topic("compression.gzip.level", _INT, "-1", "compression.gzip.level"),
    _Topic("compression.lz4.level", _INT, "9", "compression.lz4.level"),
    _Topic("compression.type", _STRING, "producer", "compression.type"),
    _Topic("compression.zstd.level", _INT, "3", "compression.zstd.level"),
    _Topic("delete.retention.ms", _LONG, "86400000", "log.cleaner.delete.retention.ms"),
    _Topic("file.delete.delay.ms", _LONG, "60000", "log.segment.delete.delay.ms"),
    _Topic("flush.messages", _LONG, _MAX_LONG, "log.flush.interval.messages"),
    _Topic("flush.ms", _LONG, _MAX_LONG),
    _Topic("follower.replication.throttled.replicas", _LIST, ""),
    _Topic("index.interval.bytes", _INT, "4096", "log.index.interval.bytes"),
    _Topic("leader.replication.throttled.replicas", _LIST, ""),
    _Topic("local.retention.bytes", _LONG, "-2", "log.local.retention.bytes"),
    _Topic("local.retention.ms", _LONG, "-2", "log.local.retention.ms"),
    _Topic("max.compaction.lag.ms", _LONG, _MAX_LONG, "log.cleaner.max.compaction.lag.ms"),
    _Topic("max.message.bytes", _INT, "1048588", "message.max.bytes"),
    _Topic("message.downconversion.enable", _BOOLEAN, "true", "log.message.downconversion.enable"),
    _Topic("message.format.version", _STRING, "3.0-IV1", "log.message.format.version"),
    _Topic("message.timestamp.after.max.ms", _LONG, _MAX_LONG, "log.message.timestamp.after.max.ms"),
    _Topic("message.timestamp.before.max.ms", _LONG, _MAX_LONG, "log.message.timestamp.before.max.ms"),
    _Topic(
        "message.timestamp.difference.max.ms", _LONG, _MAX_LONG, "log.message.timestamp.difference.max.ms"
    ),
    _Topic("message.timestamp.type", _STRING, "CreateTime", "log.message.timestamp.type"),
    _Topic("min.cleanable.dirty.ratio", _DOUBLE, "0.5", "log.cleaner.min.cleanable.ratio"),
    _Topic("min.compaction.lag.ms", _LONG, "0", "log.cleaner.min.compaction.lag.ms"),
    _Topic("min.insync.replicas", _INT, "1", "min.insync.replicas"),
    _Topic("preallocate", _BOOLEAN, "false", "log.preallocate"),
    _Topic("remote.log.copy.disable", _BOOLEAN, "false"),
    _Topic("remote.log.delete.on.disable", _BOOLEAN, "false"),
    _Topic("remote.storage.enable", _BOOLEAN, "false"),
    _Topic("retention.bytes", _LONG, "-1", "log.retention.bytes"),
    _Topic("retention.ms", _LONG, "604800000"),
    _Topic("segment.bytes", _INT, "1073741824", "log.segment.bytes"),
    _Topic("segment.index.bytes", _INT, "10485760", "log.index.size.max.bytes"),
    _Topic("segment.jitter.ms", _LONG, "0"),
    _Topic("segment.ms", _LONG, "604800000"),
    _Topic("unclean.leader.election.enable", _BOOLEAN, "false", "unclean.leader.election.enable"),
)

_BROKER_CONFIGS = (
    _Broker("advertised.listeners", _STRING, None, dynamic=True),
    _Broker("auto.create.topics.enable", _BOOLEAN, "true"),
    _Broker("broker.id", _INT, "-1"),
    _Broker("broker.rack", _STRING, None),
    _Broker("connections.max.idle.ms", _LONG, "600000"),
    _Broker("default.replication.factor", _INT, "1"),
    _Broker("delete.topic.enable", _BOOLEAN, "true"),
    _Broker("inter.broker.protocol.version", _STRING, "3.9-IV0"),
    _Broker(
        "listener.security.protocol.map",
        _STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        dynamic=True,
    ),
    _Broker("listeners", _STRING, "PLAINTEXT://:9092", dynamic=True),
    _Broker("num.partitions", _INT, "1"),
    _Broker("socket.request.max.bytes", _INT, "104857600"),
    *(
        _Broker(
            topic.broker_config,
            topic.type,
            topic.default,
            dynamic=topic.broker_config != "log.message.format.version",
        )
        for topic in _TOPIC_CONFIGS
        if topic.broker_config is not None
    ),
)


def topic_configs() -> Iterable[DescribedConfig]:
    """Return the configs of a topic. No topic has a config of its own: an embedded broker has no store."""
    for config in _TOPIC_CONFIGS:
        synonyms: tuple[tuple[str, str, ConfigSource], ...] = ()
        if config.broker_config is not None:
            synonyms = ((config.broker_config, config.default, ConfigSource.DEFAULT),)
        yield DescribedConfig(config.name, config.default, config.type, ConfigSource.DEFAULT, False, synonyms)


def broker_configs(static: Mapping[str, str]) -> Iterable[DescribedConfig]:
    """Return the configs of a broker; `static`: those that are set, by name."""
    for config in _BROKER_CONFIGS:
        values = [
            (config.name, value, source)
            for value, source in (
                (static.get(config.name), ConfigSource.STATIC_BROKER),
                (config.default, ConfigSource.DEFAULT),
            )
            if value is not None
        ]
        _, value, source = values[0] if values else (config.name, None, ConfigSource.DEFAULT)
        yield DescribedConfig(config.name, value, config.type, source, not config.dynamic, tuple(values))
