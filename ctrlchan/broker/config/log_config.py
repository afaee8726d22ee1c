"""The settings of a topic that its logs act on, with Kafka's names and defaults (``LogConfig``)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ctrlchan.config.parsing import checked, parse_setting

__all__ = ["LogConfig"]

_MAX_INT64: Final = 2**63 - 1
_HOUR_MS: Final = 3600 * 1000
_DAY_MS: Final = 24 * _HOUR_MS

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
        values = {
            topic: checked(broker, configs[broker])
            for broker, topic in _BROKER_NAMES.items()
            if broker in configs
        }
        for topic, names in _BROKER_TIMES.items():
            for name, unit in names:
                if name in configs:
                    time = parse_setting(name, configs[name])
                    assert isinstance(time, int)
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
                policies = parse_setting(name, text)
                assert isinstance(policies, list)
                changes["cleanup_delete"] = "delete" in policies
                changes["cleanup_compact"] = "compact" in policies
            elif field in self._fields and not field.startswith("cleanup_"):
                changes[field] = parse_setting(name, text)
        return self._replace(**changes)

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
        # Kafka takes NaN for a ratio.
        if not isinstance(value, bool) and value == value:
            parse_setting(field.replace("_", "."), str(value))
    # A least compaction lag above the largest one is refused where it is set, not where it is: a broker that
    # is started with another default must serve the topic.
    return config
