"""DeleteTopics (20): queues topics for deletion, and answers when brokers have been sent the deletion.

``KafkaApis.handleDeleteTopicsRequest`` and ``DelayedDeleteTopics`` of Kafka 3.9, without quotas. Unlike Kafka
in ZooKeeper mode, and like KRaft, the answer comes when the topics can be created again, if brokers delete
them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from concurrent.futures import Future
from functools import partial
from time import monotonic
from typing import Any, Final, NamedTuple

from ctrlchan.controller.admin.topics import delete_topics, is_deleted, is_gone
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.access import DELETE_TOPIC, DESCRIBE_TOPIC, Access, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.apis.lookups import MetadataLookups
from ctrlchan.server.kio_messages import ClientMessages
from ctrlchan.server.result_fields import error_fields, seconds, topic_uuid
from ctrlchan.topic_names import ZERO_ID

__all__ = ["API"]

_IDS_SINCE: Final = 6
_DELETION_DISABLED_SINCE: Final = 3
#: How long an answer waits for brokers that delete the logs.
_GONE_SECONDS: Final = 2.0


class _Asked(NamedTuple):
    """A topic of the request, by name or by id."""

    name: str | None
    topic_id: bytes = ZERO_ID


class _Result(NamedTuple):
    name: str | None
    topic_id: bytes
    error: KafkaError | None


def _handle(core: ServerCore, request: Request) -> Reply | Future[Reply]:
    messages = ClientMessages("delete_topics", request.version)
    body = messages.decode(request)
    deadline = monotonic() + seconds(body.timeout)
    asked = _asked(request.version, body)

    def gone(deleted: list[_Result] | KafkaError) -> Reply | Future[Reply]:
        if isinstance(deleted, KafkaError):
            return reply([_Result(*topic, deleted) for topic in asked], set())
        return _when_gone(core, deleted, deadline, partial(reply, deleted))

    def reply(results: list[_Result], missing: set[str | None]) -> Reply:
        late = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        return Reply(
            messages.response(
                responses=tuple(
                    messages.part(
                        "DeletableTopicResult",
                        name=result.name,
                        topic_id=topic_uuid(result.topic_id),
                        **error_fields(
                            late if result.error is None and result.name in missing else result.error
                        ),
                    )
                    for result in results
                )
            )
        )

    if not core.is_active:
        return gone(KafkaError(ErrorCode.NOT_CONTROLLER))
    permitted = _permitted(core, request.access, asked)

    def delete(controller: ControllerCore) -> list[_Result]:
        return _delete(controller, asked, request.version, permitted)

    return core.call(ControllerState.TOPIC_DELETION, "DeleteTopics", delete, gone)


API: Api[ServerCore] = Api(
    key=20,
    name="DeleteTopics",
    lowest=0,
    highest=6,
    flexible_from=4,
    handle=_handle,
    needs=asks(DESCRIBE_TOPIC, DELETE_TOPIC),
)


class _Permitted(NamedTuple):
    """The names of the topics that the client may see, and delete."""

    seen: Container[str]
    deleted: Container[str]


def _permitted(core: ServerCore, access: Access, asked: Sequence[_Asked]) -> _Permitted:
    """Ask the authorizer, if the topics can be deleted at all. Raises CannotAnswer."""
    names: list[str | None] = []
    if access.is_restricted and core.config.delete_topics and not _is_mixed(asked):
        names = [topic.name for topic in asked]
        if any(topic.topic_id != ZERO_ID for topic in asked):
            metadata = core.cluster().metadata
            with metadata.state.lock:
                names = [_name_of(metadata, topic) for topic in asked]
    known = [name for name in names if name is not None]
    return _Permitted(access.allowed(*DESCRIBE_TOPIC, known), access.allowed(*DELETE_TOPIC, known))


def _is_mixed(asked: Sequence[_Asked]) -> bool:
    """Return whether a topic has both a name and an id, which is an error of the whole request."""
    return any(topic.name is not None and topic.topic_id != ZERO_ID for topic in asked)


def _name_of(lookups: MetadataLookups, topic: _Asked) -> str | None:
    return topic.name if topic.topic_id == ZERO_ID else lookups.topic_name(topic.topic_id)


def _asked(version: int, body: Any) -> list[_Asked]:
    if version < _IDS_SINCE:
        return [_Asked(name) for name in body.topic_names]
    return [
        _Asked(topic.name, ZERO_ID if topic.topic_id is None else topic.topic_id.bytes)
        for topic in body.topics
    ]


def _delete(
    controller: ControllerCore, asked: Sequence[_Asked], version: int, permitted: _Permitted
) -> list[_Result]:
    """Queue the topics for deletion; on the event loop's thread."""
    if not controller.config.delete_topics:
        disabled = ErrorCode.TOPIC_DELETION_DISABLED
        if version < _DELETION_DISABLED_SINCE:
            disabled = ErrorCode.INVALID_REQUEST
        return [_Result(*topic, KafkaError(disabled)) for topic in asked]
    if _is_mixed(asked):
        error = KafkaError(ErrorCode.INVALID_REQUEST, "Topic name and topic ID can not both be specified.")
        return [_Result(*topic, error) for topic in asked]
    lookups = MetadataLookups(controller.state)
    found = [_Asked(_name_of(lookups, topic), topic.topic_id) for topic in asked]
    deleted = {topic.name for topic in found if topic.name is not None and topic.name in permitted.deleted}
    # By id, the name is no answer to who may not see the topic.
    hidden = {
        topic.name
        for topic in found
        if topic.name is not None and topic.topic_id != ZERO_ID and topic.name not in permitted.seen
    }
    errors = delete_topics(controller, deleted - hidden)
    unknown, denied = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID), KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    results = []
    for name, topic_id in found:
        if name is None:
            results.append(_Result(None, topic_id, unknown))
        elif topic_id != ZERO_ID and name in hidden:
            results.append(_Result(None, topic_id, denied))
        else:
            results.append(_Result(name, topic_id, errors.get(name) if name in errors else denied))
    return results


def _when_gone(
    core: ServerCore,
    results: Sequence[_Result],
    deadline: float,
    reply: Callable[[set[str | None]], Reply],
) -> Reply | Future[Reply]:
    """Wait until the topics are deleted; ``reply`` gets the names of topics that are late."""
    names = {result.name for result in results if result.error is None and result.name is not None}
    missing: set[str | None] = {*names}

    def complete(controller: ControllerCore) -> bool:
        missing.difference_update([name for name in missing if name and is_deleted(controller, name)])
        return not missing

    def are_gone(controller: ControllerCore) -> bool:
        return all(is_gone(controller, name) for name in names)

    def deleted() -> Reply | Future[Reply]:
        if missing:
            return reply(missing)
        return core.wait_until(are_gone, min(_GONE_SECONDS, deadline - monotonic()), lambda: reply(missing))

    left = deadline - monotonic()
    if not missing or left <= 0:
        return reply(missing)
    return core.wait_until(complete, left, deleted)
