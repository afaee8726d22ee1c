"""Creates topics that a client or the broker needs: ``kafka.server.DefaultAutoTopicCreationManager``."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from time import monotonic_ns
from typing import Final
from weakref import WeakKeyDictionary

from ctrlchan.broker.config.group_config import GroupConfig
from ctrlchan.broker.config.transaction_config import TransactionConfig
from ctrlchan.broker.controller_client import ControllerClient, NewTopic
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.config import table
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ctrlchan.rate_limit import LogRateLimit
from ctrlchan.server.futures import when_done
from ctrlchan.topic_names import why_invalid

__all__ = ["create_missing", "create_topic"]

_LOG: Final = logging.getLogger("ctrlchan.broker")

#: Seconds that a client waits for the controller's answer. Kafka's brokers write to ZooKeeper themselves.
_CLIENT_SECONDS: Final = 5.0

#: Creations under way of each broker, by topic.
_under_way: WeakKeyDictionary[ControllerClient, dict[str, Future[int]]] = WeakKeyDictionary()
_lock: Final = threading.Lock()
#: By error code; guarded by ``_lock``.
_limit: Final = LogRateLimit()


def create_topic(core: StoringCore, name: str) -> Future[int]:
    """Ask the controller for a topic; return NONE when it is created, or the error.

    TOPIC_ALREADY_EXISTS is one. NOT_CONTROLLER: no controller has answered. A topic that is being created is
    not asked for again: the result is that of the first request.
    """
    controller = core.controller
    result: Future[int] = Future()
    if controller is None:
        result.set_result(int(ErrorCode.NOT_CONTROLLER))
        return result
    with _lock:
        of_broker = _under_way.setdefault(controller, {})
        if name in of_broker:
            return of_broker[name]
        of_broker[name] = result
    asked = controller.create_topics([_with_settings(core, name)], timeout=0)

    def answered(done: Future[dict[str, int]]) -> None:
        try:
            error = done.result().get(name, int(ErrorCode.UNKNOWN_SERVER_ERROR))
            if error == ErrorCode.REQUEST_TIMED_OUT:
                # It is created: the controller does not wait for leaders.
                error = int(ErrorCode.NONE)
        except KafkaError:
            error = int(ErrorCode.NOT_CONTROLLER)
        except Exception:  # noqa: BLE001  (who waits for the topic must get an answer)
            _LOG.exception("broker %d: the creation of topic %s failed", core.id, name)
            error = int(ErrorCode.UNKNOWN_SERVER_ERROR)
        with _lock:
            del of_broker[name]
        if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            # A client that needs the topic asks ten times a second, and its answer has no reason.
            with _lock:
                left_out = _limit.admit(error, monotonic_ns())
            if left_out is not None:
                reason = ErrorCode.name_of(error)
                _LOG.warning("broker %d: topic %s is not created: %s%s", core.id, name, reason, left_out)
        result.set_result(error)

    asked.add_done_callback(answered)
    return result


def create_missing(core: StoringCore, names: Sequence[str]) -> Future[dict[str, int]]:
    """Create the topics of a Metadata request; return the error that is answered for each of them.

    A topic that is created, or was just created by another request, has no leader yet. Names that are not
    valid are first, as in Kafka.
    """
    invalid = dict.fromkeys(name for name in names if why_invalid(name))
    asked = {name: create_topic(core, name) for name in names if name not in invalid}
    result: Future[dict[str, int]] = Future()

    def answer(_: object) -> None:
        errors = dict.fromkeys(invalid, int(ErrorCode.INVALID_TOPIC_EXCEPTION))
        errors |= dict.fromkeys(
            (name for name in names if name not in errors), int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        )
        for name, created in asked.items():
            error = created.result() if created.done() else ErrorCode.NOT_CONTROLLER
            if error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                errors[name] = int(ErrorCode.LEADER_NOT_AVAILABLE)
            elif error != ErrorCode.NOT_CONTROLLER:
                errors[name] = error
        result.set_result(errors)

    when_done(asked.values(), _CLIENT_SECONDS).add_done_callback(answer)
    return result


def _with_settings(core: StoringCore, name: str) -> NewTopic:
    """Return the topic with the broker's settings for it."""
    if name == OFFSETS_TOPIC:
        return _offsets_topic(core.groups.config)
    if name == TRANSACTIONS_TOPIC:
        return _transactions_topic(core.transactions.config)
    settings = core.settings.new_topics
    return NewTopic(name, settings.num_partitions, settings.replication_factor)


def _offsets_topic(config: GroupConfig) -> NewTopic:
    """``GroupCoordinatorAdapter.offsetsTopicConfigs``."""
    return NewTopic(
        OFFSETS_TOPIC,
        config.offsets_topic_partitions,
        config.offsets_topic_replication_factor,
        {
            table.CLEANUP_POLICY.name: "compact",
            table.COMPRESSION_TYPE.name: "producer",
            table.SEGMENT_BYTES.name: str(config.offsets_topic_segment_bytes),
        },
    )


def _transactions_topic(config: TransactionConfig) -> NewTopic:
    """``TransactionStateManager.transactionTopicConfigs``."""
    return NewTopic(
        TRANSACTIONS_TOPIC,
        config.topic_partitions,
        config.topic_replication_factor,
        {
            table.UNCLEAN_LEADER_ELECTION_ENABLE.name: "false",
            table.COMPRESSION_TYPE.name: "uncompressed",
            table.CLEANUP_POLICY.name: "compact",
            table.MIN_INSYNC_REPLICAS.name: str(config.topic_min_in_sync_replicas),
            table.SEGMENT_BYTES.name: str(config.topic_segment_bytes),
        },
    )
