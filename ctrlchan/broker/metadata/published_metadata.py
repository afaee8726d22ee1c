"""The metadata of a broker whose other threads read them while a controller's request is applied."""

from __future__ import annotations

from typing import Protocol

from ctrlchan.broker.metadata._snapshot import CurrentMetadata, MetadataSnapshot
from ctrlchan.broker.metadata.metadata_cache import MetadataCache

__all__ = ["KnownAnswers", "PublishedMetadata"]


class KnownAnswers(Protocol):
    """The answers to Metadata that processors repeat (``handlers/_known_metadata.pyx``)."""

    @property
    def key(self) -> int:
        """The API key of Metadata."""

    def add(
        self, snapshot: MetadataSnapshot, version: int, listener: str, request: bytes, body: bytes
    ) -> None:
        """Let the clients of a listener that send this request get this answer while the snapshot is current.

        ``request``: what follows the request header; ``body``: what follows that of the response.
        """


class PublishedMetadata(MetadataCache):
    """A MetadataCache that publishes a MetadataSnapshot after each update.

    Leaders and endpoints are read from ``current``, without a lock. All else is read under ``state.lock``,
    which is held while an UpdateMetadata is applied, and never while logs are opened.
    """

    def __init__(self, cluster_id: str = "", *, forwarding_id: int | None = None) -> None:
        super().__init__(cluster_id, forwarding_id=forwarding_id)
        self.current = CurrentMetadata(self._snapshot(None))

    @property
    def snapshot(self) -> MetadataSnapshot:
        """The current snapshot: for several look-ups that belong together it is taken once."""
        return self.current.snapshot

    def publish(self) -> None:
        """Publish a snapshot of the state for other threads. Requires ``state.lock``."""
        self.current.publish(self._snapshot(self.current.snapshot))

    def _snapshot(self, earlier: MetadataSnapshot | None) -> MetadataSnapshot:
        state = self.state
        return MetadataSnapshot(state.topics, state.partitions, state.live_brokers, earlier)
