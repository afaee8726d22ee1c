"""Requests made of other requests, for the queues: merged (``merger``), or at another version.

Every method is called with the channel's lock held: what is read lies in the memory that the lock guards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ctrlchan.channel.coalescing.bodies import decode_frame_body, decode_shared_body
from ctrlchan.channel.coalescing.split import split
from ctrlchan.channel.coalescing.transcode import transcode
from ctrlchan.channel.queues.frames import new_frame
from ctrlchan.channel.request import ControlRequest
from ctrlchan.errors import EncodeError

if TYPE_CHECKING:
    from ctrlchan._codec import ControlRequestBody, SharedBody
    from ctrlchan.channel.config import ChannelConfig
    from ctrlchan.channel.queues.shared_memory import Frame, SharedMemory

__all__ = ["Rewriter", "Transcoder"]


class Rewriter:
    """Reads frames and writes new ones. Those have no user yet: whoever takes them adds himself."""

    def __init__(self, config: ChannelConfig, memory: SharedMemory) -> None:
        self._config = config
        self._memory = memory

    def bodies_of(self, request: ControlRequest) -> list[ControlRequestBody]:
        """One body, or that of each part. Raises DecodeError."""
        return [self._body_of(frame) for frame in request.frames()]

    def _body_of(self, frame: Frame) -> ControlRequestBody:
        if frame.private is not None:
            return decode_frame_body(frame.private)
        return decode_frame_body(self._memory.view[frame.offset : frame.offset + frame.size])

    def requests_of(
        self, shared_body: SharedBody, like: ControlRequest, *, delete_partitions: bool = False
    ) -> list[ControlRequest]:
        """Requests of this shared body, of the former one's kind, encoded: more than one where one is too
        large.

        Raises EncodeError when there is no way to split it.
        """
        request = self._like(like, shared_body, delete_partitions)
        frame, before = new_frame(request, self._config)
        limit = min(self._config.max_request_bytes + 4, self._memory.largest)
        if request.size <= limit:
            self._write(request, frame, before)
            return [request]
        shared_bodies = split(decode_shared_body(before, shared_body), limit - len(before))
        if shared_bodies is None:
            raise EncodeError("larger than max_request_bytes")
        parts = [self._like(like, part, delete_partitions) for part in shared_bodies]
        for part in parts:
            self._write(part, *new_frame(part, self._config))
        return parts

    @staticmethod
    def joined(parts: list[ControlRequest], shared_body: SharedBody, like: ControlRequest) -> ControlRequest:
        """One request for all of these, in the order in which they go."""
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

    @staticmethod
    def _like(like: ControlRequest, shared_body: SharedBody, delete_partitions: bool) -> ControlRequest:
        return ControlRequest(
            shared_body,
            like.controller_epoch,
            request_type=like.request_type,
            delete_partitions=delete_partitions,
            rows=shared_body.rows,
        )

    def _write(self, request: ControlRequest, frame: Frame, before: bytes) -> None:
        buffer, offset = self._memory.make_room(frame, 0)
        try:
            buffer[offset : offset + len(before)] = before
            request.shared_body.write_into(buffer, offset + len(before))
        except BaseException:
            self._memory.free(frame)
            raise
        request.frame = frame


class Transcoder(Rewriter):
    """Makes requests at other versions, once for all brokers that need the same."""

    def __init__(self, config: ChannelConfig, memory: SharedMemory) -> None:
        super().__init__(config, memory)
        # An entry lives as long as a queue holds its request.
        self._known: WeakValueDictionary[tuple[ControlRequest, int], ControlRequest] = WeakValueDictionary()

    def at_version(self, request: ControlRequest, version: int) -> ControlRequest:
        """The same request at this version, its frames without users.

        Raises UnsupportedVersionError, EncodeError, DecodeError.
        """
        key = (request, version)
        known = self._known.get(key)
        if known is not None and all(frame.users for frame in known.frames()):
            return known
        parts: list[ControlRequest] = []
        try:
            for body in self.bodies_of(request):
                for shared_body, delete in transcode(body, version):
                    parts += self.requests_of(shared_body, request, delete_partitions=delete)
        except BaseException:
            for part in parts:
                for frame in part.frames():
                    self._memory.free(frame)
            raise
        made = self._known[key] = self.joined(parts, shared_body, request)
        return made
