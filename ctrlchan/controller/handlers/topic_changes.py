"""Topics that appear or vanish in ZooKeeper, and partitions that are added to them.

Source: ``KafkaController.processTopicChange``, ``processPartitionModifications``, ``onNewPartitionCreation``,
``processTopicIds`` (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.notifications import NotificationKind
from ctrlchan.controller.handlers.own_replicas import without_own_replicas
from ctrlchan.controller.machines.leader_election import Strategy
from ctrlchan.controller.machines.log_texts import ListedPartitions
from ctrlchan.controller.machines.lookups import find_rows, topic_rows_of_names
from ctrlchan.controller.machines.reassignment_node import remove_entries
from ctrlchan.controller.machines.states import PartitionState, ReplicaState
from ctrlchan.errors import ResultCode
from ctrlchan.state.lists import take
from ctrlchan.topic_names import new_id
from ctrlchan.zookeeper import paths
from ctrlchan.zookeeper.values import TopicsRead

__all__ = ["add_topics", "process_partition_modifications", "process_topic_change"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


def process_topic_change(core: ControllerCore) -> None:
    """Create the partitions of new topics, and forget topics whose nodes are gone."""
    names = set(core.watches.children(paths.TOPICS))
    known = core.topic_names()
    gone = known - names
    if gone:
        core.log.info("Deleted topics: %s", sorted(gone))
        remove_entries(core.nodes, lambda partition, _: partition[0] in gone)
        core.context.remove_topics(gone)
    malformed = core.malformed.get(paths.TOPICS, {})
    gone_malformed = [path for path in malformed if paths.place_of(path).topic not in names]
    core.note_malformed(paths.TOPICS, {}, gone_malformed)
    core.topic_watches.forget(gone_malformed)
    # Those that the controller has deleted have left the context before their nodes.
    deleted = core.seen_topics - names
    core.seen_topics -= deleted
    if deleted:
        core.topic_watches.forget(map(paths.topic, deleted))
        core.notify(NotificationKind.TOPIC_DELETED, topics=sorted(deleted))
    new = names - known
    if new:
        rows = add_topics(core, new, are_new=True)
        created = new & core.topic_names()
        core.log.info("New topics: %d, with %d partitions", len(created), len(rows))
        _create_partitions(core, rows)
        core.notify(NotificationKind.TOPIC_CREATED, topics=sorted(created))


def add_topics(core: ControllerCore, names: Iterable[str], *, are_new: bool = False) -> Int64:
    """Watch these topics, give them ids, and add them to the context; return the rows of their partitions.

    ``are_new``: no partition has a leader yet. Topics and partitions that cannot be parsed are logged and
    left out.
    """
    wanted = sorted(names)
    node_paths = [paths.topic(name) for name in wanted]
    read = core.nodes.read_topics(wanted, core.topic_watches.read_with(node_paths))
    core.note_malformed(paths.TOPICS, read.malformed, node_paths)
    if are_new:
        read = without_own_replicas(core, read, np.arange(len(read.partition)))
    ids = _with_ids(core, read)
    core.seen_topics.update(name.decode() for name in read.names)
    return core.context.add_partitions(
        read.names, ids, read.topic_row, read.partition, read.replicas, read.adding, read.removing
    )


def process_partition_modifications(core: ControllerCore, changed: Sequence[str]) -> None:
    """Create the partitions that were added to the topics of these paths.

    Partitions added to a topic that is queued for deletion are taken out of its node again. Other changes are
    the controller's own.
    """
    topics = {paths.place_of(path).topic for path in changed}
    if topics - core.topic_names():
        # A node that was malformed may be a topic now.
        process_topic_change(core)
    names = sorted(topics & core.topic_names())
    if not names:
        return
    node_paths = [paths.topic(name) for name in names]
    read = core.nodes.read_topics(names, core.topic_watches.read_with(node_paths))
    core.note_malformed(paths.TOPICS, read.malformed, node_paths)
    topic_rows = topic_rows_of_names(core.state, read.names)
    added = np.flatnonzero(find_rows(core.state, topic_rows[read.topic_row], read.partition) < 0)
    if not len(added):
        return
    queued = {name.encode() for name in core.context.topics_to_delete}
    is_queued = np.array([name in queued for name in read.names], dtype=bool)
    refused = added[is_queued[read.topic_row[added]]]
    if len(refused):
        _restore(core, sorted({read.names[row].decode() for row in read.topic_row[refused].tolist()}))
    added = np.setdiff1d(added, refused)
    if not len(added):
        return
    core.log.info("New partitions to be added: %d", len(added))
    read = without_own_replicas(core, read, added)
    rows = core.context.add_partitions(
        read.names,
        np.zeros((len(read.names), 16), np.uint8),
        read.topic_row[added],
        read.partition[added],
        take(read.replicas, added),
        take(read.adding, added),
        take(read.removing, added),
    )
    _create_partitions(core, rows)
    core.notify(
        NotificationKind.PARTITIONS_ADDED,
        topics=sorted({read.names[row].decode() for row in read.topic_row[added].tolist()}),
    )


def _restore(core: ControllerCore, names: Sequence[str]) -> None:
    """Write the assignment that the context has to the nodes of these topics."""
    core.log.warning("Partitions of topics that are being deleted are taken out again: %s", names)
    partitions = core.state.partitions
    assert partitions.adding is not None
    assert partitions.removing is not None
    rows = core.context.rows_of_topics(names)
    found, topic_row = core.context.names_of(rows)
    ids = core.state.topics.ids[topic_rows_of_names(core.state, found)]
    core.nodes.write_topic_assignments(
        found,
        [_id_or_none(topic_id) for topic_id in ids],
        topic_row,
        partitions.partition[rows],
        take(partitions.replicas, rows),
        take(partitions.adding, rows),
        take(partitions.removing, rows),
    )


def _create_partitions(core: ControllerCore, rows: Int64) -> None:
    """Bring new partitions and their replicas online. Source: ``onNewPartitionCreation``."""
    if not len(rows):
        return
    core.log.info("New partition creation callback for %s", ListedPartitions(core.context, rows))
    replicas = core.context.replica_pairs(rows)
    core.partition_states.handle_state_changes(rows, PartitionState.NEW)
    core.replica_states.handle_state_changes(*replicas, ReplicaState.NEW)
    core.partition_states.handle_state_changes(rows, PartitionState.ONLINE, Strategy.OFFLINE)
    core.replica_states.handle_state_changes(*replicas, ReplicaState.ONLINE)


def _with_ids(core: ControllerCore, read: TopicsRead) -> npt.NDArray[np.uint8]:
    """Return the ids of the topics. From IBP 2.8-IV0 on, topics without an id get one, also in ZooKeeper."""
    ids = read.ids.copy()
    missing = np.flatnonzero(~ids.any(axis=1))
    if not len(missing) or not core.config.uses_topic_ids:
        return ids
    core.log.info("%d topics without an id are given one", len(missing))
    for row in missing.tolist():
        ids[row] = np.frombuffer(new_id(), np.uint8)
    rows = np.flatnonzero(np.isin(read.topic_row, missing))
    errors = core.nodes.write_topic_assignments(
        [read.names[row] for row in missing.tolist()],
        [topic_id.tobytes() for topic_id in ids[missing]],
        np.searchsorted(missing, read.topic_row[rows]).astype(np.int32),
        read.partition[rows],
        take(read.replicas, rows),
        take(read.adding, rows),
        take(read.removing, rows),
    )
    # The id of a topic that was deleted meanwhile stands nowhere.
    ids[missing[errors != ResultCode.OK]] = 0
    return ids


def _id_or_none(topic_id: npt.NDArray[np.uint8]) -> bytes | None:
    return topic_id.tobytes() if topic_id.any() else None
