"""Answers requests that a fault hits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Set
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from kio.schema.index import api_key_map

from ctrlchan._codec import decode_request_header, encode_response_header
from ctrlchan.broker.faults import Faults
from ctrlchan.errors import ProtocolError
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.apis.lookups import MetadataLookups
from ctrlchan.server.error_responses import error_response, named_partitions
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["DisconnectError", "FaultyBroker", "answer_of_fault", "hot_answer_of_fault"]

#: ``acks`` of a producer that wants no response: Kafka shows it an error by closing the connection.
_NO_ACKNOWLEDGEMENT: Final = 0
_TEXT: Final = "A fault that a test wants."


T = TypeVar("T")


class FaultyBroker(Protocol):
    """The broker that a request was sent to. ``metadata.state.lock`` guards its metadata."""

    @property
    def faults(self) -> Faults: ...
    @property
    def metadata(self) -> MetadataLookups: ...


class DisconnectError(ProtocolError):
    """A fault closes the connection."""


def answer_of_fault(
    core: FaultyBroker, hot_keys: Set[int], api: Api[Any], request: Request
) -> Reply | Future[None] | Callable[[Reply], Reply | Future[Reply]] | None:
    """Return the answer of a fault, the Future of a delay, or None if no fault hits the request.

    After a delay the request is handled as usual. A function: what the fault makes of the answer, after the
    request was handled. ``hot_keys``: of the APIs that processors answer; these have looked for faults that
    hit the request. Raises DisconnectError, also from the function.
    """
    messages = ClientMessages(api_key_map[api.key], request.version)
    body = messages.decode(request)
    found = core.faults.take(
        api.name, partial(_names, core, body), after=True if api.key in hot_keys else None
    )
    if found is None:
        return None
    fault = found  # as the function below knows it

    def answer(handled: Reply | None) -> Reply | Future[Any]:
        if fault.disconnect or (fault.error and getattr(body, "acks", None) == _NO_ACKNOWLEDGEMENT):
            raise DisconnectError("a fault that a test wants", api=api.name)
        if fault.seconds:
            return _later(fault.seconds, handled)
        return Reply(error_response(messages, body, KioError(fault.error), _TEXT), error_code=fault.error)

    return answer if fault.after else answer(None)


def _later(seconds: float, value: T) -> Future[T]:
    """Return a future that has the value after so many seconds."""
    delay: Future[T] = Future()
    timer = threading.Timer(seconds, delay.set_result, [value])
    timer.daemon = True
    timer.start()
    return delay


def hot_answer_of_fault(
    core: FaultyBroker, apis: Mapping[int, Api[Any]], key: int, version: int, data: bytes
) -> bytes | bool | float | None:
    """Return the response to a request of a processor; True: there is no fault, False: close the connection.

    A float: the seconds of a delay. None: a handler thread answers it, for a fault that hits the answer.
    ``data``: the request with its header. ``apis``: others are left to handler threads.
    """
    api = apis.get(key)
    if api is None:
        return None
    frame = memoryview(data)
    header = decode_request_header(frame, api.request_header_version(version))
    messages = ClientMessages(api_key_map[key], version)
    body = messages.decode_body(frame, header.size)
    names = partial(_names, core, body)
    fault = core.faults.take(api.name, names, after=False)
    if fault is None:
        return None if core.faults.hits_answer(api.name, names) else True
    if fault.seconds:
        return float(fault.seconds)
    if fault.disconnect or getattr(body, "acks", None) == _NO_ACKNOWLEDGEMENT:
        return False
    answer = encode_response_header(api.response_header_version(version), header.correlation_id)
    return answer + error_response(messages, body, KioError(fault.error), _TEXT)


def _names(core: FaultyBroker, body: Any, topic: str, partition: int | None) -> bool:
    """Return whether a request names a topic and a partition (None: any)."""
    for named in named_partitions(body):
        name = named.topic
        if name is None and named.topic_id is not None:
            with core.metadata.state.lock:
                name = core.metadata.topic_name(named.topic_id)
        if name == topic and partition in (None, named.partition):
            return True
    return False
