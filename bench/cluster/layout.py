"""Which partition is on which brokers: leaders spread evenly, each replica in another rack, as by Kafka."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["PARTITIONS_PER_TOPIC", "RACKS", "REPLICATION", "Layout", "rack_of", "replicas_of"]

PARTITIONS_PER_TOPIC: Final = 100
REPLICATION: Final = 3
RACKS: Final = 3

Replicas = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Layout:
    """The measured cluster: partitions in topics of ``PARTITIONS_PER_TOPIC``, on brokers 1 to ``brokers``."""

    partitions: int
    brokers: int

    def __post_init__(self) -> None:
        if self.partitions % PARTITIONS_PER_TOPIC or self.brokers % RACKS:
            raise ValueError(f"{self} does not fill its topics or its racks")

    def __str__(self) -> str:
        return f"{self.partitions}-{self.brokers}"

    @property
    def topics(self) -> int:
        return self.partitions // PARTITIONS_PER_TOPIC

    @property
    def broker_ids(self) -> range:
        return range(1, self.brokers + 1)


def rack_of(broker_id: int) -> str:
    return f"rack-{broker_id % RACKS}"


def replicas_of(rows: int, brokers: int) -> Replicas:
    """Return int32[rows, 3]: the replicas of each partition, the preferred leader first."""
    row = np.arange(rows)
    leader, turn = row % brokers, row // brokers
    # Steps of three brokers stay in a rack; followers move on with each turn, by different steps.
    groups = brokers // RACKS
    first = leader + 1 + RACKS * (turn % groups)
    second = leader + 2 + RACKS * ((turn * 7 + 3) % groups)
    replicas = np.stack([leader, first, second], axis=1) % brokers + 1
    return replicas.astype(np.int32)
