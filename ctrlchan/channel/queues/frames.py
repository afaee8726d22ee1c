"""Makes frames of requests, and results of responses, with the codec.

A frame is made once for all brokers. The sender writes the correlation id and the broker epoch of its broker
into it. The position of the broker epoch is found here, so senders need no codec.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ctrlchan._codec import (
    UPDATE_METADATA,
    ControlResponse,
    DecodeError,
    decode_response,
    decode_response_header,
    encode_frame_prefix,
    encode_head,
    encode_response_header,
    response_header_version,
)
from ctrlchan.channel.outcome import OutcomeKind, RequestResult, partition_errors_text
from ctrlchan.channel.queues.shared_memory import Frame
from ctrlchan.channel.request import ControlRequest
from ctrlchan.errors import ErrorCode

if TYPE_CHECKING:
    from ctrlchan.channel.config import ChannelConfig

__all__ = ["Prefix", "evaluate_response", "new_frame", "prefix_of"]

_SIZE: Final = Struct(">i")
_NO_CORRELATION: Final = bytes(4)

#: Epochs that differ in every byte: the broker epoch is where two encoded heads differ.
_EPOCH_A: Final = -1
_EPOCH_B: Final = 0


class Prefix(NamedTuple):
    """The bytes before a shared body on the wire, and the response that means success."""

    #: 4 bytes of size (to be filled in), header and head.
    data: bytes
    #: Position of the broker epoch in ``data``; 0 in versions that have none.
    epoch_at: int
    #: The response to expect, without its correlation id; empty: every response must be decoded.
    expect: bytes
    #: The result if the response is ``expect``.
    success: RequestResult | None

    def frame_bytes(self, shared_body_size: int) -> bytes:
        """Return ``data`` with the size of the frame filled in."""
        return _SIZE.pack(len(self.data) - _SIZE.size + shared_body_size) + self.data[_SIZE.size :]


@lru_cache(maxsize=256)
def prefix_of(
    api_key: int,
    version: int,
    controller_id: int,
    controller_epoch: int,
    request_type: int,
    delete_partitions: bool,
    client_id: bytes,
) -> Prefix:
    """Return the prefix of all requests with these properties. Raises UnsupportedVersionError."""
    heads = [
        encode_head(
            api_key,
            version,
            controller_id,
            controller_epoch,
            broker_epoch,
            request_type=request_type,
            delete_partitions=delete_partitions,
        )
        for broker_epoch in (_EPOCH_A, _EPOCH_B)
    ]
    data = encode_frame_prefix(api_key, version, 0, client_id, heads[0], 0)
    differing = [at for at, (a, b) in enumerate(zip(*heads, strict=True)) if a != b]
    epoch_at = len(data) - len(heads[0]) + differing[0] if differing else 0
    if api_key != UPDATE_METADATA:
        # These responses list every partition.
        return Prefix(data, epoch_at, b"", None)
    header = encode_response_header(response_header_version(api_key, version), 0)
    expect = header[4:] + ControlResponse(api_key=api_key, version=version, error_code=0).encode()
    return Prefix(data, epoch_at, expect, _evaluate_once(api_key, version, expect))


def new_frame(request: ControlRequest, config: ChannelConfig) -> tuple[Frame, bytes]:
    """Return a frame for this request and the bytes before its shared body; sets ``request.size``.

    The frame has no memory yet.
    """
    prefix = prefix_of(
        request.api_key,
        request.version,
        config.controller_id,
        request.controller_epoch,
        request.request_type,
        request.delete_partitions,
        config.client_id_bytes,
    )
    before = prefix.frame_bytes(request.shared_body.size)
    size = request.size = len(before) + request.shared_body.size
    frame = Frame(size, len(before), prefix.epoch_at, request.controller_epoch, prefix.expect, prefix.success)
    return frame, before


def evaluate_response(request: ControlRequest, body: bytes) -> RequestResult | None:
    """Return the result that a response means, or None if it cannot be decoded.

    ``body``: the response without its correlation id.
    """
    try:
        if len(body) <= _SMALL_RESPONSE:
            return _evaluate_once(request.api_key, request.version, body)
        return _evaluate(request.api_key, request.version, body)
    except DecodeError:
        return None


#: Equal small responses are decoded once.
_SMALL_RESPONSE: Final = 64


def _evaluate(api_key: int, version: int, body: bytes) -> RequestResult:
    data = _NO_CORRELATION + body
    _, offset, _ = decode_response_header(data, response_header_version(api_key, version))
    response = decode_response(api_key, version, data, offset)
    code = response.error_code
    if code in (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH):
        return RequestResult(OutcomeKind.FENCED, code, response, ErrorCode.name_of(code))
    if code:
        return RequestResult(OutcomeKind.REFUSED, code, response, ErrorCode.name_of(code))
    if response.partition_error.any():
        detail = partition_errors_text(response.partition_error)
        return RequestResult(OutcomeKind.PARTITION_ERRORS, 0, response, detail)
    return RequestResult(OutcomeKind.ACKNOWLEDGED, 0, response)


_evaluate_once = lru_cache(maxsize=512)(_evaluate)
