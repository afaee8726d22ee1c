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
from ctrlchan.broker.handlers.effects import when_seen
from ctrlchan.broker.handlers.forwarded_access import Split, creations, deletions, growths
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
from ctrlchan.server.kio_messages import ClientMessages, KioError
from ctrlchan.topic_names import ZERO_ID

__all__ = ["APIS"]

_LOG: Final = logging.getLogger("ctrlchan.broker")

#: Seconds that a request may take which has no timeout of its own.
_TIMEOUT: Final = 30.0

#: Takes a request and its response. Returns the condition that the broker's metadata must meet, or None.
_Effect = Callable[[Any, Any], Callable[[MetadataLookups], bool] | None]
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
        # With a time limit of 0 or less a request is done, too; nobody waits for its effect.
        timeout = max(0.0, body.timeout.total_seconds()) if hasattr(body, "timeout") else _TIMEOUT
        deadline = monotonic() + timeout
        assert core.controller is not None
        answer = core.controller.forward(
            key,
            request.version,
            flexible=request.version >= flexible_from,
            body=sent,
            client_id=request.client_id,
            context=request.context,
            timeout=timeout,
        )
        reply: Future[Reply] = Future()

        def answered(done: Future[Answer]) -> None:
            try:
                response = done.result().body
                expected = None
                if effect is not None and deadline > monotonic():
                    expected = effect(body, decode_answer(message, request.version, response))
                if allowed is not None:
                    response = allowed.response(decode_answer(message, request.version, response))
            except CannotAnswer as error:
                reply.set_exception(error)
            except CtrlchanError as error:
                code = error.code if isinstance(error, KafkaError) else KioError.unknown_server_error.value
                reply.set_result(Reply(error_response(messages, body, KioError(code), str(error)), code))
            except BaseException as error:  # noqa: BLE001  (the connection is closed, the client tries again)
                _LOG.exception("broker %d: %s cannot be forwarded", core.id, name)
                reply.set_exception(error)
            else:
                if expected is None:
                    reply.set_result(Reply(response))
                    return
                seen = when_seen(core, expected, deadline - monotonic())
                seen.add_done_callback(lambda _: reply.set_result(Reply(response)))

        answer.add_done_callback(answered)
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


def _created(body: Any, answer: Any) -> Callable[[MetadataLookups], bool] | None:
    names = [one.name for one in answer.topics if one.error_code is KioError.none]
    if not names or getattr(body, "validate_only", False):
        return None
    return lambda metadata: all(metadata.topic_row(name) is not None for name in names)


def _deleted(_body: Any, answer: Any) -> Callable[[MetadataLookups], bool] | None:
    # With its id: another topic may have the name by then.
    gone = [
        (one.name, None if (topic_id := getattr(one, "topic_id", None)) is None else topic_id.bytes)
        for one in answer.responses
        if one.error_code is KioError.none and one.name is not None
    ]

    def is_gone(metadata: MetadataLookups) -> bool:
        return all(
            metadata.topic_row(name) is None
            or (topic_id not in (None, ZERO_ID) and metadata.topic_id(name) != topic_id)
            for name, topic_id in gone
        )

    return is_gone if gone else None


def _grown(body: Any, answer: Any) -> Callable[[MetadataLookups], bool] | None:
    done = {one.name for one in answer.results if one.error_code is KioError.none}
    counts = {topic.name: topic.count for topic in body.topics if topic.name in done}
    if not counts or body.validate_only:
        return None

    def has_grown(metadata: MetadataLookups) -> bool:
        for name, count in counts.items():
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
)
