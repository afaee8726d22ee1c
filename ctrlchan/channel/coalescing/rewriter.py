"""Makes requests from the frames of other requests: base of merging and collapsing, and transcoding.

Every method is called with the channel's lock held, which guards the frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ctrlchan.channel.coalescing.bodies import decode_frame_body
from ctrlchan.channel.coalescing.transcode import transcode
from ctrlchan.channel.encoding import frames_for, most_frame_bytes, place_frame
from ctrlchan.channel.request import ControlRequest

if TYPE_CHECKING:
    from ctrlchan._codec import ControlRequestBody, SharedBody
    from ctrlchan.channel.config import ChannelConfig
    from ctrlchan.channel.queues.shared_memory import Frame, SharedMemory

__all__ = ["Rewriter", "Transcoder"]


class Rewriter:
    """Reads frames and writes new ones. New frames have no users; the queue that takes one adds itself."""

    def __init__(self, config: ChannelConfig, memory: SharedMemory) -> None:
        self._config = config
        self._memory = memory

    def bodies_of(self, request: ControlRequest) -> list[ControlRequestBody]:
        """Return the body of the request, or of each of its parts. Raises DecodeError."""
        return [self._body_of(frame) for frame in request.frames()]

    def _body_of(self, frame: Frame) -> ControlRequestBody:
        if frame.private is not None:
            return decode_frame_body(frame.private)
        return decode_frame_body(self._memory.view[frame.offset : frame.offset + frame.size])

    def requests_of(
        self, shared_body: SharedBody, like: ControlRequest, *, delete_partitions: bool = False
    ) -> list[ControlRequest]:
        """Encode a shared body as a request like ``like``, or as several parts if it is too large.

        Raises EncodeError if it cannot be split.
        """
        request = like.part(shared_body, delete_partitions=delete_partitions)
        most_bytes = min(most_frame_bytes(self._config), self._memory.largest)
        new = frames_for(request, self._config, most_bytes)
        for one in new:
            place_frame(one, self._memory)
        return [one.request for one in new]

    @staticmethod
    def joined(parts: list[ControlRequest], shared_body: SharedBody, like: ControlRequest) -> ControlRequest:
        """Return one request that consists of these parts, in order, with the properties of ``like``."""
        if len(parts) == 1:
            [request] = parts
        else:
            request = ControlRequest(
                shared_body, like.controller_epoch, rows=sum(part.rows for part in parts)
            )
            request.parts = tuple(parts)
            request.size = sum(part.size for part in parts)
        request.full = like.full
        request.state_version = like.state_version
        request.full_state, request.knowledge = like.full_state, like.knowledge
        request.goes_alone, request.has_limit = like.goes_alone, like.has_limit
        request.channel = like.channel
        return request


class Transcoder(Rewriter):
    """Transcodes requests to other versions, once for all brokers that need the same."""

    def __init__(self, config: ChannelConfig, memory: SharedMemory) -> None:
        super().__init__(config, memory)
        # Transcoded requests, kept while a queue has them.
        self._known: WeakValueDictionary[tuple[ControlRequest, int], ControlRequest] = WeakValueDictionary()

    def at_version(self, request: ControlRequest, version: int) -> ControlRequest:
        """Return the request at this version; its frames have no users.

        Raises UnsupportedVersionError, EncodeError, DecodeError.
        """
        key = (request, version)
        known = self._known.get(key)
        if known is not None and all(frame.users for frame in known.frames()):
            return known
        parts: list[ControlRequest] = []
        for body in self.bodies_of(request):
            for shared_body, delete in transcode(body, version):
                parts += self.requests_of(shared_body, request, delete_partitions=delete)
        made = self._known[key] = self.joined(parts, shared_body, request)
        return made
