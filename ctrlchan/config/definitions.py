"""Names, types and defaults of Kafka 3.9's topic configs, and of its broker configs that matter here."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import dropwhile
from typing import NamedTuple

from ctrlchan.config.values import parse_int

__all__ = [
    "ConfigSource",
    "ConfigType",
    "Configs",
    "DescribedConfig",
    "broker_configs",
    "broker_defaults",
    "broker_names",
    "cluster_wide_configs",
    "effective_configs",
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
    SHORT = 4
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


class Configs(NamedTuple):
    """Values of broker configs by name, and where they are set."""

    values: Mapping[str, str]
    source: ConfigSource


class DescribedConfig(NamedTuple):
    """A config with its value; ``synonyms``: (name, value, source) of the broker configs behind it."""

    name: str
    value: str | None
    type: ConfigType
    source: ConfigSource
    read_only: bool
    synonyms: tuple[tuple[str, str | None, ConfigSource], ...]


class _Topic(NamedTuple):
    """``LogConfig``. ``broker_config``: the broker config that stands behind this config, if there is one."""

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


_, _BOOLEAN, _STRING, _INT, _SHORT, _LONG, _DOUBLE, _LIST = ConfigType

_TOPIC_CONFIGS = (
    _Topic("cleanup.policy", _LIST, "delete", "log.cleanup.policy"),
    _Topic("compression.gzip.level", _INT, "-1", "compression.gzip.level"),
    _Topic("compression.lz4.level", _INT, "9", "compression.lz4.level"),
    _Topic("compression.type", _STRING, "producer", "compression.type"),
    _Topic("compression.zstd.level", _INT, "3", "compression.zstd.level"),
    _Topic("delete.retention.ms", _LONG, "86400000", "log.cleaner.delete.retention.ms"),
    _Topic("file.delete.delay.ms", _LONG, "60000", "log.segment.delete.delay.ms"),
    _Topic("flush.messages", _LONG, _MAX_LONG, "log.flush.interval.messages"),
    _Topic("flush.ms", _LONG, _MAX_LONG, "log.flush.interval.ms"),
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
    _Topic("retention.ms", _LONG, "604800000", "log.retention.ms"),
    _Topic("segment.bytes", _INT, "1073741824", "log.segment.bytes"),
    _Topic("segment.index.bytes", _INT, "10485760", "log.index.size.max.bytes"),
    _Topic("segment.jitter.ms", _LONG, "0", "log.roll.jitter.ms"),
    _Topic("segment.ms", _LONG, "604800000", "log.roll.ms"),
    _Topic("unclean.leader.election.enable", _BOOLEAN, "false", "unclean.leader.election.enable"),
)

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
        if topic.broker_config is not None and topic.name not in _DURATIONS
    ),
    *(
        _Broker(name, kind, default)
        for name, kind, default in (
            ("controlled.shutdown.enable", _BOOLEAN, "true"),
            ("controlled.shutdown.max.retries", _INT, "3"),
            ("controlled.shutdown.retry.backoff.ms", _LONG, "5000"),
            ("fetch.max.bytes", _INT, "57671680"),
            ("group.initial.rebalance.delay.ms", _INT, "3000"),
            ("group.max.session.timeout.ms", _INT, "1800000"),
            ("group.max.size", _INT, _MAX_INT),
            ("group.min.session.timeout.ms", _INT, "6000"),
            ("log.cleaner.enable", _BOOLEAN, "true"),
            ("log.flush.offset.checkpoint.interval.ms", _INT, "60000"),
            ("log.flush.scheduler.interval.ms", _LONG, _MAX_LONG),
            ("log.flush.start.offset.checkpoint.interval.ms", _INT, "60000"),
            ("log.retention.check.interval.ms", _LONG, "300000"),
            ("log.retention.hours", _INT, "168"),
            ("log.retention.minutes", _INT, None),
            ("log.roll.hours", _INT, "168"),
            ("log.roll.jitter.hours", _INT, "0"),
            ("max.incremental.fetch.session.cache.slots", _INT, "1000"),
            ("offset.metadata.max.bytes", _INT, "4096"),
            ("offsets.commit.timeout.ms", _INT, "5000"),
            ("offsets.load.buffer.size", _INT, "5242880"),
            ("offsets.retention.check.interval.ms", _LONG, "600000"),
            ("offsets.retention.minutes", _INT, "10080"),
            ("offsets.topic.num.partitions", _INT, "50"),
            ("offsets.topic.replication.factor", _SHORT, "3"),
            ("offsets.topic.segment.bytes", _INT, "104857600"),
            ("queued.max.requests", _INT, "500"),
            ("replica.fetch.backoff.ms", _INT, "1000"),
            ("replica.fetch.max.bytes", _INT, "1048576"),
            ("replica.fetch.min.bytes", _INT, "1"),
            ("replica.fetch.response.max.bytes", _INT, "10485760"),
            ("replica.fetch.wait.max.ms", _INT, "500"),
            ("replica.high.watermark.checkpoint.interval.ms", _LONG, "5000"),
            ("replica.lag.time.max.ms", _LONG, "30000"),
            ("socket.listen.backlog.size", _INT, "50"),
            ("socket.receive.buffer.bytes", _INT, "102400"),
            ("socket.send.buffer.bytes", _INT, "102400"),
        )
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


#: Defaults of the broker configs that have one.
_DEFAULTS = Configs(
    {config.name: config.default for config in _BROKER_CONFIGS if config.default is not None},
    ConfigSource.DEFAULT,
)
#: Broker config -> those that are set in its place, in order.
_ALTERNATIVES: Mapping[str, tuple[str, ...]] = {
    name: tuple(other for other, _ in names) for names in _DURATIONS.values() for name, _ in names
}


def topic_configs() -> Iterable[DescribedConfig]:
    """Return the configs of a topic that has none of its own, of a broker with Kafka's defaults."""
    return effective_configs({}, ())


def effective_configs(own: Mapping[str, str], behind: Sequence[Configs]) -> Iterable[DescribedConfig]:
    """Yield every config of a topic with the value that counts, and all values behind it.

    ``own``: set for the topic. ``behind``: broker configs, those that count first.
    """
    values = topic_defaults(ChainMap(*(dict(one.values) for one in behind)).get)
    for config in _TOPIC_CONFIGS:
        synonyms: list[tuple[str, str | None, ConfigSource]] = []
        if config.name in own:
            synonyms.append((config.name, own[config.name], ConfigSource.TOPIC))
        if config.broker_config is not None:
            synonyms += _values_of(config.broker_config, behind)
        value = own.get(config.name, values.get(config.name, config.default))
        source = synonyms[0][2] if synonyms else ConfigSource.DEFAULT
        yield DescribedConfig(config.name, value, config.type, source, False, tuple(synonyms))


def _values_of(name: str, behind: Sequence[Configs]) -> Iterable[tuple[str, str | None, ConfigSource]]:
    """Return the values of a broker config and of its alternatives; none unless its own counts first."""
    found = [
        (one, configs.values[one], configs.source)
        for configs in (*behind, _DEFAULTS)
        for one in _ALTERNATIVES.get(name, (name,))
        if one in configs.values
    ]
    return dropwhile(lambda synonym: synonym[0] != name, found)


def broker_names(topic_values: Mapping[str, str]) -> Mapping[str, str]:
    """Return values of topic configs under the names of the broker configs behind them."""
    return {
        config.broker_config: topic_values[config.name]
        for config in _TOPIC_CONFIGS
        if config.broker_config is not None and config.name in topic_values
    }


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
    dynamic = [
        Configs(_without_static(values or {}), source)
        for values, source in (
            (own, ConfigSource.DYNAMIC_BROKER),
            (defaults, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        )
    ]
    behind = (*dynamic, Configs(static, ConfigSource.STATIC_BROKER))
    unknown = {name for configs in dynamic for name in configs.values}.difference(_BROKER_TABLE)
    for name in (*_BROKER_TABLE, *sorted(unknown)):
        value = next(
            (configs.values[name] for configs in (*behind, _DEFAULTS) if name in configs.values), None
        )
        yield _described(name, value, tuple(_values_of(name, behind)))


def _without_static(dynamic: Mapping[str, str]) -> Mapping[str, str]:
    """Return the dynamic configs without those that cannot be dynamic."""
    return {
        name: value
        for name, value in dynamic.items()
        if name not in _BROKER_TABLE or _BROKER_TABLE[name].dynamic
    }


def broker_defaults(defaults: Mapping[str, str]) -> Iterable[DescribedConfig]:
    """Yield the dynamic configs of all brokers, without configs in ZooKeeper that are not dynamic."""
    for name, value in sorted(_without_static(defaults).items()):
        yield _described(name, value, ((name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER),))


def _described(
    name: str, value: str | None, synonyms: tuple[tuple[str, str | None, ConfigSource], ...]
) -> DescribedConfig:
    """Return a broker config. Kafka shows no value of unknown type."""
    config = _BROKER_TABLE.get(name)
    base = _BROKER_TABLE.get(_LISTENER_PREFIX.sub("", name))
    kind = base.type if base else _LONG if name in _QUOTAS else ConfigType.UNKNOWN
    if not kind:
        value, synonyms = None, tuple((one, None, source) for one, _, source in synonyms)
    source = synonyms[0][2] if synonyms else ConfigSource.DEFAULT
    return DescribedConfig(name, value, kind, source, config is None or not config.dynamic, synonyms)


def topic_defaults(setting: Callable[[str], str | None]) -> Mapping[str, str]:
    """Return the topic configs that a broker's settings set, by topic config.

    ``setting``: returns a broker config, None: it is not set. Raises ConfigError for a duration that is no
    number.
    """
    found: dict[str, str] = {}
    for config in _TOPIC_CONFIGS:
        behind = ((config.broker_config, 1),) if config.broker_config is not None else ()
        for name, unit in _DURATIONS.get(config.name, behind):
            text = setting(name)
            if text is None:
                continue
            if unit != 1:
                number = parse_int(name, text)
                # -1: without a limit.
                text = str(number * unit if number >= 0 else -1)
            found[config.name] = text
            break
    return found
