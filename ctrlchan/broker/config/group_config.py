"""Settings of the group coordinator, with Kafka's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ctrlchan.config import table
from ctrlchan.config.typed import TypedSettings, value_of
from ctrlchan.errors import ConfigError

__all__ = ["GroupConfig"]


_MOST_CODEC: Final = 4


@dataclass(frozen=True, slots=True)
class GroupConfig(TypedSettings):
    """Settings of ``GroupCoordinatorConfig``; times are milliseconds.

    Raises ConfigError where the longest session timeout is below the shortest one, where offsets want more
    acknowledgements than their topic has replicas, and for a codec that does not exist.
    """

    min_session_timeout: int = value_of(table.GROUP_MIN_SESSION_TIMEOUT_MS)
    max_session_timeout: int = value_of(table.GROUP_MAX_SESSION_TIMEOUT_MS)
    max_size: int = value_of(table.GROUP_MAX_SIZE)
    initial_rebalance_delay: int = value_of(table.GROUP_INITIAL_REBALANCE_DELAY_MS)
    #: Compared with UTF-16 units, as Kafka does.
    offset_metadata_max: int = value_of(table.OFFSET_METADATA_MAX_BYTES)
    offsets_retention: int = value_of(table.OFFSETS_RETENTION_MINUTES, lambda minutes: minutes * 60_000)
    offsets_retention_check_interval: int = value_of(table.OFFSETS_RETENTION_CHECK_INTERVAL_MS)
    offsets_topic_partitions: int = value_of(table.OFFSETS_TOPIC_NUM_PARTITIONS)
    offsets_topic_replication_factor: int = value_of(table.OFFSETS_TOPIC_REPLICATION_FACTOR)
    offsets_topic_segment_bytes: int = value_of(table.OFFSETS_TOPIC_SEGMENT_BYTES)
    offsets_commit_timeout: int = value_of(table.OFFSETS_COMMIT_TIMEOUT_MS)
    offsets_load_buffer_size: int = value_of(table.OFFSETS_LOAD_BUFFER_SIZE)
    #: With -1 all replicas in sync acknowledge what a group stores, with 1 the leader alone.
    offsets_commit_required_acks: int = value_of(table.OFFSETS_COMMIT_REQUIRED_ACKS)
    #: 0: none; 1: gzip, 2: snappy, 3: lz4, 4: zstd.
    offsets_topic_codec: int = value_of(table.OFFSETS_TOPIC_COMPRESSION_CODEC)

    def __post_init__(self) -> None:
        if self.max_session_timeout < self.min_session_timeout:
            least, most = table.GROUP_MIN_SESSION_TIMEOUT_MS, table.GROUP_MAX_SESSION_TIMEOUT_MS
            raise ConfigError(f"{most} is less than {least}")
        if not -1 <= self.offsets_commit_required_acks <= self.offsets_topic_replication_factor:
            raise ConfigError(
                f"{table.OFFSETS_COMMIT_REQUIRED_ACKS} must be greater or equal -1 and less or equal to "
                f"{table.OFFSETS_TOPIC_REPLICATION_FACTOR}"
            )
        if not 0 <= self.offsets_topic_codec <= _MOST_CODEC:
            name = table.OFFSETS_TOPIC_COMPRESSION_CODEC
            raise ConfigError(f"{name}: unknown compression type id: {self.offsets_topic_codec}")
