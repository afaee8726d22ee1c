"""Merges several UpdateMetadata into one that leaves a broker in the same state.

How a broker applies a request (``ZkMetadataCache.updateMetadata`` of Kafka 3.9): the live brokers replace the
earlier ones. Topic ids are taken first (a zero id removes the id), then partition states row by row. A row
with leader -2 removes its partition; the last partition of a topic removes the topic's id too. So the merged
request has, for each topic:

- its latest id, and the latest row of each partition;
- live rows before deletions, so that a topic that was deleted and created again never loses its new id;
- if only deletions are left of a topic that was created or changed in between, one of its live rows first:
  then the broker has the topic when it is deleted, and removes the id too.

One case needs two requests: the last partitions of a topic are deleted twice under an id (from v7 on). Kafka
then keeps the id of the second request, for a topic without partitions. ``Facts`` finds such pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import (
    ListColumn,
    Partitions,
    SharedBody,
    StringColumn,
    Topics,
    UpdateMetadataRequest,
    update_metadata_body,
)
from ctrlchan.errors import EncodeError
from ctrlchan.protocol import LEADER_DURING_DELETE, UPDATE_METADATA_TOPICS_SINCE

if TYPE_CHECKING:
    from ctrlchan._codec import Int32, Int64

__all__ = ["Facts", "facts_of", "merge"]

Flags: TypeAlias = npt.NDArray[np.bool_]

_MOST_VALUES: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Facts:
    """Properties of a request that decide whether it may be merged into earlier ones."""

    #: Names of the topics of which it deletes partitions.
    deleting: frozenset[bytes] = frozenset()
    #: Those of them that have an id and no other rows in the request.
    condemned: frozenset[bytes] = frozenset()


_NO_DELETIONS: Final = Facts()


def facts_of(body: UpdateMetadataRequest, *, merged: bool = False) -> Facts | None:
    """Return the facts of a request, or None if it must not be merged.

    A request must not be merged if it has a topic or a partition twice, a topic without partitions, a
    deletion before a live row of the same topic, or a request type: no batch makes such requests. Below
    v5, where a topic has no id, a request with deletions must not be merged either. ``merged``: the request
    was made by ``merge``, so it is not checked.
    """
    if len(body.partitions) == len(body.topics) == 1 and body.partitions.leader[0] >= 0:
        # The common case: one row.
        return None if body.request_type or body.unknown_tagged_fields else _NO_DELETIONS
    starts = body.topic_starts
    topic_row = np.repeat(np.arange(len(body.topics)), np.diff(starts))
    deletions = body.partitions.leader == LEADER_DURING_DELETE
    if not merged and not _is_plain(body, topic_row, deletions):
        return None
    if not deletions.any():
        return _NO_DELETIONS
    if body.version < UPDATE_METADATA_TOPICS_SINCE:
        return None
    some_deleted = np.zeros(len(body.topics), dtype=bool)
    some_deleted[topic_row[deletions]] = True
    some_live = np.zeros(len(body.topics), dtype=bool)
    some_live[topic_row[~deletions]] = True
    condemned = some_deleted & ~some_live & body.topics.ids.any(axis=1)
    return Facts(_names(body.topics, some_deleted), _names(body.topics, condemned))


def _is_plain(body: UpdateMetadataRequest, topic_row: Int64, deletions: Flags) -> bool:
    if body.request_type or body.unknown_tagged_fields or (np.diff(body.topic_starts) < 1).any():
        return False
    if len({body.topics.names[i] for i in range(len(body.topics))}) < len(body.topics):
        return False
    keys = (topic_row << 32) + body.partitions.partition
    if (keys[1:] <= keys[:-1]).any() and len(np.unique(keys)) < len(keys):
        return False
    return not ((topic_row[1:] == topic_row[:-1]) & deletions[:-1] & ~deletions[1:]).any()


def _names(topics: Topics, wanted: Flags) -> frozenset[bytes]:
    return frozenset(topics.names[i] or b"" for i in np.flatnonzero(wanted).tolist())


def merge(bodies: Sequence[UpdateMetadataRequest]) -> SharedBody:
    """Return one shared body for these bodies, oldest first. All have one version and facts.

    Raises EncodeError if the columns of all of them together are too large.
    """
    newest = bodies[-1]
    with_rows = [body for body in bodies if len(body.partitions)]
    if len(with_rows) <= 1:
        rows_from = with_rows[0] if with_rows else newest
        return update_metadata_body(
            newest.version,
            rows_from.topics,
            rows_from.partitions,
            newest.live_brokers,
            topic_starts=rows_from.topic_starts,
        )
    # Most bodies are small, so one array operation serves all of them wherever possible.
    index: dict[bytes, int] = {}
    numbers = [
        index.setdefault(body.topics.names[i] or b"", len(index))
        for body in with_rows
        for i in range(len(body.topics))
    ]
    places = np.array(numbers, dtype=np.int64)
    ids = np.zeros((len(index), 16), dtype=np.uint8)
    # Of a topic in several bodies the latest id is written last.
    ids[places] = np.concatenate([body.topics.ids for body in with_rows])
    counts = [len(body.partitions) for body in with_rows]
    topics_before = _before([len(body.topics) for body in with_rows], counts)
    topic = places[np.concatenate([body.partitions.topic_row for body in with_rows]) + topics_before]
    partition = np.concatenate([body.partitions.partition for body in with_rows])
    leader = np.concatenate([body.partitions.leader for body in with_rows])
    rows = _chosen(topic, partition, leader == LEADER_DURING_DELETE, len(index))
    return update_metadata_body(
        newest.version,
        Topics(StringColumn.from_strings(index), ids),
        _taken([body.partitions for body in with_rows], topic, rows),
        newest.live_brokers,
    )


def _chosen(topic: Int64, partition: Int32, deletions: Flags, topics: int) -> Int64:
    """Return the rows of the merged request, in its order, as numbers of the rows of all bodies."""
    keys = (topic << 32) + partition
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    rows: Int64 = order[np.append(ordered[1:] != ordered[:-1], True)]
    if not deletions.any():
        return rows
    live = np.flatnonzero(~deletions)
    latest_live = np.full(topics, -1, dtype=np.int64)
    np.maximum.at(latest_live, topic[live], live)
    still_live = np.zeros(topics, dtype=bool)
    still_live[topic[rows[~deletions[rows]]]] = True
    rows = np.concatenate([latest_live[(latest_live >= 0) & ~still_live], rows])
    in_order: Int64 = rows[np.lexsort((partition[rows], deletions[rows], topic[rows]))]
    return in_order


def _taken(all_of: Sequence[Partitions], topic: Int64, rows: Int64) -> Partitions:
    def fixed(name: str) -> Int32:
        column: Int32 = np.concatenate([getattr(partitions, name) for partitions in all_of])[rows]
        return column

    def lists(name: str) -> ListColumn:
        return _taken_lists([getattr(partitions, name) for partitions in all_of], rows)

    return Partitions(
        topic[rows].astype(np.int32),
        fixed("partition"),
        fixed("controller_epoch"),
        fixed("leader"),
        fixed("leader_epoch"),
        fixed("partition_epoch"),
        fixed("recovery_state"),
        lists("isr"),
        lists("replicas"),
        offline=lists("offline"),
    )


def _taken_lists(columns: Sequence[ListColumn], rows: Int64) -> ListColumn:
    """Concatenate these columns, and return the lists of these rows."""
    sizes = [len(column.values) for column in columns]
    if sum(sizes) > _MOST_VALUES:
        raise EncodeError(f"{sum(sizes)} values in the lists of one request", api="UpdateMetadataRequest")
    starts = np.concatenate([column.starts for column in columns])
    starts = starts + _before(sizes, [len(column) for column in columns])
    lengths = np.concatenate([column.lengths for column in columns])
    values = np.concatenate([column.values for column in columns])
    return ListColumn(starts[rows].astype(np.int32), lengths[rows], values)


def _before(sizes: Sequence[int], counts: Sequence[int]) -> Int64:
    """Return, for each row, the sum of the sizes of the bodies before its own. ``counts``: rows per body."""
    ends = np.cumsum(sizes)
    repeated: Int64 = np.repeat(ends - sizes, counts)
    return repeated
