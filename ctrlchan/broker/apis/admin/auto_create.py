"""Creates topics that a client or the broker needs: ``kafka.server.DefaultAutoTopicCreationManager``."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from time import monotonic_ns
from typing import Final
from weakref import WeakKeyDictionary

from ctrlchan.broker.controller.client import ControllerClient, NewTopic
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.rate_limit import LogRateLimit
from ctrlchan.topic_names import why_invalid

__all__ = ["create_missing", "create_topic"]

_LOG: Final = logging.getLogger("ctrlchan.broker")

#: Creations under way of each broker, by topic.
_under_way: WeakKeyDictionary[ControllerClient, dict[str, Future[int]]] = WeakKeyDictionary()
_lock: Final = threading.Lock()
#: By error code; guarded by ``_lock``.
_limit: Final = LogRateLimit()


def create_topic(
    core: StoringCore, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
) -> Future[int]:
    """Ask the controller for a topic; return the error code of its answer.

    A topic that is being created is not asked for again: the result is that of the first request.
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
    asked = controller.create_topics([NewTopic(name, partitions, replication_factor, configs)])

    def answered(done: Future[dict[str, int]]) -> None:
        try:
            code = done.result().get(name, int(ErrorCode.UNKNOWN_SERVER_ERROR))
        except KafkaError as error:
            code = error.code
        except Exception:  # noqa: BLE001  (who waits for the topic must get an answer)
            _LOG.exception("broker %d: the creation of topic %s failed", core.id, name)
            code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
        with _lock:
            del of_broker[name]
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            # A client that needs the topic asks ten times a second, and its answer has no reason.
            with _lock:
                left_out = _limit.admit(code, monotonic_ns())
            if left_out is not None:
                reason = ErrorCode.name_of(code)
                _LOG.warning("broker %d: topic %s is not created: %s%s", core.id, name, reason, left_out)
        result.set_result(code)

    asked.add_done_callback(answered)
    return result


def create_missing(core: StoringCore, names: Iterable[str]) -> None:
    """Ask for topics with the broker's defaults, unless their names are not valid."""
    for name in names:
        if why_invalid(name) is None:
            create_topic(
                core,
                name,
                int(core.setting("num.partitions")),
                int(core.setting("default.replication.factor")),
                {},
            )
