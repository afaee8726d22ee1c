"""New partitions that a broker has assigned to the controller.

Brokers that create a topic themselves (``__consumer_offsets``, automatic creation) choose among all live
brokers of their metadata. A controller of this package is announced there and has no logs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn
from ctrlchan.controller.core import ControllerCore
from ctrlchan.errors import ResultCode
from ctrlchan.state.lists import contains, take
from ctrlchan.zookeeper.values import TopicsRead

__all__ = ["without_own_replicas"]


def without_own_replicas(core: ControllerCore, read: TopicsRead, new: npt.NDArray[np.int64]) -> TopicsRead:
    """Give replicas of this controller to live brokers, in ZooKeeper too; return the changed assignment.

    ``read``: all partitions of some topics. ``new``: the rows of ``read`` that have no leader yet; others are
    not changed. A partition that has all live brokers already has one replica less.
    """
    own = core.config.controller_id
    live = sorted(core.state.broker_ids.tolist())
    if not live or own in live:
        return read
    ours = new[contains(take(read.replicas, new), np.full(len(new), own, np.int32))]
    if not len(ours):
        return read
    lists = read.replicas.to_lists()
    for number, row in enumerate(ours.tolist()):
        lists[row] = _without(lists[row], own, live, number)
    changed = replace(read, replicas=ListColumn.from_lists(lists))
    topics = np.unique(read.topic_row[ours])
    rows = np.flatnonzero(np.isin(read.topic_row, topics))
    names = [read.names[row] for row in topics.tolist()]
    core.log.warning(
        "%d new partitions had a replica on this controller, which has no logs; live brokers get them: %s",
        len(ours),
        [name.decode() for name in names],
    )
    errors = core.nodes.write_topic_assignments(
        names,
        [topic_id.tobytes() if topic_id.any() else None for topic_id in read.ids[topics]],
        np.searchsorted(topics, read.topic_row[rows]).astype(np.int32),
        read.partition[rows],
        take(changed.replicas, rows),
        take(read.adding, rows),
        take(read.removing, rows),
    )
    for name, error in zip(names, errors.tolist(), strict=True):
        if error != ResultCode.OK:
            # The topic was deleted meanwhile, which is an event of its own.
            core.log.warning("The node of topic %s cannot be written: error %d", name.decode(), error)
    return changed


def _without(replicas: list[int], own: int, live: list[int], number: int) -> list[int]:
    """Return the replicas with a live broker in place of ``own``; ``number`` spreads them over brokers."""
    others = [broker_id for broker_id in live if broker_id not in replicas]
    if not others:
        return [broker_id for broker_id in replicas if broker_id != own]
    chosen = others[number % len(others)]
    return [chosen if broker_id == own else broker_id for broker_id in replicas]
