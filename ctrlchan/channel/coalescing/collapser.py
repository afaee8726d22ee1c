"""Takes the bodies from a backlog of UpdateMetadata, and makes the one request that goes in their place.

What has to be kept of the bodies is what the state can no longer say: which partitions they delete.
Every method is called with the channel's lock held.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from ctrlchan._codec import UPDATE_METADATA, UpdateMetadataRequest
from ctrlchan.channel.coalescing.joint import Collapsed, Part
from ctrlchan.channel.coalescing.rewriter import Rewriter
from ctrlchan.channel.request import ControlRequest
from ctrlchan.errors import EncodeError
from ctrlchan.protocol import LEADER_DURING_DELETE

if TYPE_CHECKING:
    from ctrlchan._codec import Int32
    from ctrlchan.channel.config import ChannelConfig
    from ctrlchan.channel.outcome import Sent
    from ctrlchan.channel.queues._entries import RequestQueue
    from ctrlchan.channel.queues.full_state import FullState
    from ctrlchan.channel.queues.shared_memory import SharedMemory

__all__ = ["Collapser"]


#: Topic -> its deleted partitions, ascending.
Deletions: TypeAlias = "dict[bytes, Int32]"


class Collapser(Rewriter):
    """``made``: full states encoded; ``saved``: requests that gave up their bodies for one."""

    def __init__(self, config: ChannelConfig, memory: SharedMemory) -> None:
        super().__init__(config, memory)
        self.made = 0
        self.saved = 0
        #: Queues whose broker could take a full state now.
        self.ready: dict[RequestQueue, None] = {}
        # An entry lives as long as a queue holds its request.
        self._known: WeakValueDictionary[Hashable, ControlRequest] = WeakValueDictionary()

    def run_of(self, waiting: Iterable[Sent]) -> list[Sent]:
        """The neighbours at the front that one state speaks for."""
        run: list[Sent] = []
        for sent in waiting:
            request = sent.request
            if request.full_state is None or request.has_limit or isinstance(sent, Part):
                break
            if run:
                first = run[0].request
                if (
                    request.version != first.version
                    or request.controller_epoch != first.controller_epoch
                    or request.full_state != first.full_state
                ):
                    break
            run.append(sent)
        return run

    def collapse(self, run: Sequence[Sent]) -> Collapsed:
        """An entry without a body in place of these; whoever takes it releases their frames.

        Raises ProtocolError where a body cannot be read.
        """
        found: dict[bytes, list[Int32]] = {}
        for sent in run:
            for topic, partitions in self._deletions_of(sent).items():
                found.setdefault(topic, []).append(partitions)
        deletions = {topic: np.unique(np.concatenate(parts)) for topic, parts in found.items()}
        like = run[-1].request
        assert like.full_state is not None
        placeholder = ControlRequest(
            _NoBody(like.version), like.controller_epoch, full=True, rows=0, full_state=like.full_state
        )
        # Nothing lies in memory of it, and it is merged with nothing.
        placeholder.parts = ()
        placeholder.goes_alone = True
        placeholder.channel = like.channel
        return Collapsed(placeholder, run, deletions)

    def _deletions_of(self, sent: Sent) -> Deletions:
        if isinstance(sent, Collapsed):
            return sent.deletions
        request = sent.request
        if request.facts is not None and not request.facts.deleting:
            return {}
        deletions: dict[bytes, list[Int32]] = {}
        for body in self.bodies_of(request):
            assert isinstance(body, UpdateMetadataRequest)
            rows = np.flatnonzero(body.partitions.leader == LEADER_DURING_DELETE)
            topics = np.searchsorted(body.topic_starts, rows, "right") - 1
            for topic in np.unique(topics).tolist():
                of_topic = body.partitions.partition[rows[topics == topic]]
                deletions.setdefault(body.topics.names[topic] or b"", []).append(of_topic)
        return {topic: np.concatenate(parts) for topic, parts in deletions.items()}

    def make(self, entry: Collapsed, told: FullState, known: Hashable | None) -> ControlRequest:
        """The request that says it all; its frames have no user yet.

        Raises EncodeError, UnsupportedVersionError, DecodeError.
        """
        like = entry.request
        key = (
            entry.source,
            like.version,
            like.controller_epoch,
            known,
            told.state_version,
            entry.fingerprint,
        )
        before = None if told.state_version is None else self._known.get(key)
        if before is not None and all(frame.users for frame in before.frames()):
            return before
        if told.shared_body.api_key != UPDATE_METADATA or told.shared_body.version != like.version:
            raise EncodeError(
                f"a full state of API {told.shared_body.api_key} version {told.shared_body.version}, "
                f"not of UpdateMetadata version {like.version}"
            )
        made = self.joined(self.requests_of(told.shared_body, like), told.shared_body, like)
        made.state_version = told.state_version
        made.knowledge = told.knowledge
        made.full_state = entry.source
        # What waits behind it was not yet said when the state was read.
        made.goes_alone = True
        self.made += 1
        self._known[key] = made
        return made


class _NoBody:
    """Of a request that is not made yet."""

    api_key: Final = UPDATE_METADATA
    size: Final = 0

    def __init__(self, version: int) -> None:
        self.version = version

    def write_into(self, out: bytearray | memoryview, offset: int = 0) -> int:
        raise EncodeError("there is nothing to be sent yet")
