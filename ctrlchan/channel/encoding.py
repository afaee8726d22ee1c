"""From a request to the frames that carry it: one, or several where it is too large.

First sends, rewritten requests (``coalescing/rewriter.py``) and files of frames (``pipeline``) all begin
here, so that they have the same bytes and the same limits.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ctrlchan.channel.coalescing.bodies import decode_shared_body
from ctrlchan.channel.coalescing.split import split
from ctrlchan.channel.config import ChannelConfig
from ctrlchan.channel.queues._frames import Frame, FrameMemory
from ctrlchan.channel.queues.frames import new_frame
from ctrlchan.channel.request import ControlRequest
from ctrlchan.errors import DecodeError, EncodeError

__all__ = ["NewFrame", "RequestTooLargeError", "frames_for", "most_frame_bytes", "place_frame", "write_frame"]

#: The size field in front of a frame does not count itself.
_SIZE_FIELD: Final = 4


class RequestTooLargeError(EncodeError):
    """A request that cannot be split is larger than ``max_request_bytes``."""


class NewFrame(NamedTuple):
    """A frame that is not yet written, and what precedes the shared body in it."""

    request: ControlRequest
    frame: Frame
    before: bytes


def most_frame_bytes(config: ChannelConfig) -> int:
    """Return the size of the largest frame that brokers take, its size field included."""
    return config.max_request_bytes + _SIZE_FIELD


def frames_for(request: ControlRequest, config: ChannelConfig, most_bytes: int) -> list[NewFrame]:
    """Return a frame for the request, or one for each part of it where it is larger than ``most_bytes``.

    Raises RequestTooLargeError where it cannot be split, EncodeError, UnsupportedVersionError.
    """
    frame, before = new_frame(request, config)
    if request.size <= most_bytes:
        return [NewFrame(request, frame, before)]
    try:
        shared_bodies = split(decode_shared_body(before, request.shared_body), most_bytes - len(before))
    except DecodeError:
        # A body that is not the codec's own.
        shared_bodies = None
    if shared_bodies is None:
        raise RequestTooLargeError(f"{request!r} is larger than max_request_bytes and cannot be split")
    parts = [request.part(shared_body) for shared_body in shared_bodies]
    return [NewFrame(part, *new_frame(part, config)) for part in parts]


def write_frame(new: NewFrame, buffer: memoryview | bytearray, offset: int) -> None:
    """Write the frame at ``buffer[offset:]``, with room for correlation id and broker epoch."""
    body = offset + len(new.before)
    buffer[offset:body] = new.before
    new.request.shared_body.write_into(buffer, body)


def place_frame(new: NewFrame, memory: FrameMemory) -> None:
    """Write the frame into memory, without users; ``request.frame`` is set. With the channel's lock held."""
    write_frame(new, *memory.make_room(new.frame))
    new.request.frame = new.frame
