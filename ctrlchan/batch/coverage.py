"""What a broker knows of the state once it has acknowledged a request, in the terms of the journal.

Made only for a channel that keeps a journal, once for each request, however many brokers it goes to.
Partitions are named while they are few. What is more than that is a range of versions: a request that says
all that has changed since some version makes every broker current that was so at that version.
"""

from __future__ import annotations

from typing import Final

from ctrlchan._codec import Topics
from ctrlchan.batch.differences import Lack, Told
from ctrlchan.batch.selection import Int32, Int64
from ctrlchan.channel.request import Coverage
from ctrlchan.state import NO_LEADERSHIP, ClusterState

__all__ = ["EVERYTHING", "coverage_of_lack", "coverage_of_names", "coverage_of_rows"]

#: ``Coverage.from_version`` of a request that says all there is.
EVERYTHING: Final = -1
#: More partitions than these are not named: a name costs a third of a microsecond, and a place in the
#: journal.
_NAMED: Final = 64
#: Besides a range, of a request of many: that takes its time anyway.
_NAMED_BESIDES: Final = 1_024


def coverage_of_rows(state: ClusterState, rows: Int64 | None) -> Coverage:
    """Of an UpdateMetadata of these rows (ascending, with leadership); None: all that have leadership."""
    changes = state.changes
    if rows is None:
        return Coverage(changes.id, EVERYTHING, None)
    if len(rows) <= _NAMED:
        partitions = state.partitions
        named = _names(state.topics, partitions.topic_row[rows], partitions.partition[rows])
        return Coverage(changes.id, None, named)
    return _of_many(state, rows)


def coverage_of_lack(state: ClusterState, told: Told | None, lack: Lack) -> Coverage:
    """Of an UpdateMetadata of all that a broker lacks who knows ``told``."""
    changes = state.changes
    partitions, rows = lack.partitions, lack.rows
    named = None
    if (len(partitions) if rows is None else len(rows)) <= _NAMED:
        every = slice(None) if rows is None else rows
        named = _names(lack.topics, partitions.topic_row[every], partitions.partition[every])
    if lack.full or told is None:
        return Coverage(changes.id, EVERYTHING, named)
    if not told.extras:
        return Coverage(changes.id, told.version, named)
    # It leaves out what other requests have told: those count for themselves.
    if named is not None or rows is None:
        return Coverage(changes.id, None, named)
    return _of_many(state, rows)


def coverage_of_names(state: ClusterState, topic_row: Int32, partition: Int32) -> Coverage:
    """Of a LeaderAndIsr or a StopReplica, which make no broker's metadata current."""
    named = _names(state.topics, topic_row, partition) if len(partition) <= _NAMED else None
    return Coverage(state.changes.id, None, named)


def _of_many(state: ClusterState, rows: Int64) -> Coverage:
    """A range, from the lowest version after which all changes are among these rows, and the names of those
    that changed before."""
    changes, partitions = state.changes, state.partitions
    left_out = partitions.leader_epoch != NO_LEADERSHIP
    left_out[rows] = False
    others = changes.rows[left_out]
    first = int(others.max()) if len(others) else EVERYTHING
    before = rows[changes.rows[rows] <= first]
    if len(before) > _NAMED_BESIDES:
        # A range alone would say too little, and not that it does.
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
