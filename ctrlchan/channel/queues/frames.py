"""From request to frame, and from response to verdict: all that the channel asks of the codec.

A frame is made once for all brokers. What belongs to a broker is patched by its sender: the correlation id,
and the broker epoch, whose place the codec is asked for here, so that senders need no codec.
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
from ctrlchan.channel.outcome import OutcomeKind, Verdict, partition_errors_text
from ctrlchan.channel.queues.shared_memory import Frame
from ctrlchan.channel.request import ControlRequest
from ctrlchan.errors import ErrorCode

if TYPE_CHECKING:
    from ctrlchan.channel.config import ChannelConfig

__all__ = ["Prefix", "judge", "new_frame", "prefix_of"]

_SIZE: Final = Struct(">i")
_NO_CORRELATION: Final = bytes(4)

#: Epochs whose bytes differ in every place: where the codec's output differs, there it has put the epoch.
_EPOCH_A: Final = -1
_EPOCH_B: Final = 0


class Prefix(NamedTuple):
    """What precedes a shared body on the wire, for any broker."""

    #: 4 bytes of size (to be filled in), header and head.
    data: bytes
    #: Where the broker epoch stands in ``data``; 0 in versions that have none.
    epoch_at: int
    #: The response, after its correlation id, that says success and nothing else; empty: none is so plain.
    expect: bytes
    #: What ``expect`` means.
    success: Verdict | None

    def frame_bytes(self, shared_body_size: int) -> bytes:
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
    return Prefix(data, epoch_at, expect, _judged(api_key, version, expect))


def new_frame(request: ControlRequest, config: ChannelConfig) -> tuple[Frame, bytes]:
    """A frame for this request, nowhere yet, and what precedes the shared body in it; ``request.size`` is
    set."""
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


def judge(request: ControlRequest, body: bytes) -> Verdict | None:
    """What the response says; ``body`` begins after the correlation id. None: it is garbage."""
    try:
        if len(body) <= _SMALL_RESPONSE:
            return _judged(request.api_key, request.version, body)
        return _judge(request.api_key, request.version, body)
    except DecodeError:
        return None


#: Equal small responses are decoded once.
_SMALL_RESPONSE: Final = 64


def _judge(api_key: int, version: int, body: bytes) -> Verdict:
    data = _NO_CORRELATION + body
    _, offset, _ = decode_response_header(data, response_header_version(api_key, version))
    response = decode_response(api_key, version, data, offset)
    code = response.error_code
    if code in (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH):
        return Verdict(OutcomeKind.FENCED, code, response, ErrorCode.name_of(code))
    if code:
        return Verdict(OutcomeKind.REFUSED, code, response, ErrorCode.name_of(code))
    if response.partition_error.any():
        detail = partition_errors_text(response.partition_error)
        return Verdict(OutcomeKind.PARTITION_ERRORS, 0, response, detail)
    return Verdict(OutcomeKind.ACKNOWLEDGED, 0, response)


_judged = lru_cache(maxsize=512)(_judge)
