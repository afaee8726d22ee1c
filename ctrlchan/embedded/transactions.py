"""Reads the transactions of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ctrlchan.broker.coordinator.common.wire import Reader
from ctrlchan.embedded.requests import ask, check
from ctrlchan.errors import ErrorCode
from ctrlchan.peers.connection import Address

__all__ = ["Transaction", "read_transactions"]

#: All of their versions are flexible.
_DESCRIBE_TRANSACTIONS: Final = 65, 0
_LIST_TRANSACTIONS: Final = 66, 0
_NOT_STARTED: Final = -1


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


def _read(coordinator: Address) -> list[Transaction]:
    listed = ask(
        coordinator,
        "list_transactions",
        _LIST_TRANSACTIONS,
        flexible=True,
        state_filters=(),
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
