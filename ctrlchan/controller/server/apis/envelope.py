"""Envelope (58): a broker forwards a client's request, which is authorized and answered as the client's.

Only brokers send it, on their listener: who sends it elsewhere loses the connection.
``KafkaApis.handleEnvelope`` and ``EnvelopeUtils`` of Kafka 3.9; KIP-590.
"""

from __future__ import annotations

import dataclasses
import logging
import struct
from concurrent.futures import Future
from typing import Final

from kio.schema.index import api_key_map

from ctrlchan.authorizer.acls import Operation
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.errors import ErrorCode, KafkaError, ProtocolError
from ctrlchan.peers import envelope
from ctrlchan.peers.messages import says_not_controller
from ctrlchan.server.access import CLUSTER_ACTION_CLUSTER, asks
from ctrlchan.server.api import Api, Buffers, CannotAnswer, Reply, Request
from ctrlchan.server.api_names import api_name
from ctrlchan.server.futures import then
from ctrlchan.server.kio_messages import ClientMessages, KioError
from ctrlchan.server.request_context import RequestContext

__all__ = ["API"]

_LOG: Final = logging.getLogger("ctrlchan.controller")

#: ``ApiKeys.forwardable`` of Kafka 3.9.
_FORWARDABLE: Final = frozenset(
    {19, 20, 30, 31, 33, 37, 38, 39, 40, 43, 44, 45, 46, 49, 51, 55, 57, 64, 67, 80, 81}
)
_KEY_AND_VERSION: Final = struct.Struct(">hh")


def _handle(core: ServerCore, request: Request) -> Reply | Future[Reply]:
    messages = ClientMessages("envelope", request.version)
    body = messages.decode(request)

    def reply(error: int, data: bytes | None = None) -> Reply:
        return Reply(messages.response(response_data=data, error_code=KioError(error)), error_code=error)

    if not request.access.allows_cluster(Operation.CLUSTER_ACTION):
        return reply(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not core.is_active:
        return reply(ErrorCode.NOT_CONTROLLER)
    try:
        principal, by_token = envelope.read_principal(body.request_principal)
        context = dataclasses.replace(
            request.context,
            principal=principal,
            by_token=by_token,
            client_host=envelope.read_address(body.client_host_address),
            is_forwarded=True,
        )
        frame = memoryview(body.request_data)
        key, version = _head_of(frame)
    except KafkaError as error:
        return reply(error.code)

    def answered(answer: Buffers | ProtocolError) -> Reply:
        if isinstance(answer, CannotAnswer):
            return reply(ErrorCode.NOT_CONTROLLER)
        if isinstance(answer, ProtocolError):
            # The inner request cannot be read, unlike the Envelope.
            return reply(ErrorCode.UNSUPPORTED_VERSION)
        data = b"".join(answer)
        if says_not_controller(key, version, data[len(answer[0]) :]):
            # The broker looks for the controller again.
            return reply(ErrorCode.NOT_CONTROLLER)
        return reply(ErrorCode.NONE, data)

    return then(_served(core, frame, context), answered)


API: Api[ServerCore] = Api(
    key=envelope.API_KEY,
    name="Envelope",
    lowest=0,
    highest=0,
    flexible_from=0,
    handle=_handle,
    only_of_brokers=True,
    needs=asks(CLUSTER_ACTION_CLUSTER),
)


def _head_of(frame: memoryview) -> tuple[int, int]:
    """Return API key and version of an inner request. Raises KafkaError unless it may be forwarded."""
    if len(frame) < _KEY_AND_VERSION.size:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Failed to parse request header from envelope")
    key, version = _KEY_AND_VERSION.unpack_from(frame)
    if key not in api_key_map:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there is no API {key}")
    if key not in _FORWARDABLE:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"API {api_name(key)} is not enabled or is not eligible for forwarding"
        )
    return key, version


def _served(core: ServerCore, frame: memoryview, context: RequestContext) -> Future[Buffers | ProtocolError]:
    """Return the answer to an inner request, or why there is none."""
    served: Future[Buffers | ProtocolError] = Future()

    def ended(answer: Future[Buffers]) -> None:
        try:
            served.set_result(answer.result())
        except ProtocolError as error:
            _LOG.info("no answer to a forwarded request of %s: %s", context, error)
            served.set_result(error)
        except BaseException as error:  # noqa: BLE001  (the connection is closed)
            served.set_exception(error)

    begun: Future[None] = Future()
    begun.set_result(None)
    then(begun, lambda _: core.serve(frame, context)).add_done_callback(ended)
    return served
