"""Envelope (58): a client's request that a broker forwards to the controller, with principal and address.

Source: ``kafka.server.ForwardingManager``, ``kafka.server.EnvelopeUtils`` and
``DefaultKafkaPrincipalBuilder`` of Kafka 3.9 (KIP-590).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

from kio.schema.default_principal_data.v0.data import DefaultPrincipalData

from ctrlchan._codec import decode_response_header, encode_request_header
from ctrlchan.errors import DecodeError, ErrorCode, KafkaError
from ctrlchan.peers.messages import decode_answer, encode_request
from ctrlchan.peers.requests import Answer, OutgoingRequest
from ctrlchan.server.kio_entities import decode, encode
from ctrlchan.server.request_context import Principal, RequestContext

__all__ = ["API_KEY", "envelope", "is_taken", "read_address", "read_principal", "unwrapped"]

API_KEY: Final = 58
_API: Final = "envelope"
_PRODUCE: Final = 0
_VERSION: Final = struct.Struct(">h")
_CORRELATION_ID: Final = 0
_PACKED_SIZES: Final = (4, 16)


def is_taken(versions: Mapping[int, tuple[int, int]]) -> bool:
    """Return whether the controller that serves these versions takes an Envelope.

    A JVM broker lists the API and closes the connection of who uses it. What serves Produce is a broker.
    """
    return API_KEY in versions and _PRODUCE not in versions


def envelope(request: OutgoingRequest, client_id: bytes | None, context: RequestContext) -> OutgoingRequest:
    """Return the request with an inner request, which has one version, of a client."""
    version = request.versions[0]
    header = encode_request_header(
        2 if version >= request.flexible_from else 1, request.api_key, version, _CORRELATION_ID, client_id
    )
    address, _, _ = context.client_host.partition("%")
    return OutgoingRequest(
        API_KEY,
        range(1),
        0,
        lambda own: encode_request(
            _API,
            own,
            request_data=header + request.encode(version),
            request_principal=_principal_data(context),
            client_host_address=ip_address(address).packed,
        ),
    )


def unwrapped(request: OutgoingRequest, answer: Answer) -> Answer:
    """Return the answer to the inner request.

    Raises KafkaError with the error of the Envelope, DecodeError.
    """
    body = decode_answer(_API, *answer)
    if body.error_code.value:
        raise KafkaError(body.error_code.value)
    version, data = request.versions[0], body.response_data or b""
    correlation_id, size, _ = decode_response_header(data, int(version >= request.flexible_from))
    if correlation_id != _CORRELATION_ID:
        raise DecodeError(f"an answer to request {correlation_id}", api="ResponseHeader")
    return Answer(version, data[size:])


def _principal_data(context: RequestContext) -> bytes:
    kind, name = context.principal
    data: Any = DefaultPrincipalData(type_=kind, name=name, token_authenticated=context.by_token)
    return _VERSION.pack(0) + encode(data)


def read_principal(data: bytes | None) -> tuple[Principal, bool]:
    """Return the principal of an Envelope, and whether he has a delegation token. Raises KafkaError."""
    try:
        if data is None or _VERSION.unpack_from(data) != (0,):
            raise DecodeError("no principal of version 0", api="DefaultPrincipalData")
        principal = decode(DefaultPrincipalData, data, _VERSION.size)
    except (DecodeError, struct.error) as error:
        raise KafkaError(
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
            "Failed to deserialize client principal from envelope",
        ) from error
    return Principal(principal.type_, principal.name), principal.token_authenticated


def read_address(data: bytes) -> str:
    """Return the client's address of an Envelope. Raises KafkaError."""
    if len(data) not in _PACKED_SIZES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Failed to parse client address from envelope")
    address = ip_address(bytes(data))
    # As Java's InetAddress, which takes a mapped address for one of IPv4.
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
