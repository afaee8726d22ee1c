"""Answers requests that a fault hits."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Final, Protocol

from kio.schema.index import api_key_map

from ctrlchan._codec import decode_request_header, encode_response_header
from ctrlchan.broker.faults import Fault, Faults
from ctrlchan.errors import ProtocolError
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.apis.lookups import MetadataLookups
from ctrlchan.server.error_responses import error_response, named_partitions
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["DisconnectError", "FaultyBroker", "answer_of_fault", "hot_answer_of_fault"]

#: ``acks`` of a producer that wants no response: Kafka shows it an error by closing the connection.
_NO_ACKNOWLEDGEMENT: Final = 0
_TEXT: Final = "A fault that a test wants."


class FaultyBroker(Protocol):
    """The broker that a request was sent to. ``metadata.state.lock`` guards its metadata."""

    @property
    def faults(self) -> Faults: ...
    @property
    def metadata(self) -> MetadataLookups: ...


class DisconnectError(ProtocolError):
    """A fault closes the connection."""


def answer_of_fault(core: FaultyBroker, api: Api[Any], request: Request) -> Reply | Future[None] | None:
    """Return the answer of a fault, the Future of a delay, or None if no fault hits the request.

    After a delay the request is handled as usual. Raises DisconnectError.
    """
    messages = ClientMessages(api_key_map[api.key], request.version)
    body = messages.decode(request)
    fault = _fault(core, api, body)
    if fault is None:
        return None
    if fault.disconnect or (fault.error and getattr(body, "acks", None) == _NO_ACKNOWLEDGEMENT):
        raise DisconnectError("a fault that a test wants", api=api.name)
    if fault.seconds:
        delay: Future[None] = Future()
        timer = threading.Timer(fault.seconds, delay.set_result, [None])
        timer.daemon = True
        timer.start()
        return delay
    return Reply(error_response(messages, body, KioError(fault.error), _TEXT), error_code=fault.error)


def hot_answer_of_fault(
    core: FaultyBroker, apis: Mapping[int, Api[Any]], key: int, version: int, data: bytes
) -> bytes | bool | float:
    """Return the response to a request of a processor; True: there is no fault, False: close the connection.

    A float: the seconds of a delay. ``data``: the request with its header.
    """
    api = apis[key]
    frame = memoryview(data)
    header = decode_request_header(frame, api.request_header_version(version))
    messages = ClientMessages(api_key_map[key], version)
    body = messages.decode_body(frame, header.size)
    fault = _fault(core, api, body)
    if fault is None:
        return True
    if fault.seconds:
        return float(fault.seconds)
    if fault.disconnect or getattr(body, "acks", None) == _NO_ACKNOWLEDGEMENT:
        return False
    answer = encode_response_header(api.response_header_version(version), header.correlation_id)
    return answer + error_response(messages, body, KioError(fault.error), _TEXT)


def _fault(core: FaultyBroker, api: Api[Any], body: Any) -> Fault | None:
    """Return the fault that hits a request, if there is one."""

    def names(topic: str, partition: int | None) -> bool:
        for named in named_partitions(body):
            name = named.topic
            if name is None and named.topic_id is not None:
                with core.metadata.state.lock:
                    name = core.metadata.topic_name(named.topic_id)
            if name == topic and partition in (None, named.partition):
                return True
        return False

    return core.faults.take(api.name, names)
