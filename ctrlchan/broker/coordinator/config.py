"""Settings of the group coordinator, with Kafka's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GroupConfig"]


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Settings of ``GroupCoordinatorConfig``; times are milliseconds."""

    #: group.min.session.timeout.ms
    min_session_timeout: int = 6_000
    #: group.max.session.timeout.ms
    max_session_timeout: int = 1_800_000
    #: group.max.size
    max_size: int = 2**31 - 1
    #: group.initial.rebalance.delay.ms
    initial_rebalance_delay: int = 3_000
    #: offset.metadata.max.bytes; compared with UTF-16 units, as Kafka does
    offset_metadata_max: int = 4_096
    #: offsets.retention.minutes, in milliseconds
    offsets_retention: int = 7 * 24 * 3_600_000
    #: offsets.retention.check.interval.ms
    offsets_retention_check_interval: int = 600_000
    #: offsets.topic.num.partitions
    offsets_topic_partitions: int = 50
