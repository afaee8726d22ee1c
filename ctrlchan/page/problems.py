"""Why a request of the page is refused or fails, in plain words and with an HTTP status."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from ctrlchan.errors import CtrlchanError, ErrorCode, KafkaError

__all__ = ["PageError", "page_error", "words_of"]

#: Kafka's authorization errors and OFFSET_OUT_OF_RANGE, which no part of ctrlchan acts on.
_OFFSET_OUT_OF_RANGE: Final = 1
_TOPIC_AUTHORIZATION_FAILED: Final = 29
_GROUP_AUTHORIZATION_FAILED: Final = 30

_NOT_ALLOWED: Final = HTTPStatus.FORBIDDEN, "the cluster does not allow this page to do that"
_LATER: Final = HTTPStatus.SERVICE_UNAVAILABLE
_WRONG: Final = HTTPStatus.BAD_REQUEST

_WORDS: Final[dict[int, tuple[HTTPStatus, str]]] = {
    _OFFSET_OUT_OF_RANGE: (_LATER, "the log has changed meanwhile"),
    ErrorCode.CORRUPT_MESSAGE: (HTTPStatus.BAD_GATEWAY, "a batch of records cannot be read"),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (HTTPStatus.NOT_FOUND, "there is no such topic or partition"),
    ErrorCode.LEADER_NOT_AVAILABLE: (_LATER, "a partition has no leader now"),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: (_LATER, "the leader of a partition is moving"),
    ErrorCode.REQUEST_TIMED_OUT: (HTTPStatus.GATEWAY_TIMEOUT, "the cluster did not answer in time"),
    ErrorCode.BROKER_NOT_AVAILABLE: (_LATER, "the cluster cannot be reached"),
    ErrorCode.GROUP_ID_NOT_FOUND: (HTTPStatus.NOT_FOUND, "there is no such group"),
    ErrorCode.MESSAGE_TOO_LARGE: (_WRONG, "the message is larger than the topic's max.message.bytes"),
    ErrorCode.RECORD_LIST_TOO_LARGE: (_WRONG, "the message is larger than the topic's segment.bytes"),
    ErrorCode.INVALID_TOPIC_EXCEPTION: (_WRONG, "clients may not use a topic of this name"),
    ErrorCode.NOT_ENOUGH_REPLICAS: (_LATER, "fewer replicas are in sync than min.insync.replicas"),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        _LATER,
        "the message is written, but fewer replicas are in sync than min.insync.replicas",
    ),
    _TOPIC_AUTHORIZATION_FAILED: _NOT_ALLOWED,
    _GROUP_AUTHORIZATION_FAILED: _NOT_ALLOWED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _NOT_ALLOWED,
    ErrorCode.UNSUPPORTED_VERSION: (HTTPStatus.BAD_GATEWAY, "the broker does not serve this"),
    ErrorCode.TOPIC_ALREADY_EXISTS: (HTTPStatus.CONFLICT, "there is already a topic of this name"),
    ErrorCode.INVALID_PARTITIONS: (_WRONG, "this number of partitions is not possible"),
    ErrorCode.INVALID_REPLICATION_FACTOR: (_WRONG, "this number of replicas is not possible"),
    ErrorCode.INVALID_CONFIG: (_WRONG, "a config is not valid"),
    ErrorCode.INVALID_RECORD: (_WRONG, "the topic does not take this message: a compacted one needs a key"),
    ErrorCode.TOPIC_DELETION_DISABLED: (_WRONG, "the brokers have delete.topic.enable=false"),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: (_LATER, "the coordinator of groups is still loading"),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: (_LATER, "the coordinator of groups is not available"),
    ErrorCode.NOT_COORDINATOR: (_LATER, "the coordinator of groups is moving"),
    ErrorCode.KAFKA_STORAGE_ERROR: (_LATER, "the broker's log directory has failed"),
}


class PageError(CtrlchanError):
    """A request of the page is refused or fails. ``status``: of the answer; the text is for people."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status

    def __reduce__(self) -> tuple[type[PageError], tuple[HTTPStatus, str]]:
        return PageError, (self.status, str(self))


def page_error(error: KafkaError) -> PageError:
    """Return a Kafka error as an answer of the page."""
    status, _ = _WORDS.get(error.code, (HTTPStatus.BAD_GATEWAY, ""))
    return PageError(status, words_of(error))


def words_of(error: KafkaError) -> str:
    """Return one sentence: what is wrong, what the broker says of it, and Kafka's name of the error."""
    _, words = _WORDS.get(error.code, (None, "the cluster refuses it"))
    name = ErrorCode.name_of(error.code)
    said = error.message if error.message and error.message != name else ""
    return f"{words}{f': {said}' if said else ''} ({name})"
