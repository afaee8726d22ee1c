"""Counts over a state, for ``describe`` and ``ctrlchan snapshot show``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn
from ctrlchan.state.brokers import brokers_list
from ctrlchan.state.lists import packed_values, total_length
from ctrlchan.state.view import StateView
from ctrlchan.topic_names import id_to_text

__all__ = ["broker_loads", "summarise", "topic_detail", "under_replicated"]

Bool = npt.NDArray[np.bool_]
Int64 = npt.NDArray[np.int64]


def summarise(state: StateView) -> dict[str, Any]:
    """Return counts over the whole cluster, ready for JSON.

    A partition is offline when it is known to have no leader; its leadership is unknown when its leader epoch
    is -1. Under-replicated and reassigning are Kafka's terms (``kafka-topics --describe``).
    """
    columns = state.partitions
    assert columns.adding is not None
    assert columns.removing is not None
    assert columns.offline is not None
    known = columns.leader_epoch >= 0
    deleting = state.topics.deleting
    assert deleting is not None
    return {
        "cluster_id": state.cluster_id,
        "controller_id": state.controller_id,
        "controller_epoch": state.controller_epoch,
        "topics": len(state.topics),
        "topics_queued_for_deletion": int(np.count_nonzero(deleting)),
        "partitions": len(columns),
        "replicas": total_length(columns.replicas),
        "brokers": len(state.brokers),
        "shutting_down": sorted(state.shutting_down),
        "offline_partitions": int(np.count_nonzero(known & (columns.leader < 0))),
        "unknown_leadership_partitions": int(np.count_nonzero(~known)),
        "under_replicated_partitions": int(np.count_nonzero(under_replicated(state))),
        "reassigning_partitions": int(
            np.count_nonzero((columns.adding.lengths > 0) | (columns.removing.lengths > 0))
        ),
        "offline_replicas": total_length(columns.offline),
    }


def under_replicated(state: StateView) -> Bool:
    """Return a flag for each row: whether the ISR is shorter than the replicas without those being added."""
    columns = state.partitions
    assert columns.adding is not None
    return columns.isr.lengths < columns.replicas.lengths - columns.adding.lengths


def broker_loads(state: StateView) -> list[dict[str, Any]]:
    """Return one entry for each broker that is live, holds a replica or leads, ascending by id.

    ``live`` is false for a broker that only partitions name.
    """
    columns = state.partitions
    assert columns.offline is not None
    counts = {
        "leaders": _count(columns.leader[(columns.leader >= 0) & (columns.leader_epoch >= 0)]),
        "replicas": _count_lists(columns.replicas),
        "offline_replicas": _count_lists(columns.offline),
    }
    live = {broker.id: broker for broker in brokers_list(state.brokers)}
    loads = []
    for broker_id in sorted(live.keys() | counts["leaders"].keys() | counts["replicas"].keys()):
        broker = live.get(broker_id)
        loads.append(
            {
                "id": broker_id,
                "live": broker is not None,
                "shutting_down": broker_id in state.shutting_down,
                "epoch": None if broker is None else broker.epoch,
                "rack": None if broker is None else broker.rack,
                "endpoints": [] if broker is None else [str(endpoint) for endpoint in broker.endpoints],
                **{name: held.get(broker_id, 0) for name, held in counts.items()},
            }
        )
    return loads


def topic_detail(state: StateView, name: str) -> dict[str, Any]:
    """Return one topic and each of its partitions, ready for JSON. Raises KeyError."""
    columns = state.partitions
    topic_row = state.topic_row(name)
    rows = state.rows_of_topic(name)
    topic_id = state.topics.ids[topic_row].tobytes()
    deleting = state.topics.deleting
    numbers = (
        "partition", "leader", "leader_epoch", "partition_epoch", "controller_epoch", "recovery_state",
    )  # fmt: skip
    lists = ("replicas", "isr", "adding", "removing", "offline")
    partitions = []
    for row in range(rows.start, rows.stop):
        partition: dict[str, Any] = {column: int(getattr(columns, column)[row]) for column in numbers}
        partition.update((column, getattr(columns, column)[row].tolist()) for column in lists)
        partitions.append(partition)
    return {
        "topic": name,
        "topic_id": id_to_text(topic_id) if any(topic_id) else None,
        "queued_for_deletion": deleting is not None and bool(deleting[topic_row]),
        "partitions": partitions,
    }


def _count_lists(lists: ListColumn) -> dict[int, int]:
    return _count(packed_values(lists))


def _count(ids: npt.NDArray[np.int32]) -> dict[int, int]:
    found, counts = np.unique(ids, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))
