"""Offline replicas, for all rows at once.

Kafka (``ControllerContext.isReplicaOnline``): a replica is online when its broker is live, is not shutting
down and has not reported the replica's log directory as failed. The state keeps no separate record of failed
directories: a replica that is offline while its broker is online is in a failed one. As in Kafka, failed
directories are forgotten when the broker stops or restarts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import Brokers, ListColumn
from ctrlchan.state.lists import entry_rows, packed_values, select

__all__ = ["offline_lists", "online_ids", "with_failed_dirs"]

Bool = npt.NDArray[np.bool_]
Int32 = npt.NDArray[np.int32]


def online_ids(brokers: Brokers, shutting_down: frozenset[int]) -> Int32:
    """Return the ids of the live brokers that are not shutting down."""
    return brokers.ids[~np.isin(brokers.ids, np.array(sorted(shutting_down), dtype=np.int32))]


def offline_lists(replicas: ListColumn, offline: ListColumn, kept_online: Int32, online: Int32) -> ListColumn:
    """Return the offline replicas of each row, in the order of ``replicas``.

    ``offline``: the offline replicas before. ``kept_online``: brokers that were online before and have not
    restarted, so that their failed directories are still failed. ``online``: brokers that are online now.
    """
    return select(replicas, _offline_entries(replicas, offline, kept_online, online))


def with_failed_dirs(
    replicas: ListColumn, offline: ListColumn, online: Int32, broker_id: int, failed: Bool
) -> ListColumn:
    """Return the offline replicas when this broker has failed directories.

    ``failed``: flags of the rows whose replica on the broker is in one of them. The failed directories of
    other brokers stay.
    """
    others = online[online != broker_id]
    flags = _offline_entries(replicas, offline, others, online)
    flags |= (packed_values(replicas) == broker_id) & failed[entry_rows(replicas)]
    return select(replicas, flags)


def _offline_entries(replicas: ListColumn, offline: ListColumn, kept_online: Int32, online: Int32) -> Bool:
    """Return a flag for each element of ``packed_values(replicas)``: whether it is offline."""
    brokers = packed_values(replicas)
    flags: Bool = ~np.isin(brokers, online)
    if offline.lengths.any():
        rows = entry_rows(replicas)
        may_stay = np.flatnonzero((offline.lengths > 0)[rows] & ~flags & np.isin(brokers, kept_online))
        listed = np.sort(_keys(entry_rows(offline), packed_values(offline)))
        wanted = _keys(rows[may_stay], brokers[may_stay])
        at = np.minimum(np.searchsorted(listed, wanted), len(listed) - 1)
        flags[may_stay[listed[at] == wanted]] = True
    return flags


def _keys(rows: npt.NDArray[np.int64], brokers: Int32) -> npt.NDArray[np.int64]:
    return (rows << 32) + brokers
