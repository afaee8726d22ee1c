"""Encodes a request as a frame, or as several frames if it is too large.

First sends, rewritten requests (``coalescing/rewriter.py``) and files of frames (``pipeline/jobs/frames``)
all use this, so they have the same bytes and the same limits.
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
    """A frame that is not written yet; ``before``: the bytes before its shared body."""

    request: ControlRequest
    frame: Frame
    before: bytes


def most_frame_bytes(config: ChannelConfig) -> int:
    """Return the size in bytes of the largest frame that brokers accept, with its size field."""
    return config.max_request_bytes + _SIZE_FIELD


def frames_for(request: ControlRequest, config: ChannelConfig, most_bytes: int) -> list[NewFrame]:
    """Return a frame for the request, or one for each part if it is larger than ``most_bytes``.

    Raises RequestTooLargeError if it cannot be split, EncodeError, UnsupportedVersionError.
    """
    frame, before = new_frame(request, config)
    if request.size <= most_bytes:
        return [NewFrame(request, frame, before)]
    try:
        shared_bodies = split(decode_shared_body(before, request.shared_body), most_bytes - len(before))
    except DecodeError:
        # The body was not made by the codec.
        shared_bodies = None
    if shared_bodies is None:
        raise RequestTooLargeError(f"{request!r} is larger than max_request_bytes and cannot be split")
    parts = [request.part(shared_body) for shared_body in shared_bodies]
    return [NewFrame(part, *new_frame(part, config)) for part in parts]


def write_frame(new: NewFrame, buffer: memoryview | bytearray, offset: int) -> None:
    """Write the frame to ``buffer[offset:]``; its sender fills in correlation id and broker epoch."""
    body = offset + len(new.before)
    buffer[offset:body] = new.before
    new.request.shared_body.write_into(buffer, body)


def place_frame(new: NewFrame, memory: FrameMemory) -> None:
    """Write the frame into memory and set ``request.frame``; the frame has no users.

    Called with the channel's lock held.
    """
    write_frame(new, *memory.make_room(new.frame))
    new.request.frame = new.frame
