"""UpdateMetadata bodies from plain values, and the metadata of a broker as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ctrlchan._codec import (
    UPDATE_METADATA,
    Brokers,
    ListColumn,
    Partitions,
    SharedBody,
    StringColumn,
    Topics,
    UpdateMetadataRequest,
    decode_request,
    encode_head,
    update_metadata_body,
)
from ctrlchan.broker.metadata.metadata_cache import MetadataCache

__all__ = ["DELETED", "PlainUpdate", "applied", "body_of", "live", "picture", "shared_body_of"]

DELETED = -2


@dataclass
class PlainUpdate:
    """The values of one UpdateMetadata.

    ``topics``: topic -> (id byte, {partition: leader}). ``brokers``: ids of live brokers. ``value``: differs
    from request to request, and is part of each row.
    """

    version: int
    topics: Mapping[str, tuple[int, Mapping[int, int]]] = field(default_factory=dict)
    brokers: Sequence[int] = (1,)
    value: int = 0


def live(ids: Sequence[int], version: int) -> Brokers:
    count = len(ids)
    names = StringColumn.from_strings([b"PLAINTEXT"] * count)
    return Brokers(
        np.array(ids, dtype=np.int32),
        None,
        StringColumn.from_strings([None] * count),
        np.arange(count, dtype=np.int32),
        np.ones(count, dtype=np.int32),
        np.array([9000 + broker for broker in ids], dtype=np.int32),
        StringColumn.from_strings([f"host-{broker}" for broker in ids]),
        names,
        np.zeros(count, dtype=np.int32),
    )


def shared_body_of(update: PlainUpdate) -> SharedBody:
    """Encode an update; the live rows of a topic come before its deletions, as in a batch."""
    rows = [
        (topic, partition, leader)
        for topic, (_, partitions) in enumerate(update.topics.values())
        for partition, leader in sorted(partitions.items(), key=lambda row: (row[1] == DELETED, row[0]))
    ]
    count = len(rows)

    def column(values: Any) -> np.ndarray[Any, np.dtype[np.int32]]:
        return np.array(values, dtype=np.int32)

    lists = [[update.value, leader] for _, _, leader in rows]
    partitions = Partitions(
        column([topic for topic, _, _ in rows]),
        column([partition for _, partition, _ in rows]),
        column([1] * count),
        column([leader for _, _, leader in rows]),
        column([update.value] * count),
        column([update.value + 1] * count),
        column([0] * count),
        ListColumn.from_lists(lists),
        ListColumn.from_lists([[*row, 5] for row in lists]),
        offline=ListColumn.from_lists([[update.value] * (update.value % 3) for _ in rows]),
    )
    ids = np.zeros((len(update.topics), 16), dtype=np.uint8)
    ids[:, 0] = [topic_id for topic_id, _ in update.topics.values()]
    return update_metadata_body(
        update.version,
        Topics(StringColumn.from_strings(update.topics), ids),
        partitions,
        live(update.brokers, update.version),
    )


def body_of(shared_body: SharedBody) -> UpdateMetadataRequest:
    head = encode_head(UPDATE_METADATA, shared_body.version, 0, 7)
    body = decode_request(UPDATE_METADATA, shared_body.version, head + shared_body.to_bytes())
    assert isinstance(body, UpdateMetadataRequest)
    return body


def applied(cache: MetadataCache, bodies: Sequence[UpdateMetadataRequest]) -> MetadataCache:
    for body in bodies:
        cache.update(body)
    return cache


def picture(cache: MetadataCache) -> dict[str, Any]:
    """Return all metadata of a broker, with the ids of topics without partitions."""
    state = cache.state
    columns = state.partitions
    lists = [column.to_lists() for column in (columns.isr, columns.replicas, columns.offline) if column]
    return {
        "controller": (state.controller_id, state.controller_epoch),
        "brokers": [(node.id, node.host, node.port, node.rack) for node in cache.nodes("PLAINTEXT")],
        "ids": {
            state.topic_name(row): state.topics.ids[row].tobytes()
            for row in range(len(state.topics))
            if state.topics.ids[row].any()
        },
        "partitions": {
            (state.topic_name(int(columns.topic_row[row])), int(columns.partition[row])): (
                int(columns.leader[row]),
                int(columns.leader_epoch[row]),
                int(columns.partition_epoch[row]),
                int(columns.controller_epoch[row]),
                *(column[row] for column in lists),
            )
            for row in range(len(columns))
        },
    }
