"""Drops the bodies of a backlog of UpdateMetadata, and makes the full state that is sent in their place.

Of the bodies only the deleted partitions are kept, because the state no longer has them.
Every method is called with the channel's lock held.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from ctrlchan._codec import UPDATE_METADATA, UpdateMetadataRequest
from ctrlchan.channel.coalescing.internal_entries import (
    CollapsedEntry,
    PendingFullState,
    RequestPart,
)
from ctrlchan.channel.coalescing.rewriter import Rewriter
from ctrlchan.errors import EncodeError
from ctrlchan.protocol import LEADER_DURING_DELETE

if TYPE_CHECKING:
    from ctrlchan._codec import Int32
    from ctrlchan.channel.config import ChannelConfig
    from ctrlchan.channel.outcome import Sent
    from ctrlchan.channel.queues._entries import RequestQueue
    from ctrlchan.channel.queues.full_state import FullState
    from ctrlchan.channel.queues.shared_memory import SharedMemory
    from ctrlchan.channel.request import ControlRequest

__all__ = ["Collapser"]


#: Topic -> its deleted partitions, ascending.
Deletions: TypeAlias = "dict[bytes, Int32]"


class Collapser(Rewriter):
    """Makes full states. ``made``: full states encoded; ``saved``: requests that were dropped for one."""

    def __init__(self, config: ChannelConfig, memory: SharedMemory) -> None:
        super().__init__(config, memory)
        self.made = 0
        self.saved = 0
        #: Queues whose first entry waits for a full state, and whose broker has answered everything before.
        self.ready: dict[RequestQueue, None] = {}
        # Full states, kept while a queue has them.
        self._known: WeakValueDictionary[Hashable, ControlRequest] = WeakValueDictionary()

    def run_of(self, waiting: Iterable[Sent]) -> list[Sent]:
        """Return the first entries that one full state can replace."""
        run: list[Sent] = []
        for sent in waiting:
            request = sent.request
            if request.full_state is None or request.has_limit or isinstance(sent, RequestPart):
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

    def collapse(self, run: Sequence[Sent]) -> CollapsedEntry:
        """Return an entry without a body in place of these entries. The caller releases their frames.

        Raises ProtocolError if a body cannot be decoded.
        """
        found: dict[bytes, list[Int32]] = {}
        for sent in run:
            for topic, partitions in self._deletions_of(sent).items():
                found.setdefault(topic, []).append(partitions)
        deletions = {topic: np.unique(np.concatenate(parts)) for topic, parts in found.items()}
        like = run[-1].request
        return CollapsedEntry(PendingFullState(like), run, deletions)

    def _deletions_of(self, sent: Sent) -> Deletions:
        if isinstance(sent, CollapsedEntry):
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

    def make(self, entry: CollapsedEntry, full_state: FullState, known: Hashable | None) -> ControlRequest:
        """Return the request that is sent in place of the entry; its frames have no user yet.

        Raises EncodeError, UnsupportedVersionError, DecodeError.
        """
        like = entry.request
        key = (
            entry.source,
            like.version,
            like.controller_epoch,
            known,
            full_state.state_version,
            entry.fingerprint,
        )
        before = None if full_state.state_version is None else self._known.get(key)
        if before is not None and all(frame.users for frame in before.frames()):
            return before
        shared_body = full_state.shared_body
        if shared_body.api_key != UPDATE_METADATA or shared_body.version != like.version:
            raise EncodeError(
                f"a full state of API {shared_body.api_key} version {shared_body.version}, "
                f"not of UpdateMetadata version {like.version}"
            )
        made = self.joined(self.requests_of(shared_body, like), shared_body, like)
        made.state_version = full_state.state_version
        made.knowledge = full_state.knowledge
        made.full_state = entry.source
        # Requests behind it may be newer than the state that was read, so it is not merged with them.
        made.goes_alone = True
        self.made += 1
        self._known[key] = made
        return made
