"""DescribeTransactions (65) and ListTransactions (66) (KIP-664).

``KafkaApis.handleDescribeTransactionsRequest`` and ``handleListTransactionsRequest`` of Kafka 3.9.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ctrlchan.broker.coordinator.transaction.requests import TransactionDescription
from ctrlchan.broker.handlers.group_access import by_topic
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode
from ctrlchan.server.access import DESCRIBE_TOPIC, DESCRIBE_TRANSACTIONAL_ID, Access, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_entities import duration
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["APIS"]

_ANY_DURATION: Final = -1
_MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(microsecond=999_000, tzinfo=UTC)


def _describe(core: StoringCore, request: Request) -> Reply:
    messages = ClientMessages("describe_transactions", request.version)
    body = messages.decode(request)
    coordinator = core.transactions.coordinator
    described = [
        (
            each,
            coordinator.describe(each)
            if request.access.allows(*DESCRIBE_TRANSACTIONAL_ID, each)
            else TransactionDescription(error=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        )
        for each in body.transactional_ids
    ]
    states = tuple(_described(messages, request.access, each, transaction) for each, transaction in described)
    return Reply(
        messages.response(transaction_states=states),
        partition_errors=sum(1 for _, transaction in described if transaction.error),
        rows=len(described),
    )


def _described(
    messages: ClientMessages, access: Access, transactional_id: str, transaction: TransactionDescription
) -> Any:
    found = not transaction.error
    topics = by_topic(transaction.partitions if found else ())
    visible = access.allowed(*DESCRIBE_TOPIC, topics)
    return messages.part(
        "TransactionState",
        error_code=KioError(transaction.error),
        transactional_id=transactional_id,
        transaction_state=transaction.state if found else "",
        transaction_timeout=duration(transaction.timeout_ms / 1000 if found else 0),
        # Not kio's own type, which has no time before 1970: without a transaction it is -1.
        transaction_start_time=_time(transaction.start_ms if found else 0),
        producer_id=transaction.producer_id if found else 0,
        producer_epoch=transaction.epoch if found else 0,
        topics=tuple(
            messages.part("TopicData", topic=topic, partitions=tuple(partitions))
            for topic, partitions in topics.items()
            if topic in visible
        ),
    )


def _list(core: StoringCore, request: Request) -> Reply:
    messages = ClientMessages("list_transactions", request.version)
    body = messages.decode(request)
    error, unknown_states, transactions = core.transactions.coordinator.list(
        frozenset(body.state_filters),
        frozenset(body.producer_id_filters),
        getattr(body, "duration_filter", _ANY_DURATION),
    )
    # Kafka logs a denial of each: the client has named none of them, and yet asked for all.
    visible = request.access.allowed(
        *DESCRIBE_TRANSACTIONAL_ID, [each.transactional_id for each in transactions]
    )
    listed = tuple(
        messages.part(
            "TransactionState",
            transactional_id=each.transactional_id,
            producer_id=each.producer_id,
            transaction_state=each.state,
        )
        for each in transactions
        if each.transactional_id in visible
    )
    return Reply(
        messages.response(
            error_code=KioError(error), unknown_state_filters=tuple(unknown_states), transaction_states=listed
        ),
        error_code=int(error),
        rows=len(listed),
    )


APIS: Final = (
    Api(
        key=65,
        name="DescribeTransactions",
        lowest=0,
        highest=0,
        flexible_from=0,
        handle=_describe,
        locks_core=False,
        needs=asks(DESCRIBE_TRANSACTIONAL_ID, DESCRIBE_TOPIC),
    ),
    Api(
        key=66,
        name="ListTransactions",
        lowest=0,
        highest=1,
        flexible_from=0,
        handle=_list,
        locks_core=False,
        needs=asks(DESCRIBE_TRANSACTIONAL_ID),
    ),
)


def _time(milliseconds: int) -> datetime:
    """Return the time so many milliseconds after 1970, or the nearest that Python has."""
    try:
        return _EPOCH + milliseconds * _MILLISECOND
    except OverflowError:
        return _LAST if milliseconds > 0 else _FIRST
