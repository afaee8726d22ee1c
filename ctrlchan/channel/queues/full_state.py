"""Full states: one UpdateMetadata with everything, in place of a backlog that has become too long.

The owner of a state gives each UpdateMetadata that is made of it a ``FullStateSource``. When more than
``max_backlog_bytes`` of these requests wait for one broker, the channel drops their bodies. When the broker
has answered all earlier requests, the channel asks the source for the state as it is then. So a backlog needs
no memory, however long the broker is away.

The source is called on the channel's thread, like callbacks, and without the channel's lock. It takes its own
lock, so that the state does not change while the request is encoded. The channel waits for the source, so
nobody may wait for an outcome while holding that lock.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from ctrlchan._codec import Int32, SharedBody

__all__ = ["FullState", "FullStateSource"]


class FullState(NamedTuple):
    """A full state, as its source returns it.

    ``shared_body``: of an UpdateMetadata of the requested version; it is encoded before the source's context
    is left. ``state_version``: version of the state; brokers share the bytes if source, arguments and
    ``state_version`` are equal. None: they never share them. ``knowledge``: identifies the metadata of a
    broker that has acknowledged this full state; the channel gives it back as ``known``. None: the next full
    state for the broker must have everything.
    """

    shared_body: SharedBody
    state_version: int | None = None
    knowledge: Hashable | None = None


class FullStateSource(Protocol):
    """Returns full states. Two sources are equal if they return the same state."""

    def __call__(
        self, version: int, known: Hashable | None, deletions: Mapping[bytes, Int32]
    ) -> AbstractContextManager[FullState]:
        """Return all partitions with leadership and all live brokers, in this version of UpdateMetadata.

        ``known``: the brokers have acknowledged the FullState with this ``knowledge``, and were sent no other
        UpdateMetadata since. So the changes since then are enough, removals included. None: everything is
        necessary. ``deletions``: topic -> partitions (ascending int32) that the backlog deletes. Those that
        the state does not have must be in the request with leader -2, behind the other rows of their topic.
        An exception ends the backlog as REFUSED; its text is in the outcomes' ``detail``.
        """
        ...
