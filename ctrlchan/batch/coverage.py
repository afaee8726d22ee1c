"""Coverage of a request: the metadata that a broker has once it acknowledges it, as the journal stores it.

Computed only for a channel that keeps a journal, once for each request, however many brokers it goes to. A
few partitions are named. More of them are a range of versions: a request that contains everything that
changed after some version brings every broker up to date that knew that version.
"""

from __future__ import annotations

from typing import Final

from ctrlchan._codec import Topics
from ctrlchan.batch.known_metadata import EVERYTHING, MissingMetadata
from ctrlchan.batch.selection import Int32, Int64
from ctrlchan.channel.request import Coverage
from ctrlchan.state import NO_LEADERSHIP, ClusterState

__all__ = ["coverage_of_missing", "coverage_of_partitions", "coverage_of_rows"]

#: More partitions than these are not named: each name costs a third of a microsecond, and space on disk.
_MOST_NAMED: Final = 64
#: Besides a range of versions, in a request that is large anyway.
_MOST_NAMED_BESIDES: Final = 1_024


def coverage_of_rows(state: ClusterState, rows: Int64 | None) -> Coverage:
    """Return the coverage of an UpdateMetadata of these ascending rows with leadership, or of all of them."""
    changes = state.changes
    if rows is None:
        return Coverage(changes.id, EVERYTHING, None)
    if len(rows) <= _MOST_NAMED:
        partitions = state.partitions
        named = _names(state.topics, partitions.topic_row[rows], partitions.partition[rows])
        return Coverage(changes.id, None, named)
    return _of_many(state, rows)


def coverage_of_missing(state: ClusterState, missing: MissingMetadata) -> Coverage:
    """Return that of an UpdateMetadata of all that a broker is missing."""
    partitions, rows = missing.partitions, missing.rows
    named = None
    if (len(partitions) if rows is None else len(rows)) <= _MOST_NAMED:
        every = slice(None) if rows is None else rows
        named = _names(missing.topics, partitions.topic_row[every], partitions.partition[every])
    if missing.from_version is not None or named is not None or rows is None:
        return Coverage(state.changes.id, missing.from_version, named)
    return _of_many(state, rows)


def coverage_of_partitions(state: ClusterState, topic_row: Int32, partition: Int32) -> Coverage:
    """Return that of a LeaderAndIsr or a StopReplica, which bring no broker's metadata up to date."""
    named = _names(state.topics, topic_row, partition) if len(partition) <= _MOST_NAMED else None
    return Coverage(state.changes.id, None, named)


def _of_many(state: ClusterState, rows: Int64) -> Coverage:
    """Return the lowest version after which only these rows changed, and the names of the other rows."""
    changes, partitions = state.changes, state.partitions
    left_out = partitions.leader_epoch != NO_LEADERSHIP
    left_out[rows] = False
    others = changes.rows[left_out]
    first = int(others.max()) if len(others) else EVERYTHING
    before = rows[changes.rows[rows] <= first]
    if len(before) > _MOST_NAMED_BESIDES:
        # A range alone would leave partitions out without a sign of it.
        return Coverage(changes.id, None, None)
    named = _names(state.topics, partitions.topic_row[before], partitions.partition[before])
    return Coverage(changes.id, first, named)


def _names(topics: Topics, topic_row: Int32, partition: Int32) -> str:
    names = topics.names
    return ",".join(
        [
            f"{(names[row] or b'').decode(errors='replace')}-{number}"
            for row, number in zip(topic_row.tolist(), partition.tolist(), strict=True)
        ]
    )
