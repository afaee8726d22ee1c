"""What a Fetch of version 0 to 3 has read, before its records are converted."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ctrlchan.broker.log._reading import FileRange

__all__ = ["Fetched", "FetchedPartition", "OldFetches"]


class FetchedPartition(NamedTuple):
    """One partition. ``records``: whole batches of format 2, None: there are none.

    ``most_bytes``: how large its converted records may be, but for the first batch. ``is_zstd``: the topic
    has compression.type=zstd.
    """

    topic: bytes
    partition: int
    error: int
    high_watermark: int
    fetch_offset: int
    most_bytes: int
    is_zstd: bool
    records: FileRange | None


class Fetched(NamedTuple):
    """All partitions, in the order of the response. ``may_wait``: the time of the request is not over."""

    partitions: list[FetchedPartition]
    is_follower: bool
    may_wait: bool


class OldFetches(Protocol):
    """The Fetch requests that wait for a handler thread (``FetchApi``)."""

    def take(self, connection: int) -> Fetched | None:
        """Return what the request of a connection has read, or None if it has not been read.

        ``connection``: ``RequestContext.connection_id``.
        """

    def count_replicated(self, size: int) -> None:
        """Count the bytes of converted records for a follower."""
