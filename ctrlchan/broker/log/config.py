"""The settings of a topic that its logs act on, with Kafka's names and defaults (``LogConfig``)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ctrlchan.errors import ConfigError
from ctrlchan.text import quoted

__all__ = ["LogConfig"]

_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1
_HOUR_MS: Final = 3600 * 1000
_DAY_MS: Final = 24 * _HOUR_MS

#: The least value where it is not 0. -1 stands for no limit.
_LEAST: Final = {
    "segment_bytes": 14,
    "segment_ms": 1,
    "segment_index_bytes": 4,
    "retention_ms": -1,
    "retention_bytes": -_MAX_INT64 - 1,
    "flush_messages": 1,
    "max_compaction_lag_ms": 1,
    "min_insync_replicas": 1,
}
_INT32: Final = {
    "segment_bytes",
    "segment_index_bytes",
    "index_interval_bytes",
    "max_message_bytes",
    "min_insync_replicas",
}
_CHOICES: Final = {
    "compression_type": ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "message_timestamp_type": ("CreateTime", "LogAppendTime"),
}
#: Broker configs that are the defaults of topic configs, where the names differ.
_BROKER_NAMES: Final = {
    "log.segment.bytes": "segment.bytes",
    "log.index.size.max.bytes": "segment.index.bytes",
    "log.index.interval.bytes": "index.interval.bytes",
    "log.retention.bytes": "retention.bytes",
    "log.flush.interval.messages": "flush.messages",
    "log.segment.delete.delay.ms": "file.delete.delay.ms",
    "log.cleanup.policy": "cleanup.policy",
    "log.cleaner.delete.retention.ms": "delete.retention.ms",
    "log.cleaner.min.compaction.lag.ms": "min.compaction.lag.ms",
    "log.cleaner.max.compaction.lag.ms": "max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio": "min.cleanable.dirty.ratio",
    "message.max.bytes": "max.message.bytes",
    "compression.type": "compression.type",
    "min.insync.replicas": "min.insync.replicas",
    "log.message.timestamp.type": "message.timestamp.type",
    "log.message.timestamp.before.max.ms": "message.timestamp.before.max.ms",
    "log.message.timestamp.after.max.ms": "message.timestamp.after.max.ms",
    "log.message.timestamp.difference.max.ms": "message.timestamp.difference.max.ms",
}
#: Topic configs whose broker configs come in several units: the first one that is set counts.
_BROKER_TIMES: Final = {
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", 60_000),
        ("log.retention.hours", _HOUR_MS),
    ),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
}


class LogConfig(NamedTuple):
    """Settings of one log. Names are Kafka's topic configs with ``_`` for ``.``; -1 stands for no limit.

    ``cleanup_delete`` and ``cleanup_compact``: the two words of cleanup.policy, which may have neither.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    flush_messages: int = _MAX_INT64
    file_delete_delay_ms: int = 60_000
    cleanup_delete: bool = True
    cleanup_compact: bool = False
    max_compaction_lag_ms: int = _MAX_INT64
    flush_ms: int = _MAX_INT64
    delete_retention_ms: int = _DAY_MS
    min_compaction_lag_ms: int = 0
    min_cleanable_dirty_ratio: float = 0.5
    max_message_bytes: int = 1_048_588
    compression_type: str = "producer"
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = _MAX_INT64
    message_timestamp_after_max_ms: int = _MAX_INT64
    message_timestamp_difference_max_ms: int = _MAX_INT64
    min_insync_replicas: int = 1

    @classmethod
    def from_broker_configs(cls, configs: Mapping[str, str]) -> LogConfig:
        """Return the defaults of all topics that a broker's settings give. Raises ConfigError."""
        values = {topic: configs[broker] for broker, topic in _BROKER_NAMES.items() if broker in configs}
        for topic, names in _BROKER_TIMES.items():
            for name, unit in names:
                if name in configs:
                    time = _integer(name, configs[name])
                    values[topic] = str(-1 if topic == "retention.ms" and time < 0 else time * unit)
                    break
        return cls().with_topic_configs(values)

    def with_topic_configs(self, configs: Mapping[str, str]) -> LogConfig:
        """Return this with a topic's own configs, by Kafka's names. Raises ConfigError.

        Names that no log acts on are left out.
        """
        changes: dict[str, Any] = {}
        for name, text in configs.items():
            field = name.replace(".", "_")
            if name == "cleanup.policy":
                policies = {policy.strip() for policy in text.split(",")} if text.strip() else set()
                if not policies <= {"delete", "compact"}:
                    raise ConfigError(f"cleanup.policy={quoted(text)}: not delete, compact or both")
                changes["cleanup_delete"] = "delete" in policies
                changes["cleanup_compact"] = "compact" in policies
            elif field in _CHOICES:
                changes[field] = text
            elif field == "min_cleanable_dirty_ratio":
                changes[field] = _double(name, text)
            elif field in self._fields and not field.startswith("cleanup_"):
                changes[field] = _integer(name, text)
        return self._replace(**changes).check()

    @property
    def roll_ms(self) -> int:
        """After how much time a segment is rolled: sooner where records must be compacted sooner."""
        return min(self.max_compaction_lag_ms, self.segment_ms) if self.cleanup_compact else self.segment_ms

    @property
    def timestamp_limits_ms(self) -> tuple[int, int]:
        """How far a record's timestamp may be before and after the broker's clock.

        The deprecated message.timestamp.difference.max.ms counts where its successors have no limit.
        """
        before, after = self.message_timestamp_before_max_ms, self.message_timestamp_after_max_ms
        difference = self.message_timestamp_difference_max_ms
        return (difference if before == _MAX_INT64 else before, difference if after == _MAX_INT64 else after)

    def check(self) -> LogConfig:
        """Return this. Raises ConfigError for a value that Kafka refuses."""
        return _checked(self)


@lru_cache(256)
def _checked(config: LogConfig) -> LogConfig:
    """Return the settings if they can be: many logs have the same ones."""
    for field, value in config._asdict().items():
        name = field.replace("_", ".")
        if isinstance(value, str):
            if value not in _CHOICES[field]:
                raise ConfigError(f"{name}={quoted(value)}: not one of {', '.join(_CHOICES[field])}")
            continue
        if isinstance(value, bool):
            continue
        least = _LEAST.get(field, 0)
        most = _MAX_INT32 if field in _INT32 else 1 if isinstance(value, float) else _MAX_INT64
        # Kafka takes NaN for a ratio.
        if value < least or value > most:
            raise ConfigError(f"{name}={value}: not from {least} to {most}")
    # A least compaction lag above the largest one is refused where it is set, not where it is: a broker that
    # is started with another default must serve the topic.
    return config


def _integer(name: str, text: str) -> int:
    try:
        return int(text.strip())
    except ValueError:
        raise ConfigError(f"{name}={quoted(text)}: not an integer") from None


def _double(name: str, text: str) -> float:
    """Return a number as Java reads it: with the letter of its type, perhaps."""
    stripped = text.strip()
    try:
        return float(stripped[:-1] if stripped[-1:] in ("f", "F", "d", "D") else stripped)
    except ValueError:
        raise ConfigError(f"{name}={quoted(text)}: not a number") from None
