"""Settings of the group coordinator, with Kafka's names and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from ctrlchan.config.settings import integer
from ctrlchan.errors import ConfigError

__all__ = ["GroupConfig"]

#: Field -> Kafka's name.
_NAMES: Final = {
    "min_session_timeout": "group.min.session.timeout.ms",
    "max_session_timeout": "group.max.session.timeout.ms",
    "max_size": "group.max.size",
    "initial_rebalance_delay": "group.initial.rebalance.delay.ms",
    "offset_metadata_max": "offset.metadata.max.bytes",
    "offsets_retention_check_interval": "offsets.retention.check.interval.ms",
    "offsets_topic_partitions": "offsets.topic.num.partitions",
    "offsets_topic_replication_factor": "offsets.topic.replication.factor",
    "offsets_topic_segment_bytes": "offsets.topic.segment.bytes",
    "offsets_commit_timeout": "offsets.commit.timeout.ms",
    "offsets_load_buffer_size": "offsets.load.buffer.size",
}
_RETENTION_MINUTES: Final = "offsets.retention.minutes"


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
    #: offsets.topic.replication.factor
    offsets_topic_replication_factor: int = 3
    #: offsets.topic.segment.bytes
    offsets_topic_segment_bytes: int = 100 * 1024 * 1024
    #: offsets.commit.timeout.ms
    offsets_commit_timeout: int = 5_000
    #: offsets.load.buffer.size
    offsets_load_buffer_size: int = 5 * 1024 * 1024

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> Self:
        """Return the config that a broker's settings give, which have Kafka's names. Raises ConfigError."""
        values = {field: integer(settings, name) for field, name in _NAMES.items() if name in settings}
        if _RETENTION_MINUTES in settings:
            values["offsets_retention"] = integer(settings, _RETENTION_MINUTES) * 60_000
        config = cls(**values)
        if config.max_session_timeout < config.min_session_timeout:
            raise ConfigError("group.max.session.timeout.ms is less than group.min.session.timeout.ms")
        return config
