"""The APIs that only the controller can answer, each forwarded to it as it came.

In Kafka's ZooKeeper mode a client sends them to the controller, and another broker refuses them
(NOT_CONTROLLER). Here any broker answers, as in KRaft: the controller may be one that clients cannot see. The
answer waits until the broker's own metadata has the change. What a client may do is decided here
(``forwarded_access.py``), and again by a controller that gets the request in an Envelope, with the client's
principal and address; any other controller takes it for one of the broker's.
``kafka.server.ForwardingManager`` of Kafka 3.9.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic
from typing import Any, Final

from ctrlchan.authorizer.acls import Operation
from ctrlchan.broker.handlers.effects import TopicChanges, when_seen
from ctrlchan.broker.handlers.forwarded_access import Split, creations, deletions, growths
from ctrlchan.broker.handlers.mutation_quota import take_mutations
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import CtrlchanError, KafkaError
from ctrlchan.peers.messages import decode_answer
from ctrlchan.peers.requests import Answer
from ctrlchan.server.access import (
    ALTER_TOPIC,
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DELETE_TOPIC,
    DESCRIBE_CONFIGS_TOPIC,
    DESCRIBE_TOPIC,
    Access,
    Needs,
    asks,
    needs_cluster,
)
from ctrlchan.server.api import Api, CannotAnswer, Reply, Request
from ctrlchan.server.apis.lookups import MetadataLookups
from ctrlchan.server.error_responses import error_response
from ctrlchan.server.futures import then
from ctrlchan.server.kio_messages import ClientMessages, KioError
from ctrlchan.topic_names import ZERO_ID

__all__ = ["APIS"]

_LOG: Final = logging.getLogger("ctrlchan.broker")

#: Seconds that a request may take which has no timeout of its own.
_TIMEOUT: Final = 30.0

#: Takes a request, its response, and what has happened to its topics since it was sent. Returns the condition
#: that the broker's metadata must meet, or None.
_Effect = Callable[[Any, Any, TopicChanges], Callable[[MetadataLookups], bool] | None]
_SplitRequest = Callable[[StoringCore, ClientMessages, Access, Any], Split]


def _forwarded(
    key: int,
    name: str,
    message: str,
    highest: int,
    flexible_from: int,
    needs: Needs,
    effect: _Effect | None = None,
    split: _SplitRequest | None = None,
) -> Api[StoringCore]:
    def handle(core: StoringCore, request: Request) -> Reply | Future[Reply]:
        messages = ClientMessages(message, request.version)
        body = messages.decode(request)
        allowed = None
        sent = bytes(request.frame[request.offset :])
        if split is not None and request.access.is_restricted:
            allowed = split(core, messages, request.access, body)
            if allowed.body is None:
                return Reply(allowed.response(None))
            sent = messages.encode(allowed.body)
        mutations = take_mutations(core, request, key, messages, body if allowed is None else allowed.body)
        if mutations is not None:
            sent = b"" if mutations.body is None else messages.encode(mutations.body)
        # With a time limit of 0 or less a request is done, too; nobody waits for its effect.
        timeout = max(0.0, body.timeout.total_seconds()) if hasattr(body, "timeout") else _TIMEOUT
        deadline = monotonic() + timeout
        changes = None
        if effect is not None and timeout > 0:
            changes = TopicChanges(core, _names(body))

        def forward(sent: bytes) -> Future[Answer]:
            assert core.controller is not None
            flexible = request.version >= flexible_from
            return core.controller.forward(
                key,
                request.version,
                flexible=flexible,
                body=sent,
                client_id=request.client_id,
                context=request.context,
                timeout=timeout,
            )

        def answered(answer: Answer | None, checked: Answer | None = None) -> Reply | Future[Reply]:
            response = b"" if answer is None else answer.body
            expected = None
            if effect is not None and changes is not None and answer is not None:
                expected = effect(body, decode_answer(message, request.version, response), changes)
            ms = 0
            if mutations is not None:
                response = mutations.response(
                    *(
                        None if one is None else decode_answer(message, request.version, one.body)
                        for one in (answer, checked)
                    )
                )
                ms = mutations.throttle_time_ms
                mutations.note_throttling(ms)
            if allowed is not None:
                response = allowed.response(decode_answer(message, request.version, response))
            reply = Reply(response, throttle_time_ms=ms)
            if expected is None or deadline <= monotonic():
                return reply
            return then(when_seen(core, expected, deadline - monotonic()), lambda _: reply)

        def after_first(answer: Answer | None) -> Reply | Future[Reply]:
            if mutations is None or mutations.refused is None:
                return answered(answer)
            # An error of the topic itself comes before that of the quota.
            return then(
                forward(messages.encode(mutations.refused)), lambda checked: answered(answer, checked)
            )

        def failed(error: BaseException) -> Reply:
            if mutations is not None:
                mutations.give_back()
            if isinstance(error, CannotAnswer):
                raise error
            if isinstance(error, CtrlchanError):
                code = error.code if isinstance(error, KafkaError) else KioError.unknown_server_error.value
                return Reply(error_response(messages, body, KioError(code), str(error)), code)
            _LOG.error("broker %d: %s cannot be forwarded", core.id, name, exc_info=error)
            raise error

        if mutations is not None and mutations.body is None:
            nothing: Future[None] = Future()
            nothing.set_result(None)
            reply = _recovered(then(nothing, after_first), failed)
        else:
            reply = _recovered(then(forward(sent), after_first), failed)
        if changes is not None:
            reply.add_done_callback(lambda _: changes.close())
        return reply

    return Api(
        key=key,
        name=name,
        lowest=0,
        highest=highest,
        flexible_from=flexible_from,
        handle=handle,
        locks_core=False,
        needs=needs,
    )


def _recovered(reply: Future[Reply], failed: Callable[[BaseException], Reply]) -> Future[Reply]:
    """Return the reply, or what ``failed`` makes of the exception. If it raises, the connection closes."""
    recovered: Future[Reply] = Future()

    def ended(done: Future[Reply]) -> None:
        try:
            error = done.exception()
            recovered.set_result(done.result() if error is None else failed(error))
        except BaseException as raised:  # noqa: BLE001  (the client tries again)
            recovered.set_exception(raised)

    reply.add_done_callback(ended)
    return recovered


def _names(body: Any) -> list[str]:
    """Return the names of the topics in a request; those with an id alone are left out."""
    if hasattr(body, "topic_names"):
        return list(body.topic_names)
    return [topic.name for topic in body.topics if topic.name is not None]


def _created(body: Any, answer: Any, changes: TopicChanges) -> Callable[[MetadataLookups], bool] | None:
    names = {one.name for one in answer.topics if one.error_code is KioError.none}
    if not names or getattr(body, "validate_only", False):
        return None
    return lambda metadata: all(
        metadata.topic_row(name) is not None for name in names - changes.shown - changes.deleted
    )


def _deleted(_body: Any, answer: Any, changes: TopicChanges) -> Callable[[MetadataLookups], bool] | None:
    # With its id: another topic may have the name by then.
    gone = [
        (one.name, None if (topic_id := getattr(one, "topic_id", None)) is None else topic_id.bytes)
        for one in answer.responses
        if one.error_code is KioError.none and one.name is not None
    ]

    def is_gone(metadata: MetadataLookups) -> bool:
        return all(
            name in changes.deleted
            or metadata.topic_row(name) is None
            or (topic_id not in (None, ZERO_ID) and metadata.topic_id(name) != topic_id)
            for name, topic_id in gone
        )

    return is_gone if gone else None


def _grown(body: Any, answer: Any, changes: TopicChanges) -> Callable[[MetadataLookups], bool] | None:
    done = {one.name for one in answer.results if one.error_code is KioError.none}
    counts = {topic.name: topic.count for topic in body.topics if topic.name in done}
    if not counts or body.validate_only:
        return None

    def has_grown(metadata: MetadataLookups) -> bool:
        for name, count in counts.items():
            if name in changes.deleted:
                continue
            if metadata.row_of(name) is None:
                return False
            rows = metadata.state.rows_of_topic(name)
            if rows.stop - rows.start < count:
                return False
        return True

    return has_grown


APIS: Final[tuple[Api[StoringCore], ...]] = (
    _forwarded(
        19,
        "CreateTopics",
        "create_topics",
        7,
        5,
        asks(CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_CONFIGS_TOPIC),
        _created,
        creations,
    ),
    _forwarded(
        20, "DeleteTopics", "delete_topics", 6, 4, asks(DESCRIBE_TOPIC, DELETE_TOPIC), _deleted, deletions
    ),
    _forwarded(37, "CreatePartitions", "create_partitions", 3, 2, asks(ALTER_TOPIC), _grown, growths),
    # Kafka's refusal has no text.
    _forwarded(43, "ElectLeaders", "elect_leaders", 2, 2, needs_cluster(Operation.ALTER, None)),
    _forwarded(
        45,
        "AlterPartitionReassignments",
        "alter_partition_reassignments",
        0,
        0,
        needs_cluster(Operation.ALTER),
    ),
    _forwarded(
        46,
        "ListPartitionReassignments",
        "list_partition_reassignments",
        0,
        0,
        needs_cluster(Operation.DESCRIBE),
    ),
    _forwarded(
        51,
        "AlterUserScramCredentials",
        "alter_user_scram_credentials",
        0,
        0,
        needs_cluster(Operation.ALTER),
    ),
    # Kafka's refusal has the text of the error.
    _forwarded(
        57,
        "UpdateFeatures",
        "update_features",
        1,
        0,
        needs_cluster(Operation.ALTER, "Cluster authorization failed."),
    ),
)
