"""TopicPartition: a partition by the name of its topic."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["TopicPartition"]


class TopicPartition(NamedTuple):
    """A partition by topic name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Return Kafka's form, such as ``orders-0``."""
        return f"{self.topic}-{self.partition}"
