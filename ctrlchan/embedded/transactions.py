"""Reads the transactions of a cluster."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from ctrlchan.broker.coordinator.common.wire import Reader
from ctrlchan.embedded.requests import ask, check
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.peers.connection import Address

__all__ = ["Transaction", "read_transactions", "wait_for_markers"]

#: All of their versions are flexible.
_DESCRIBE_TRANSACTIONS: Final = 65, 0
_LIST_TRANSACTIONS: Final = 66, 0
_NOT_STARTED: Final = -1
#: The end of the transaction is decided, and its markers are being written.
_ENDING: Final = "PrepareCommit", "PrepareAbort"
_PAUSE_SECONDS: Final = 0.005


class Transaction(NamedTuple):
    """One transactional id, with its transaction.

    - ``state``: Kafka's, such as "Ongoing" or "CompleteCommit".
    - ``start_ms``: milliseconds since 1970, None when no transaction has begun.
    - ``partitions``: topic and partition of those in the transaction, in order.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[tuple[str, int], ...]


def read_transactions(brokers: Iterable[Address]) -> list[Transaction]:
    """Return the transactional ids whose coordinators are these brokers, by id. Raises KafkaError."""
    found = [one for broker in brokers for one in _read(broker)]
    return sorted(found, key=lambda one: one.transactional_id)


def wait_for_markers(brokers: Collection[Address], topic: str, timeout: float) -> None:
    """Wait until consumers see the end of each transaction that is committed or aborted now.

    An EndTxn is answered before the markers of its transaction are in the partitions. Markers of a partition
    without a leader, or of a coordinator that does not answer, are waited for no longer than `timeout`
    seconds. `topic`: whose transactions count.
    """
    deadline = time.monotonic() + timeout
    left = _ending(brokers, topic)
    while left and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
        left &= _ending(brokers, topic)


def _ending(brokers: Iterable[Address], topic: str) -> set[tuple[str, int, int, int | None]]:
    """Return which transactions with partitions of a topic have no markers yet."""
    found: set[tuple[str, int, int, int | None]] = set()
    for broker in brokers:
        try:
            found |= {
                (one.transactional_id, one.producer_id, one.producer_epoch, one.start_ms)
                for one in _read(broker, _ENDING)
                if one.state in _ENDING and any(each == topic for each, _ in one.partitions)
            }
        except KafkaError:
            continue  # it does not answer, or is about to become the coordinator
    return found


def _read(coordinator: Address, states: tuple[str, ...] = ()) -> list[Transaction]:
    listed = ask(
        coordinator,
        "list_transactions",
        _LIST_TRANSACTIONS,
        flexible=True,
        state_filters=states,
        producer_id_filters=(),
    )
    check(listed.error_code.value, "ListTransactions")
    ids = tuple(one.transactional_id for one in listed.transaction_states)
    if not ids:
        return []
    transactions: list[Transaction] = ask(
        coordinator,
        "describe_transactions",
        _DESCRIBE_TRANSACTIONS,
        flexible=True,
        read=lambda body: list(_described(body)),
        transactional_ids=ids,
    )
    return transactions


def _described(body: bytes) -> Iterator[Transaction]:
    """Yield the transactions of a DescribeTransactions response; kio refuses the time of an Empty one, -1."""
    reader = Reader(body)
    reader.flexible = True
    reader.integer("i")  # the throttle time
    for _ in range(reader.count()):
        error = reader.integer("h")
        transactional_id, state = reader.string(), reader.string()
        timeout_ms, start_ms = reader.integer("i"), reader.integer("q")
        producer_id, producer_epoch = reader.integer("q"), reader.integer("h")
        partitions: list[tuple[str, int]] = []
        for _ in range(reader.count()):
            topic = reader.string()
            partitions += [(topic, reader.integer("i")) for _ in range(reader.count())]
            reader.tagged_fields()
        reader.tagged_fields()
        if error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            continue  # it has expired since
        check(error, f"transactional id {transactional_id}")
        yield Transaction(
            transactional_id,
            state,
            producer_id,
            producer_epoch,
            timeout_ms,
            None if start_ms == _NOT_STARTED else start_ms,
            tuple(sorted(partitions)),
        )
