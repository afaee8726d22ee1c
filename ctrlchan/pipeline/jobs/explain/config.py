"""Settings of ``explain``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Self

from ctrlchan.pipeline.jobs.merge_logs.config import MergeLogsConfig
from ctrlchan.pipeline.settings import Setting, check_settings
from ctrlchan.storage import PathLike

__all__ = ["ExplainConfig", "TopicPartition"]


@dataclass(frozen=True, slots=True)
class TopicPartition:
    """``orders-eu.v2-7`` is partition 7 of ``orders-eu.v2``."""

    topic: str
    partition: int

    @classmethod
    def of(cls, name: str) -> Self:
        """Parse a name; raises ConfigError when it does not end in ``-`` and a number."""
        topic, dash, partition = name.rpartition("-")
        if not (dash and topic and partition.isascii() and partition.isdigit()) or int(partition) >= 2**31:
            from ctrlchan.errors import ConfigError

            raise ConfigError(f"{name!r} is not TOPIC-PARTITION, as orders-0")
        return cls(topic, int(partition))

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, kw_only=True)
class ExplainConfig:
    """The partition to explain and where to read about it. Raises ConfigError for a name that is none.

    ``partition``: a TopicPartition, or its name. ``logs``: filters of topics and partitions are ignored.
    """

    partition: Annotated[str | TopicPartition, Setting("The partition, as orders-0.", argument=True)]
    logs: Annotated[MergeLogsConfig, Setting(without=("topics", "topic_pattern", "partitions"))]
    journal: Annotated[
        PathLike | None, Setting("A journal folder, for the outcomes of its requests.", value="FOLDER")
    ] = None
    snapshot: Annotated[
        PathLike | None, Setting("A snapshot folder to compare the last epoch with.", value="FOLDER")
    ] = None

    def __post_init__(self) -> None:
        check_settings(self)
        _ = self.topic_partition

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition, by topic and number."""
        return TopicPartition.of(self.partition) if isinstance(self.partition, str) else self.partition
