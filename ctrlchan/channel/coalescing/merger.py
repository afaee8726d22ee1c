"""Makes merged requests, once for all brokers in whose queues the same requests are neighbours.

Every method is called with the channel's lock held.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ctrlchan._codec import UPDATE_METADATA, UpdateMetadataRequest
from ctrlchan.channel.coalescing.internal_entries import RequestPart
from ctrlchan.channel.coalescing.merge import Facts, facts_of, merge
from ctrlchan.channel.coalescing.rewriter import Rewriter
from ctrlchan.errors import ProtocolError

if TYPE_CHECKING:
    from ctrlchan.channel.config import ChannelConfig
    from ctrlchan.channel.outcome import Sent
    from ctrlchan.channel.queues.shared_memory import SharedMemory
    from ctrlchan.channel.request import ControlRequest

__all__ = ["Merger"]


class Merger(Rewriter):
    """Makes merged requests. ``made``: how many were encoded; ``saved``: requests that were not sent because
    they were merged."""

    def __init__(self, config: ChannelConfig, memory: SharedMemory) -> None:
        super().__init__(config, memory)
        # Merged requests by the requests given to ``join`` (and None if crowded); kept while a queue has
        # them.
        self._known: WeakValueDictionary[tuple[ControlRequest | None, ...], ControlRequest]
        self._known = WeakValueDictionary()
        self.made = 0
        self.saved = 0
        #: Bytes that may wait for one broker before everything is merged that can be.
        self.most_bytes = config.max_backlog_bytes

    @staticmethod
    def run_of(waiting: Iterable[Sent]) -> list[Sent]:
        """Return the first entries whose heads allow that they are merged."""
        run: list[Sent] = []
        for sent in waiting:
            request = sent.request
            if request.api_key != UPDATE_METADATA or request.goes_alone or isinstance(sent, RequestPart):
                break
            if run:
                first = run[0].request
                if request.version != first.version or request.controller_epoch != first.controller_epoch:
                    break
            run.append(sent)
        return run

    def join(self, requests: Sequence[ControlRequest], *, crowded: bool = False) -> ControlRequest | None:
        """Return one request in place of the first of these, or None if fewer than two can be merged.

        Its ``sources`` says how many it replaces; its frames have no user yet. ``crowded``: merge also pairs
        that need two requests (``merge.py``), because memory is short; the broker then does not keep the id
        of a topic without partitions.
        """
        key = (*requests, None) if crowded else tuple(requests)
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
            if not crowded:
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
        """Decode the request and set its ``facts``, to None if it must not be merged."""
        if request.goes_alone:
            return None
        try:
            bodies = self.bodies_of(request)
        except ProtocolError:
            bodies = []
        updates = [body for body in bodies if isinstance(body, UpdateMetadataRequest)]
        if request.facts is None:
            facts = [facts_of(body, merged=request.sources > 1) for body in updates]
            found = [one for one in facts if one is not None]
            if not found or len(found) < len(facts):
                request.goes_alone = True
                return None
            request.facts = Facts(
                frozenset().union(*(one.deleting for one in found)),
                frozenset().union(*(one.condemned for one in found)),
            )
        return updates

    def _make(
        self, requests: Sequence[ControlRequest], bodies: Sequence[UpdateMetadataRequest]
    ) -> ControlRequest | None:
        newest = requests[-1]
        try:
            shared_body = merge(bodies)
            made = self.joined(self.requests_of(shared_body, newest), shared_body, newest)
        except ProtocolError:
            # Together they cannot be encoded: do not try this one again.
            requests[1].goes_alone = True
            return None
        made.sources = len(requests)
        made.full = any(request.full for request in requests)
        if any(request.full_state != newest.full_state for request in requests):
            made.full_state = None
        self.made += 1
        return made
