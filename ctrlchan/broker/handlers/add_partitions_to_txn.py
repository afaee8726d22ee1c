"""AddPartitionsToTxn (24): partitions that belong to a transaction from now on, or that a broker asks about.

Clients send versions 0 to 3, one transaction each. Brokers send later ones: several transactions, and mostly
those that are only verified (KIP-890). ``KafkaApis.handleAddPartitionsToTxnRequest`` of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from ctrlchan.authorizer.acls import Operation
from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.transaction.requests import NO_CONNECTION, ProducerIdentity
from ctrlchan.broker.handlers._transaction_messages import decode_add_partitions, encode_add_partitions
from ctrlchan.broker.handlers.group_access import by_topic, when_answered
from ctrlchan.broker.handlers.transaction_access import for_old_clients
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode
from ctrlchan.internal_topics import INTERNAL_TOPICS
from ctrlchan.server.access import CLUSTER_ACTION_CLUSTER, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.futures import then, when_done
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API"]

_OF_BROKERS_SINCE: Final = 4

#: Partitions with their errors, in the order of the response.
_Errors = Sequence[tuple[TopicPartition, ErrorCode]]


class _Transaction(NamedTuple):
    """What a request says of one transaction. ``partitions``: in its order, also those that come twice."""

    transactional_id: str
    producer: ProducerIdentity
    partitions: Sequence[TopicPartition]
    verify_only: bool = False


def _handle(core: StoringCore, request: Request) -> Reply | Future[Reply]:
    if request.version >= _OF_BROKERS_SINCE:
        return _handle_several(core, request)
    transaction = _Transaction(*decode_add_partitions(request.frame, request.offset, request.version))

    def reply(errors: _Errors) -> Reply:
        return _counted(encode_add_partitions(request.version, errors), errors)

    return when_answered(lambda answer: _answer(core, request, transaction, answer), reply)


def _handle_several(core: StoringCore, request: Request) -> Future[Reply]:
    """Answer when all transactions are answered; a request without transactions at once."""
    messages = ClientMessages("add_partitions_to_txn", request.version)
    body = messages.decode(request)
    if not request.access.allows_cluster(Operation.CLUSTER_ACTION):
        refused = KioError.cluster_authorization_failed
        done: Future[Reply] = Future()
        done.set_result(
            Reply(messages.response(error_code=refused, results_by_transaction=()), error_code=refused.value)
        )
        return done
    # A transaction that is named twice has the partitions of its last entry, as in Kafka.
    partitions = {each.transactional_id: _partitions(each.topics) for each in body.transactions}
    answers: list[Future[_Errors]] = []
    for each in body.transactions:
        answered: Future[_Errors] = Future()
        answers.append(answered)
        transaction = _Transaction(
            each.transactional_id,
            ProducerIdentity(each.producer_id, each.producer_epoch),
            partitions[each.transactional_id],
            each.verify_only,
        )
        _answer(core, request, transaction, answered.set_result)

    def reply(_: None) -> Reply:
        results = tuple(
            messages.part(
                "AddPartitionsToTxnResult",
                transactional_id=each.transactional_id,
                topic_results=_topics(messages, answered.result()),
            )
            for each, answered in zip(body.transactions, answers, strict=True)
        )
        response = messages.response(error_code=KioError.none, results_by_transaction=results)
        return _counted(response, [one for answered in answers for one in answered.result()])

    return then(when_done(answers), reply)


API: Final = Api(
    key=24,
    name="AddPartitionsToTxn",
    lowest=0,
    highest=5,
    flexible_from=3,
    handle=_handle,
    locks_core=False,
    needs=asks(WRITE_TRANSACTIONAL_ID, WRITE_TOPIC, CLUSTER_ACTION_CLUSTER),
)


def _answer(
    core: StoringCore, request: Request, transaction: _Transaction, answer: Callable[[_Errors], None]
) -> None:
    """Add the partitions to the transaction or verify them; call ``answer`` once with their errors."""
    metadata = core.metadata.snapshot
    # The order of the request, without those that it names again.
    named = dict.fromkeys(transaction.partitions)
    is_of_client, access = request.version < _OF_BROKERS_SINCE, request.access
    if is_of_client and not access.allows(*WRITE_TRANSACTIONAL_ID, transaction.transactional_id):
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        answer([(each, error) for each in transaction.partitions])
        return
    refused = {}
    writable: Container[str] = {each.topic for each in named}
    if is_of_client:
        topics = [each.topic for each in named if each.topic not in INTERNAL_TOPICS]
        writable = access.allowed(*WRITE_TOPIC, topics)
    for each in named:
        if is_of_client and (each.topic in INTERNAL_TOPICS or each.topic not in writable):
            refused[each] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not metadata.has_partition(each.topic, each.partition):
            refused[each] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if refused:
        answer([(each, refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED)) for each in named])
        return
    coordinator = core.transactions.coordinator
    if transaction.verify_only:
        errors = coordinator.verify_partitions(transaction.transactional_id, transaction.producer, named)
        answer(list(errors.items()))
        return

    def added(error: ErrorCode) -> None:
        error = for_old_clients(error, request.version)
        answer([(each, error) for each in transaction.partitions])

    coordinator.add_partitions(
        transaction.transactional_id,
        transaction.producer,
        frozenset(named),
        added,
        # That of a broker says nothing of the producer's.
        request.context.connection_id if request.version < _OF_BROKERS_SINCE else NO_CONNECTION,
    )


def _partitions(topics: Iterable[Any]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _topics(messages: ClientMessages, errors: _Errors) -> tuple[Any, ...]:
    """Return the results of each topic."""
    topics = by_topic(
        (
            each.topic,
            messages.part(
                "AddPartitionsToTxnPartitionResult",
                partition_index=each.partition,
                partition_error_code=KioError(error),
            ),
        )
        for each, error in errors
    )
    return tuple(
        messages.part("AddPartitionsToTxnTopicResult", name=topic, results_by_partition=tuple(results))
        for topic, results in topics.items()
    )


def _counted(response: bytes, errors: _Errors) -> Reply:
    return Reply(response, partition_errors=sum(1 for _, error in errors if error), rows=len(errors))
