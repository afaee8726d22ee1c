"""Names, types and defaults of Kafka 3.9's topic configs, and of its broker configs that matter here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple, NoReturn

from ctrlchan.errors import ConfigError

__all__ = [
    "ConfigSource",
    "ConfigType",
    "DescribedConfig",
    "broker_configs",
    "broker_defaults",
    "cluster_wide_configs",
    "topic_configs",
    "topic_defaults",
]

_MAX_INT = "2147483647"
_MAX_LONG = "9223372036854775807"


class ConfigType(IntEnum):
    """``DescribeConfigsResponse.ConfigType``."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigSource(IntEnum):
    """``DescribeConfigsResponse.ConfigSource``."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
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
    synonyms: tuple[tuple[str, str | None, ConfigSource], ...]


class _Topic(NamedTuple):
    """``LogConfig``. ``broker_config``: the broker config that is this config's default, if there is one."""

    name: str
    type: ConfigType
    default: str
    broker_config: str | None = None


class _Broker(NamedTuple):
    """``KafkaConfig``. ``dynamic``: can be changed while the broker runs.

    ``per_broker``: may not be set for all brokers at once.
    """

    name: str
    type: ConfigType
    default: str | None
    dynamic: bool = False
    per_broker: bool = False


_, _BOOLEAN, _STRING, _INT, _LONG, _DOUBLE, _LIST = ConfigType

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
    _Broker("advertised.listeners", _STRING, None, dynamic=True, per_broker=True),
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
        per_broker=True,
    ),
    _Broker("listeners", _STRING, "PLAINTEXT://:9092", dynamic=True, per_broker=True),
    _Broker("num.partitions", _INT, "1"),
    _Broker("socket.request.max.bytes", _INT, "104857600"),
    *(
        _Broker(name, kind, default, dynamic=True)
        for name, kind, default in (
            ("background.threads", _INT, "10"),
            ("log.cleaner.backoff.ms", _LONG, "15000"),
            ("log.cleaner.dedupe.buffer.size", _LONG, "134217728"),
            ("log.cleaner.io.buffer.load.factor", _DOUBLE, "0.9"),
            ("log.cleaner.io.buffer.size", _INT, "524288"),
            ("log.cleaner.io.max.bytes.per.second", _DOUBLE, "1.7976931348623157E308"),
            ("log.cleaner.threads", _INT, "1"),
            ("log.flush.interval.ms", _LONG, None),
            ("log.retention.ms", _LONG, None),
            ("log.roll.jitter.ms", _LONG, None),
            ("log.roll.ms", _LONG, None),
            ("max.connection.creation.rate", _INT, _MAX_INT),
            ("max.connections", _INT, _MAX_INT),
            ("max.connections.per.ip", _INT, _MAX_INT),
            ("max.connections.per.ip.overrides", _STRING, ""),
            ("metric.reporters", _LIST, ""),
            ("num.io.threads", _INT, "8"),
            ("num.network.threads", _INT, "3"),
            ("num.recovery.threads.per.data.dir", _INT, "1"),
            ("num.replica.fetchers", _INT, "1"),
            ("producer.id.expiration.ms", _INT, "86400000"),
            ("remote.fetch.max.wait.ms", _INT, "500"),
            ("remote.log.index.file.cache.total.size.bytes", _LONG, "1073741824"),
            ("remote.log.manager.copy.max.bytes.per.second", _LONG, _MAX_LONG),
            ("remote.log.manager.fetch.max.bytes.per.second", _LONG, _MAX_LONG),
            ("transaction.partition.verification.enable", _BOOLEAN, "true"),
        )
    ),
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

_BROKER_TABLE = {config.name: config for config in _BROKER_CONFIGS}
#: Can only be set dynamically. Source: ``QuotaConfigs.brokerQuotaConfigs``.
_QUOTAS = (
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
#: A config of one listener has the name of a config of all listeners behind it.
_LISTENER_PREFIX = re.compile(r"^listener\.name\.[^.]*\.")


_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000
#: Topic config -> broker configs behind it, the first that is set counts, each with its unit in ms.
_DURATIONS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
}


def topic_configs() -> Iterable[DescribedConfig]:
    """Return the configs of a topic. No topic has a config of its own: an embedded broker has no store."""
    for config in _TOPIC_CONFIGS:
        synonyms: tuple[tuple[str, str | None, ConfigSource], ...] = ()
        if config.broker_config is not None:
            synonyms = ((config.broker_config, config.default, ConfigSource.DEFAULT),)
        yield DescribedConfig(config.name, config.default, config.type, ConfigSource.DEFAULT, False, synonyms)


def cluster_wide_configs() -> Mapping[str, ConfigType]:
    """Return the types of the configs that may be set dynamically for all brokers, by name."""
    types = {one.name: one.type for one in _BROKER_CONFIGS if one.dynamic and not one.per_broker}
    return types | dict.fromkeys(_QUOTAS, _LONG)


def broker_configs(
    static: Mapping[str, str],
    own: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> Iterable[DescribedConfig]:
    """Yield the configs of a broker.

    By name: ``static`` are those that are set in its settings, ``own`` its dynamic ones, ``defaults`` the
    dynamic ones of all brokers. Dynamic values of static configs do not count.
    """
    dynamic = (own or {}, ConfigSource.DYNAMIC_BROKER), (defaults or {}, ConfigSource.DYNAMIC_DEFAULT_BROKER)
    for config in _BROKER_CONFIGS:
        values = [(of[config.name], source) for of, source in dynamic if config.dynamic and config.name in of]
        if config.name in static:
            values.append((static[config.name], ConfigSource.STATIC_BROKER))
        if config.default is not None:
            values.append((config.default, ConfigSource.DEFAULT))
        yield _described(config.name, values)
    for name in sorted({name for of, _ in dynamic for name in of}.difference(_BROKER_TABLE)):
        yield _described(name, [(of[name], source) for of, source in dynamic if name in of])


def broker_defaults(defaults: Mapping[str, str]) -> Iterable[DescribedConfig]:
    """Yield the dynamic configs of all brokers; a static config in ZooKeeper is none."""
    for name, value in sorted(defaults.items()):
        if name not in _BROKER_TABLE or _BROKER_TABLE[name].dynamic:
            yield _described(name, [(value, ConfigSource.DYNAMIC_DEFAULT_BROKER)])


def _described(name: str, values: list[tuple[str, ConfigSource]]) -> DescribedConfig:
    """Return the config with these values, that which counts first. Kafka shows no value of unknown type."""
    config = _BROKER_TABLE.get(name)
    base = _BROKER_TABLE.get(_LISTENER_PREFIX.sub("", name))
    kind = base.type if base else _LONG if name in _QUOTAS else ConfigType.UNKNOWN
    value, source = values[0] if values else (None, ConfigSource.DEFAULT)
    synonyms = tuple((name, text if kind else None, of) for text, of in values)
    read_only = config is None or not config.dynamic
    return DescribedConfig(name, value if kind else None, kind, source, read_only, synonyms)


def _refuse(name: str, reason: str) -> NoReturn:
    raise ConfigError(f"{name}: {reason}")


def topic_defaults(
    setting: Callable[[str], str | None], refuse: Callable[[str, str], NoReturn] = _refuse
) -> Mapping[str, str]:
    """Return the topic configs that a broker's settings set, by topic config.

    ``setting``: returns a broker config, None: it is not set. ``refuse``: raises the error of a duration
    that is no number, from the name of the config and the reason; ConfigError by default.
    """
    found: dict[str, str] = {}
    for config in _TOPIC_CONFIGS:
        behind = ((config.broker_config, 1),) if config.broker_config is not None else ()
        for name, unit in _DURATIONS.get(config.name, behind):
            text = setting(name)
            if text is None:
                continue
            if unit != 1:
                try:
                    number = int(text)
                except ValueError:
                    refuse(name, f"{text!r} is not a number")
                # -1: without a limit.
                text = str(number * unit if number >= 0 else number)
            found[config.name] = text
            break
    return found
