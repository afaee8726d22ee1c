"""The settings of a topic that its logs act on, with Kafka's names and defaults (``LogConfig``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from ctrlchan.config import table
from ctrlchan.config.setting import Setting
from ctrlchan.config.typed import TypedSettings, fields_of, value_of

__all__ = ["ALL_REPLICAS", "LogConfig"]

_MAX_INT64: Final = 2**63 - 1
#: Partition and broker id of a throttled replica. The one replica of ``*`` stands for all of the topic.
ALL_REPLICAS: Final = frozenset({(-1, -1)})


def _throttled_replicas(words: list[str]) -> frozenset[tuple[int, int]]:
    if words == ["*"]:
        return ALL_REPLICAS
    replicas = (word.partition(":") for word in words)
    return frozenset((int(partition), int(broker_id)) for partition, _, broker_id in replicas)


@dataclass(frozen=True, slots=True)
class LogConfig(TypedSettings):
    """Settings of one log. Names are Kafka's topic configs with ``_`` for ``.``; -1 stands for no limit.

    ``cleanup_delete`` and ``cleanup_compact``: the two words of cleanup.policy, which may have neither.
    """

    segment_bytes: int = value_of(table.SEGMENT_BYTES)
    segment_ms: int = value_of(table.SEGMENT_MS)
    segment_jitter_ms: int = value_of(table.SEGMENT_JITTER_MS)
    segment_index_bytes: int = value_of(table.SEGMENT_INDEX_BYTES)
    index_interval_bytes: int = value_of(table.INDEX_INTERVAL_BYTES)
    preallocate: bool = value_of(table.PREALLOCATE)
    retention_bytes: int = value_of(table.RETENTION_BYTES)
    retention_ms: int = value_of(table.RETENTION_MS)
    flush_messages: int = value_of(table.FLUSH_MESSAGES)
    file_delete_delay_ms: int = value_of(table.FILE_DELETE_DELAY_MS)
    cleanup_delete: bool = value_of(table.CLEANUP_POLICY, lambda words: "delete" in words)
    cleanup_compact: bool = value_of(table.CLEANUP_POLICY, lambda words: "compact" in words)
    max_compaction_lag_ms: int = value_of(table.MAX_COMPACTION_LAG_MS)
    flush_ms: int = value_of(table.FLUSH_MS)
    delete_retention_ms: int = value_of(table.DELETE_RETENTION_MS)
    min_compaction_lag_ms: int = value_of(table.MIN_COMPACTION_LAG_MS)
    min_cleanable_dirty_ratio: float = value_of(table.MIN_CLEANABLE_DIRTY_RATIO)
    max_message_bytes: int = value_of(table.MAX_MESSAGE_BYTES)
    compression_type: str = value_of(table.COMPRESSION_TYPE)
    compression_gzip_level: int = value_of(table.COMPRESSION_GZIP_LEVEL)
    compression_lz4_level: int = value_of(table.COMPRESSION_LZ4_LEVEL)
    compression_zstd_level: int = value_of(table.COMPRESSION_ZSTD_LEVEL)
    message_downconversion_enable: bool = value_of(table.MESSAGE_DOWNCONVERSION_ENABLE)
    message_timestamp_type: str = value_of(table.MESSAGE_TIMESTAMP_TYPE)
    message_timestamp_before_max_ms: int = value_of(table.MESSAGE_TIMESTAMP_BEFORE_MAX_MS)
    message_timestamp_after_max_ms: int = value_of(table.MESSAGE_TIMESTAMP_AFTER_MAX_MS)
    message_timestamp_difference_max_ms: int = value_of(table.MESSAGE_TIMESTAMP_DIFFERENCE_MAX_MS)
    min_insync_replicas: int = value_of(table.MIN_INSYNC_REPLICAS)
    leader_throttled_replicas: frozenset[tuple[int, int]] = value_of(
        table.LEADER_REPLICATION_THROTTLED_REPLICAS, _throttled_replicas
    )
    follower_throttled_replicas: frozenset[tuple[int, int]] = value_of(
        table.FOLLOWER_REPLICATION_THROTTLED_REPLICAS, _throttled_replicas
    )

    @classmethod
    def from_broker_configs(cls, configs: Mapping[str, str]) -> LogConfig:
        """Return the defaults of all topics that a broker's settings give. Raises ConfigError."""
        values: dict[Setting[Any], Any] = {}
        for _, topic, _ in fields_of(cls):
            for broker, unit in topic.behind:
                if broker.name in configs:
                    value = broker.parse(configs[broker.name])
                    if topic is table.RETENTION_MS and value < 0:
                        value, unit = -1, 1
                    values[topic] = value if unit == 1 else value * unit
                    break
        return cls().with_values(values)

    @property
    def roll_ms(self) -> int:
        """After how much time a segment is rolled: sooner where records must be compacted sooner."""
        return min(self.max_compaction_lag_ms, self.segment_ms) if self.cleanup_compact else self.segment_ms

    @property
    def compression_level(self) -> int:
        """The level of ``compression_type``; 0 for a codec without levels."""
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type, 0)

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
    """Return the settings after a check. Logs with equal settings share one object."""
    for field, setting, convert in fields_of(LogConfig):
        value = getattr(config, field)
        # Kafka takes NaN for a ratio.
        if convert is None and value == value:
            setting.parse(str(value))
    # A least compaction lag above the largest one is refused where it is set, not where it is: a broker that
    # is started with another default must serve the topic.
    return config
