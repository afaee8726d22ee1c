"""What must hold when nothing is in progress: ZooKeeper, the controller and the brokers agree."""

from __future__ import annotations

from typing import Any

from ctrlchan.controller.core import ControllerCore
from ctrlchan.zookeeper import nodes, paths
from tests.unit.controller.model.brokers import ModelBroker
from tests.unit.controller.model.cluster import Key, ModelCluster

__all__ = ["check_healed", "check_quiet"]


class Nodes:
    """The nodes of all topics, read once."""

    def __init__(self, cluster: ModelCluster) -> None:
        self.topics = cluster.topics()
        self.assignments = {topic: cluster.assignments(topic) for topic in self.topics}
        self.leaderships = cluster.leaderships(
            (topic, number) for topic, entries in self.assignments.items() for number in entries
        )


def check_quiet(cluster: ModelCluster) -> None:
    """Check a cluster that has settled."""
    assert not cluster.errors.lines, "\n".join(cluster.errors.lines)
    for controller in cluster.controllers:
        assert not controller.unexpected, controller.unexpected
    active = cluster.active
    if active is None:
        assert not cluster.controllers, "there are controllers, and none is active"
        return
    core = active.core
    assert core is not None
    assert [one for one in cluster.controllers if one.core is not None] == [active]
    epoch = nodes.parse_controller_epoch(cluster.znodes.get(paths.CONTROLLER_EPOCH)[0])
    assert core.epoch == epoch
    znodes = Nodes(cluster)
    _check_brokers(cluster, core)
    _check_topics(znodes, core)
    _check_leaders(cluster, znodes, core)
    _check_deletions(cluster, znodes, core)
    registered = [one for one in cluster.brokers if cluster.is_registered(one)]
    for broker_id in registered:
        _check_metadata(cluster, core, cluster.brokers[broker_id])
        _check_replicas(cluster, znodes, core, cluster.brokers[broker_id])
    cluster.lossy = False


def check_healed(cluster: ModelCluster) -> None:
    """Check a settled cluster whose brokers all run, and whose replicas have all caught up."""
    check_quiet(cluster)
    assert not _children(cluster, paths.DELETED_TOPICS)
    assert not _entries(cluster)
    assert not cluster.znodes.exists(paths.PREFERRED_REPLICA_ELECTION)
    assert not _children(cluster, paths.ISR_CHANGE_NOTIFICATIONS)
    assert not _children(cluster, paths.LOG_DIR_EVENT_NOTIFICATIONS)
    znodes = Nodes(cluster)
    for topic, assignments in znodes.assignments.items():
        for number, assignment in assignments.items():
            assert not assignment.adding, (topic, number, assignment)
            assert not assignment.removing, (topic, number, assignment)
            state = znodes.leaderships[topic, number]
            assert state is not None, (topic, number)
            assert state.leader >= 0, (topic, number, state)
            assert sorted(state.isr) == sorted(assignment.replicas), (topic, number, state, assignment)


def _check_brokers(cluster: ModelCluster, core: ControllerCore) -> None:
    found = {
        int(broker_id): int(epoch)
        for broker_id, epoch in zip(core.state.broker_ids, core.state.brokers.epochs, strict=True)
    }
    expected = {one.id: one.epoch for one in cluster.brokers.values() if cluster.is_registered(one.id)}
    assert found == expected


def _check_topics(znodes: Nodes, core: ControllerCore) -> None:
    """The columns are what stands in ZooKeeper, and nothing else."""
    # Failed directories and cancelled reassignments break the other rules, in Kafka too.
    broken = [one for one in core.state.check() if one.rule not in ("isr-not-replica", "leader-not-online")]
    assert not broken, broken
    columns, expected, found = core.state.partitions, {}, {}
    assert columns.adding is not None
    assert columns.removing is not None
    for topic in znodes.topics:
        for number, one in znodes.assignments[topic].items():
            key = (topic, number)
            expected[key] = (one.replicas, one.adding, one.removing, znodes.leaderships.get(key))
    for key, row in _rows(core).items():
        leadership = None
        if core.context.has_leadership(core.context.all_rows)[row]:
            leadership = (
                columns.leader[row], columns.leader_epoch[row], columns.controller_epoch[row],
                columns.isr[row].tolist(), columns.partition_epoch[row],
            )  # fmt: skip
        lists = (columns.replicas, columns.adding, columns.removing)
        found[key] = (*(one[row].tolist() for one in lists), leadership)
    queued = core.context.topics_to_delete
    for key in expected.keys() | found.keys():
        in_state, in_zookeeper = found.get(key), expected.get(key)
        assert _comparable(in_state) == _comparable(in_zookeeper), (
            f"{key}: the controller has {in_state}, ZooKeeper has {in_zookeeper}, queued {queued}"
        )
    live_ids = set(core.context.partition_ids.tolist())
    assert set(core.context.replicas.partition_ids.tolist()) <= live_ids


def _comparable(one: tuple[Any, ...] | None) -> object:
    """Leave out the controller epoch, which only a write takes to ZooKeeper."""
    if one is None or one[3] is None:
        return one
    leader, leader_epoch, _, isr, version = one[3]
    return one[:3], (leader, leader_epoch, isr, version)


def _check_leaders(cluster: ModelCluster, znodes: Nodes, core: ControllerCore) -> None:
    """A partition has a leader that works, where one of its replicas may lead."""
    columns = core.state.partitions
    live = {one for one in cluster.brokers if cluster.is_registered(one)}
    for key, row in _rows(core).items():
        topic, _ = key
        if topic in core.context.topics_to_delete:
            continue
        works = {
            one
            for one in columns.replicas[row].tolist()
            if one in live - set(core.state.shutting_down) and key not in cluster.brokers[one].failed
        }
        state = znodes.leaderships.get(key)
        if state is None:
            # The next broker that starts gives a leader to a partition to which a reassignment adds replicas.
            works -= set(znodes.assignments[topic][key[1]].adding)
            assert not works & _known_to_work(core, row), f"{key} has no leader yet, and {works} work"
            continue
        if state.leader >= 0:
            allowed = works | (set(core.state.shutting_down) & live)
            assert state.leader in allowed, f"{key} is led by {state}, and {works} work"
        elif not core.context.is_to_delete(core.context.all_rows[row : row + 1]).any():
            may_lead = works & set(state.isr)
            assert not may_lead, f"{key} has no leader ({state}), and {may_lead} may lead"


def _known_to_work(core: ControllerCore, row: int) -> set[int]:
    offline = core.state.partitions.offline
    assert offline is not None
    return set(core.state.partitions.replicas[row].tolist()) - set(offline[row].tolist())


def _check_deletions(cluster: ModelCluster, znodes: Nodes, core: ControllerCore) -> None:
    """A topic that can be deleted is deleted; of a deleted one nothing is left."""
    live = set(core.state.online_broker_ids.tolist())
    for topic in _children(cluster, paths.DELETED_TOPICS):
        assignments = znodes.assignments.get(topic, {})
        replicas = {(one, (topic, number)) for number, entry in assignments.items() for one in entry.replicas}
        halted = (
            any(entry.adding or entry.removing for entry in assignments.values())
            or any(one not in live for one, _ in replicas)
            or any(key in cluster.brokers[one].failed for one, key in replicas)
        )
        assert halted, f"the deletion of {topic} does not end: {assignments}"
    topics = set(znodes.topics)
    assert set(_children(cluster, paths.TOPIC_CONFIGS)) <= topics
    assert core.topic_names() <= topics


def _check_metadata(cluster: ModelCluster, core: ControllerCore, broker: ModelBroker) -> None:
    """A broker knows the controller, the live brokers, and the leaders of all partitions."""
    assert broker.controller_epoch == core.epoch, (broker.id, broker.controller_epoch, core.epoch)
    live = {one.id: [one.port] for one in cluster.brokers.values() if cluster.is_registered(one.id)}
    assert broker.live == live, f"broker {broker.id} knows the brokers {broker.live}, {live} are live"
    columns, topics = core.state.partitions, core.state.topics
    assert columns.offline is not None
    rows = _rows(core)
    queued = core.context.topics_to_delete
    for key in broker.metadata.keys() - rows.keys():
        raise AssertionError(f"broker {broker.id} has metadata of {key}, which does not exist")
    for key, row in rows.items():
        if key[0] in queued or not core.context.has_leadership(core.context.all_rows)[row]:
            continue
        seen = broker.metadata.get(key)
        expected = (
            columns.leader[row],
            columns.leader_epoch[row],
            columns.isr[row].tolist(),
            columns.replicas[row].tolist(),
            columns.offline[row].tolist(),
            topics.ids[columns.topic_row[row]].tobytes(),
        )
        assert seen == expected, f"broker {broker.id} has {key} as {seen}, the controller as {expected}"


def _check_replicas(cluster: ModelCluster, znodes: Nodes, core: ControllerCore, broker: ModelBroker) -> None:
    """A broker leads and follows as the controller wants, and has no other replicas."""
    rows, queued = _rows(core), core.context.topics_to_delete
    columns = core.state.partitions
    live = {one for one in cluster.brokers if cluster.is_registered(one)}
    for key in sorted(broker.logs):
        row = rows.get(key)
        assigned = row is not None and broker.id in columns.replicas[row].tolist()
        if key[0] in queued or key in broker.failed or assigned:
            continue
        waited_for = row is None and (key[1], broker.id) in cluster.deleted.get(key[0], ())
        assert not waited_for, f"broker {broker.id} has a replica of {key}, which is deleted"
        # The request to delete a replica that was reassigned is not repeated.
        assert cluster.lossy, f"broker {broker.id} has a replica of {key}, which is not assigned to it"
        del broker.logs[key]
        broker.hosted.pop(key, None)
    for key, row in rows.items():
        if key[0] in queued or key in broker.failed or broker.id not in columns.replicas[row].tolist():
            continue
        state = znodes.leaderships.get(key)
        if state is None or state.leader not in live or core.state.shutting_down:
            continue
        hosted = broker.hosted.get(key)
        assert hosted is not None, f"broker {broker.id} does not host {key} ({state})"
        found = (hosted.leader, hosted.leader_epoch, hosted.stopped)
        expected = (state.leader, state.leader_epoch, False)
        assert found == expected, f"broker {broker.id} has {key} as {found}, ZooKeeper as {expected}"
        if state.leader == broker.id:
            assert (hosted.isr, hosted.partition_epoch) == (state.isr, state.version), (key, hosted, state)


def _rows(core: ControllerCore) -> dict[Key, int]:
    columns = core.state.partitions
    return {
        (core.state.topic_name(topic), number): row
        for row, (topic, number) in enumerate(
            zip(columns.topic_row.tolist(), columns.partition.tolist(), strict=True)
        )
    }


def _entries(cluster: ModelCluster) -> list[Key]:
    """Return the partitions in the node of reassignments."""
    if cluster.znodes.exists(paths.REASSIGN_PARTITIONS) is None:
        return []
    return list(nodes.parse_reassignments(cluster.znodes.get(paths.REASSIGN_PARTITIONS)[0]))


def _children(cluster: ModelCluster, path: str) -> list[str]:
    return sorted(cluster.znodes.get_children(path)) if cluster.znodes.exists(path) else []
