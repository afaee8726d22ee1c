"""The whole state in one request, in place of a backlog that has become too long.

Whoever owns a state that UpdateMetadata requests are made of gives each of them a ``FullStateSource``. When
more than ``max_backlog_bytes`` of them wait for one broker their bodies are dropped, and when the broker has
answered all that was sent before, the source is asked once for what there is to be told *then*. Merging
keeps what was said; this says it anew, so a backlog costs no memory however long the broker is away.

The source is called on the channel's thread, as callbacks are and without the channel's lock: it takes its
own to keep the state still, and while that is held the request is encoded. What it waits for, the channel
waits for, so nobody may wait for an outcome while holding that lock.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from ctrlchan._codec import Int32, SharedBody

__all__ = ["FullState", "FullStateSource"]


class FullState(NamedTuple):
    """What there is to be told.

    ``shared_body``: of an UpdateMetadata of the version asked for; it is written before the source is left.
    ``state_version``: equal ones of one source, asked for the same, say the same, so that brokers share the
    bytes; None: never. ``knowledge``: what a broker knows that has acknowledged this, to be given back as
    ``known``; None: nobody is told less than everything.
    """

    shared_body: SharedBody
    state_version: int | None = None
    knowledge: Hashable | None = None


class FullStateSource(Protocol):
    """Equal ones stand for the same state."""

    def __call__(
        self, version: int, known: Hashable | None, deletions: Mapping[bytes, Int32]
    ) -> AbstractContextManager[FullState]:
        """All partitions with leadership and all live brokers, in this version of UpdateMetadata.

        ``known``: the brokers this is for have acknowledged the FullState with this ``knowledge``, and were
        told nothing else since then: what has changed since, removals included, is enough. ``deletions``:
        topic -> partitions (ascending int32) that the backlog told to be deleted; those that the state does
        not tell to be there are to be told with leader -2, behind the other rows of their topic. Whatever is
        raised ends the backlog as REFUSED, with the reason in the outcomes' ``detail``.
        """
        ...
