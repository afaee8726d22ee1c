"""The parts that the three control requests share: the check of epochs, and the order of an answer.

Kafka 3.9 in ZooKeeper mode without migration: ``KafkaApis``, ``ZkBrokerEpochManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ctrlchan._codec import (
    ControlRequestBody,
    ControlResponse,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    StringColumn,
    Topics,
    UpdateMetadataRequest,
    decode_request,
)
from ctrlchan.broker.core import BrokerCore
from ctrlchan.broker.metadata.jvm_order import UInt32, string_hashes
from ctrlchan.errors import ErrorCode, ProtocolError
from ctrlchan.server.api import Reply, Request

if TYPE_CHECKING:
    from ctrlchan._codec import Int32, Int64

__all__ = [
    "UNKNOWN_BROKER_EPOCH",
    "Refused",
    "answer",
    "check_broker_epoch",
    "check_controller_epoch",
    "has_repeated_topic",
    "last_of_each_key",
    "names_in_runs",
    "select_topics",
    "topic_hashes",
]

logger = logging.getLogger("ctrlchan.broker")

UNKNOWN_BROKER_EPOCH = -1  # AbstractControlRequest.UNKNOWN_BROKER_EPOCH

Message = TypeVar("Message", LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest)


class Refused(Exception):
    """The request is refused as a whole: every part of the answer has this error code."""

    def __init__(self, error_code: int, reason: str) -> None:
        super().__init__(reason)
        self.error_code = int(error_code)


def answer(
    core: BrokerCore,
    request: Request,
    kind: type[Message],
    api_key: int,
    apply: Callable[[BrokerCore, Message], ControlResponse],
    refuse: Callable[[Message, int], ControlResponse],
) -> Reply:
    """Decode the body and apply it; `refuse` makes the response of a request that is refused or fails.

    Raises ProtocolError for a body that cannot be decoded.
    """
    message = decode_request(api_key, request.version, request.frame, request.offset)
    assert isinstance(message, kind)
    try:
        response = apply(core, message)
    except Refused as refused:
        logger.info("broker %d refuses %s: %s", core.id, kind.__name__, refused)
        response = refuse(message, refused.error_code)
    except ProtocolError:
        raise
    except Exception:
        # As Kafka answers an exception of its own code: the controller must not wait for ever.
        logger.exception("broker %d failed in %s", core.id, kind.__name__)
        response = refuse(message, ErrorCode.UNKNOWN_SERVER_ERROR)
    return Reply(
        body=response.encode(),
        error_code=response.error_code,
        partition_errors=int(np.count_nonzero(response.partition_error)),
        rows=int(message.topic_starts[-1]),
        sender=(
            f"controller {message.controller_id} epoch {message.controller_epoch}"
            f" broker epoch {message.broker_epoch}"
        ),
    )


def check_broker_epoch(core: BrokerCore, message: ControlRequestBody) -> None:
    """Raise Refused when the request is for an earlier registration of this broker.

    A higher epoch is accepted: the controller may read a registration before the broker does. A KRaft
    controller's epoch belongs to a migration; a Kafka broker that is not configured for one answers with an
    unknown server error.
    """
    if message.broker_epoch == UNKNOWN_BROKER_EPOCH:
        return
    if message.is_kraft_controller:
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "a KRaft controller's broker epoch, but no migration")
    if message.broker_epoch < core.epoch:
        raise Refused(ErrorCode.STALE_BROKER_EPOCH, f"this broker's epoch is {core.epoch}")


def check_controller_epoch(core: BrokerCore, message: ControlRequestBody) -> None:
    """Raise Refused when the request is from a former controller."""
    if message.controller_epoch < core.controller_epoch:
        raise Refused(
            ErrorCode.STALE_CONTROLLER_EPOCH, f"the latest controller epoch is {core.controller_epoch}"
        )


def has_repeated_topic(topics: Topics) -> bool:
    """Return whether two topics have the same name."""
    return len({topics.names[row] for row in range(len(topics))}) < len(topics)


def last_of_each_key(keys: Int64) -> Int64:
    """Return for each element the index of the last one with the same key: its value in a map."""
    backwards, inverse = np.unique(keys[::-1], return_index=True, return_inverse=True)[1:]
    if len(backwards) == len(keys):
        return np.arange(len(keys), dtype=np.int64)
    last = len(keys) - 1 - backwards[inverse]
    return last[::-1].astype(np.int64)


def names_in_runs(topics: Topics, topic_row: Int32) -> tuple[Topics, Int64]:
    """Return (topics, topic_starts) of a response that has entries of ``topics[topic_row]`` in this order."""
    begins = np.ones(len(topic_row), dtype=bool)
    np.not_equal(topic_row[1:], topic_row[:-1], out=begins[1:])
    runs = np.flatnonzero(begins)
    return select_topics(topics, topic_row[runs]), np.append(runs, len(topic_row)).astype(np.int64)


def topic_hashes(topics: Topics) -> UInt32:
    """Return ``String.hashCode`` of each name."""
    return string_hashes([(topics.names[row] or b"").decode() for row in range(len(topics))])


def select_topics(topics: Topics, rows: Int32 | Int64) -> Topics:
    """Return the topics of these rows, in this order."""
    names = topics.names
    return Topics(StringColumn(names.starts[rows], names.lengths[rows], names.data), topics.ids[rows])
