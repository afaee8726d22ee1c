"""What the transaction coordinator is asked for and what it answers. Times are milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.errors import ErrorCode

__all__ = [
    "NO_CONNECTION",
    "NO_EPOCH",
    "NO_PRODUCER_ID",
    "EndedTransaction",
    "InitResult",
    "ProducerIdentity",
    "TransactionDescription",
    "TransactionFigures",
    "TransactionListing",
]

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
#: Connections have positive numbers, which grow.
NO_CONNECTION: Final = 0


class ProducerIdentity(NamedTuple):
    """A producer id with its epoch."""

    producer_id: int
    epoch: int


class InitResult(NamedTuple):
    """The result of an InitProducerId."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class TransactionDescription(NamedTuple):
    """A transactional id in a DescribeTransactions response. ``start_ms``: -1 without a transaction."""

    error: ErrorCode
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = 0
    producer_id: int = 0
    epoch: int = 0
    partitions: frozenset[TopicPartition] = frozenset()


class TransactionListing(NamedTuple):
    """A transactional id in a ListTransactions response."""

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class EndedTransaction:
    """A transaction whose end is in the log, and whose partitions need markers.

    ``state_partition``: of ``__transaction_state``; ``coordinator_epoch``: its leader epoch.
    """

    transactional_id: str
    state_partition: int
    coordinator_epoch: int
    producer: ProducerIdentity
    commit: bool
    partitions: frozenset[TopicPartition]


class TransactionFigures(NamedTuple):
    """Figures of a coordinator.

    ``transactional_ids``: state -> number of ids. ``unfinished_appends``: transactions with all their markers
    whose last record could not be appended so far. ``late_ends``: EndTxn requests that came too late and were
    refused. ``load_time_max``, ``load_time_avg``: milliseconds for a
    partition, of those loaded within the last 30 seconds; NaN without one.
    """

    transactional_ids: Mapping[str, int]
    unfinished_appends: int
    late_ends: int
    load_time_max: float
    load_time_avg: float
