"""Settings of the group coordinator, with Kafka's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass

from ctrlchan.config import table
from ctrlchan.config.typed import TypedSettings, value_of
from ctrlchan.errors import ConfigError

__all__ = ["GroupConfig"]


@dataclass(frozen=True, slots=True)
class GroupConfig(TypedSettings):
    """Settings of ``GroupCoordinatorConfig``; times are milliseconds.

    Raises ConfigError where the longest session timeout is below the shortest one.
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

    def __post_init__(self) -> None:
        if self.max_session_timeout < self.min_session_timeout:
            least, most = table.GROUP_MIN_SESSION_TIMEOUT_MS, table.GROUP_MAX_SESSION_TIMEOUT_MS
            raise ConfigError(f"{most} is less than {least}")
