"""Replicas of new partitions that a broker has assigned to the controller.

Brokers that create a topic themselves (``__consumer_offsets``, automatic creation) choose among all live
brokers of their metadata. A controller of this package is announced there and has no logs. Brokers go on
choosing it after its death, until another controller is elected.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.handlers.topic_nodes import write_topic_nodes
from ctrlchan.errors import ResultCode
from ctrlchan.state.lists import contains, take
from ctrlchan.zookeeper.values import TopicsRead

__all__ = ["give_own_replicas_away", "without_own_replicas"]

Int64 = npt.NDArray[np.int64]


def without_own_replicas(core: ControllerCore, read: TopicsRead, new: Int64) -> TopicsRead:
    """Give replicas of this controller to live brokers, in ZooKeeper too; return the changed assignment.

    ``read``: all partitions of some topics. ``new``: the rows of ``read`` that have no leader yet; others are
    not changed. A partition that has all live brokers already has one replica less.
    """
    ours = _with_own_replica(core, read.replicas, new)
    if not len(ours):
        return read
    lists = read.replicas.to_lists()
    for row, replicas in zip(ours.tolist(), _given_away(core, take(read.replicas, ours)), strict=True):
        lists[row] = replicas
    changed = read._replace(replicas=ListColumn.from_lists(lists))
    topics = np.unique(read.topic_row[ours])
    rows = np.flatnonzero(np.isin(read.topic_row, topics))
    names = [read.names[row] for row in topics.tolist()]
    errors = core.nodes.write_topic_assignments(
        names,
        [topic_id.tobytes() if topic_id.any() else None for topic_id in read.ids[topics]],
        np.searchsorted(topics, read.topic_row[rows]).astype(np.int32),
        read.partition[rows],
        take(changed.replicas, rows),
        take(read.adding, rows),
        take(read.removing, rows),
    )
    _log(core, names, len(ours), errors)
    return changed


def give_own_replicas_away(core: ControllerCore) -> None:
    """Do the same at a failover for the partitions of the state that have no leader yet.

    A reassignment that names this controller is left to its operator.
    """
    context, replicas = core.context, core.state.partitions.replicas
    new = np.flatnonzero(~context.has_leadership(context.all_rows))
    ours = _with_own_replica(core, replicas, np.setdiff1d(new, context.reassigning_rows()))
    if not len(ours):
        return
    core.state.update(ours, replicas=ListColumn.from_lists(_given_away(core, take(replicas, ours))))
    names, _ = context.names_of(ours)
    _log(core, names, len(ours), write_topic_nodes(core, names))


def _with_own_replica(core: ControllerCore, replicas: ListColumn, rows: Int64) -> Int64:
    """Return the rows that have a replica on this controller, or none if the controller is a broker."""
    own, live = core.config.controller_id, core.state.broker_ids
    if not len(live) or own in live:
        return rows[:0]
    return rows[contains(take(replicas, rows), np.full(len(rows), own, np.int32))]


def _given_away(core: ControllerCore, replicas: ListColumn) -> list[list[int]]:
    """Return the replicas with a live broker in place of this controller, spread over the brokers."""
    own, live = core.config.controller_id, sorted(core.state.broker_ids.tolist())
    given = []
    for number, assigned in enumerate(replicas.to_lists()):
        others = [broker_id for broker_id in live if broker_id not in assigned]
        chosen = [others[number % len(others)]] if others else []
        at = assigned.index(own)
        given.append([*assigned[:at], *chosen, *assigned[at + 1 :]])
    return given


def _log(core: ControllerCore, names: list[bytes], count: int, errors: npt.NDArray[np.int32]) -> None:
    core.log.warning(
        "%d new partitions had a replica on this controller, which has no logs; live brokers get them: %s",
        count,
        [name.decode() for name in names],
    )
    for name, error in zip(names, errors.tolist(), strict=True):
        if error != ResultCode.OK:
            # The topic was deleted meanwhile, which is an event of its own.
            core.log.warning("The node of topic %s cannot be written: error %d", name.decode(), error)
