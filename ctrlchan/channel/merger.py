"""Makes merged requests, once for all brokers whose queues hold the same neighbours.

Every method is called with the channel's lock held.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ctrlchan._codec import UPDATE_METADATA, UpdateMetadataRequest
from ctrlchan.channel.bodies import body_of_frame, body_of_tail
from ctrlchan.channel.frames import new_frame
from ctrlchan.channel.joint import Part
from ctrlchan.channel.merge import Facts, facts_of, merge
from ctrlchan.channel.request import ControlRequest
from ctrlchan.channel.split import split
from ctrlchan.errors import ProtocolError

if TYPE_CHECKING:
    from ctrlchan._codec import Tail
    from ctrlchan.channel.config import ChannelConfig
    from ctrlchan.channel.outcome import Sent
    from ctrlchan.channel.tails import Frame, SharedMemory

__all__ = ["Merger"]


class Merger:
    """``made``: merged requests encoded; ``saved``: requests that brokers were not sent because of them."""

    def __init__(self, config: ChannelConfig, memory: SharedMemory) -> None:
        self._config = config
        self._memory = memory
        # By the requests that were offered; an entry lives as long as a queue holds its request.
        self._known: WeakValueDictionary[tuple[ControlRequest, ...], ControlRequest] = WeakValueDictionary()
        self.made = 0
        self.saved = 0

    @staticmethod
    def run_of(waiting: Iterable[Sent]) -> list[Sent]:
        """The neighbours at the front that may be merged as far as their heads tell."""
        run: list[Sent] = []
        for sent in waiting:
            request = sent.request
            if request.api_key != UPDATE_METADATA or request.goes_alone or isinstance(sent, Part):
                break
            if run:
                first = run[0].request
                if request.version != first.version or request.controller_epoch != first.controller_epoch:
                    break
            run.append(sent)
        return run

    def join(self, requests: Sequence[ControlRequest]) -> ControlRequest | None:
        """One request for the first of these, as many (``sources``) as may be merged. None: not even two.

        Its frames have no user yet.
        """
        key = tuple(requests)
        known = self._known.get(key)
        if known is not None and all(frame.users for frame in known.frames()):
            return known
        bodies: list[UpdateMetadataRequest] = []
        deleted: frozenset[bytes] = frozenset()
        sources = 0
        for request in requests:
            if request.facts is not None and request.facts.condemned & deleted:
                break
            found = self._read(request)
            if found is None or request.facts is None or request.facts.condemned & deleted:
                break
            deleted |= request.facts.deleting
            bodies += found
            sources += 1
        if sources < 2:
            return None
        made = self._make(requests[:sources], bodies)
        if made is not None:
            self._known[key] = made
        return made

    def _read(self, request: ControlRequest) -> list[UpdateMetadataRequest] | None:
        """The request's bodies, its facts being found out. None: it goes alone."""
        if request.goes_alone:
            return None
        try:
            bodies = [self._read_frame(frame) for frame in request.frames()]
        except ProtocolError:
            bodies = []
        if request.facts is None:
            facts = [facts_of(body, merged=request.sources > 1) for body in bodies]
            told = [one for one in facts if one is not None]
            if not told or len(told) < len(facts):
                request.goes_alone = True
                return None
            request.facts = Facts(
                frozenset().union(*(one.deleting for one in told)),
                frozenset().union(*(one.condemned for one in told)),
            )
        return bodies

    def _read_frame(self, frame: Frame) -> UpdateMetadataRequest:
        if frame.private is not None:
            body = body_of_frame(frame.private)
        else:
            body = body_of_frame(self._memory.view[frame.offset : frame.offset + frame.size])
        assert isinstance(body, UpdateMetadataRequest)
        return body

    def _make(
        self, requests: Sequence[ControlRequest], bodies: Sequence[UpdateMetadataRequest]
    ) -> ControlRequest | None:
        newest = requests[-1]
        made = None
        try:
            made = self._request(merge(bodies), newest)
        except ProtocolError:
            made = None
        if made is None:
            # Together they cannot be put on the wire: never try this one again.
            requests[1].goes_alone = True
            return None
        made.sources = len(requests)
        made.full = any(request.full for request in requests)
        self.made += 1
        return made

    def _request(self, tail: Tail, like: ControlRequest) -> ControlRequest | None:
        """A request of this tail, encoded, in parts where it must be. None: not even in parts."""
        request = ControlRequest(
            tail, like.controller_epoch, rows=tail.rows, state_version=like.state_version
        )
        request.channel = like.channel
        frame, before = new_frame(request, self._config)
        limit = min(self._config.max_request_bytes + 4, self._memory.largest)
        if request.size <= limit:
            self._write(request, frame, before)
            return request
        tails = split(body_of_tail(before, tail), limit - len(before))
        if tails is None:
            return None
        request.parts = tuple(ControlRequest(part, like.controller_epoch, rows=part.rows) for part in tails)
        for part in request.parts:
            self._write(part, *new_frame(part, self._config))
        request.size = sum(part.size for part in request.parts)
        return request

    def _write(self, request: ControlRequest, frame: Frame, before: bytes) -> None:
        buffer, offset = self._memory.make_room(frame, 0)
        buffer[offset : offset + len(before)] = before
        request.tail.write_into(buffer, offset + len(before))
        request.frame = frame
