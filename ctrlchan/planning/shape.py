"""A cluster that does not exist yet, as the same synthetic state as ``ctrlchan snapshot generate`` makes."""

from __future__ import annotations

from dataclasses import dataclass

from ctrlchan.errors import ConfigError
from ctrlchan.state import ClusterState, SecurityProtocol
from ctrlchan.state.importing.generate import GeneratorConfig, generate

__all__ = ["Shape"]

_PORT = 9_092
#: Digits of a topic's number at least.
_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The numbers that decide the bytes. Topics have equal numbers of partitions; the last one is filled.

    ``host``: of a broker, whose length counts, as those of the listeners' names and of topic names do.
    """

    partitions: int
    brokers: int
    replication: int = 3
    partitions_per_topic: int = 100
    topic_name_length: int = 20
    racks: int = 0
    offline_share: float = 0.0
    host: str = "broker-0000.internal"
    listeners: tuple[tuple[str, SecurityProtocol], ...] = (("PLAINTEXT", SecurityProtocol.PLAINTEXT),)

    @property
    def topics(self) -> int:
        """The number of topics that hold the partitions."""
        return -(-self.partitions // self._per_topic)

    @property
    def _per_topic(self) -> int:
        return min(self.partitions, self.partitions_per_topic)

    def state(self) -> ClusterState:
        """Return the cluster. Raises ConfigError that names the number that cannot be."""
        if min(self.partitions, self.partitions_per_topic) < 1:
            raise ConfigError("partitions: a cluster to plan has at least one, and each topic too")
        digits = max(_DIGITS, len(str(self.topics - 1)))
        if self.topic_name_length < digits:
            raise ConfigError(f"topic_name_length: {self.topics:,} topics need {digits} characters")
        return generate(
            GeneratorConfig(
                topics=self.topics,
                partitions_per_topic=self._per_topic,
                brokers=self.brokers,
                replication=self.replication,
                racks=self.racks,
                offline_share=self.offline_share,
                address=(self.host, _PORT),
                listeners=self.listeners,
                topic_prefix="t" * (self.topic_name_length - digits),
            )
        )
