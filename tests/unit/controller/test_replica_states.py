"""The replica state machine on a real ZooKeeper: twins of ReplicaStateMachineTest, and more."""

from __future__ import annotations

import logging

import pytest
from kazoo.client import KazooClient

from ctrlchan._codec import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from ctrlchan.controller.machines.leadership import StateNodes
from ctrlchan.controller.machines.states import ReplicaState
from ctrlchan.errors import ControllerMovedError, CtrlchanError, IllegalStateError, SessionExpiredError
from ctrlchan.zookeeper.nodes import PartitionState as StateNode
from ctrlchan.zookeeper.nodes import encode_partition_state
from tests.unit.controller.faulty_nodes import FaultyNodes, UnusedNodes
from tests.unit.controller.machines import Machines, pairs, state_path, znode

B = 5
OTHER = 6
NON_EXISTENT, NEW, ONLINE, OFFLINE, STARTED, SUCCESSFUL, INELIGIBLE = ReplicaState
#: The valid transitions of Kafka's documentation.
VALID = {
    (NON_EXISTENT, NEW),
    (NEW, ONLINE),
    (NEW, OFFLINE),
    (ONLINE, ONLINE),
    (ONLINE, OFFLINE),
    (OFFLINE, ONLINE),
    (OFFLINE, OFFLINE),
    (OFFLINE, STARTED),
    (OFFLINE, INELIGIBLE),
    (STARTED, SUCCESSFUL),
    (STARTED, INELIGIBLE),
    (SUCCESSFUL, NON_EXISTENT),
    (INELIGIBLE, ONLINE),
    (INELIGIBLE, OFFLINE),
}


def change(machines: Machines, target: ReplicaState, *replicas: tuple[int, int]) -> None:
    machines.replicas.handle_state_changes(*pairs(*(replicas or ((0, B),))), target)


def led(nodes: StateNodes, state: ReplicaState = ONLINE) -> Machines:
    """Return a cluster with a partition on 5 and 6 that 5 leads; the replica on 5 is in this state."""
    machines = Machines(nodes, brokers=(B, OTHER))
    machines.add({0: [B, OTHER]})
    machines.lead(0, B, [B, OTHER])
    machines.put_replica(0, B, state)
    machines.put_replica(0, OTHER, ONLINE)
    return machines


# -- startup


def test_startup_with_an_online_replica() -> None:
    machines = Machines(UnusedNodes())
    machines.add({0: [B]})
    assert machines.replica_state(0, B) == NON_EXISTENT
    machines.replicas.startup()
    assert machines.replica_state(0, B) == ONLINE


def test_startup_with_a_dead_broker() -> None:
    machines = Machines(UnusedNodes(), brokers=())
    machines.add({0: [B]})
    machines.replicas.startup()
    assert machines.replica_state(0, B) == OFFLINE


def test_startup_with_a_replica_without_leader() -> None:
    machines = Machines(UnusedNodes())
    machines.add({0: [100]})
    machines.replicas.startup()
    assert machines.replica_state(0, 100) == OFFLINE
    assert machines.recipients(UpdateMetadataRequest) == {B}


def test_startup_takes_dead_replicas_out_of_the_isr(nodes: StateNodes, znodes: KazooClient) -> None:
    machines = Machines(nodes, brokers=(1, 2))
    machines.add({0: [1, 9, 2], 1: [2, 1]})
    machines.lead(0, 1, [1, 9, 2])
    machines.lead(1, 2, [2, 1])
    machines.replicas.startup()
    assert znode(znodes, state_path(0))["isr"] == [1, 2]
    assert znode(znodes, state_path(1))["zk_version"] == 0
    assert machines.sent_leaders(2) == {("t", 0): (1, [1, 2]), ("t", 1): (2, [2, 1])}
    assert machines.replica_state(0, 9) == OFFLINE


# -- all transitions


@pytest.mark.parametrize("target", list(ReplicaState), ids=lambda state: state.kafka_name)
@pytest.mark.parametrize("state", list(ReplicaState), ids=lambda state: state.kafka_name)
def test_transition_without_leadership(
    state: ReplicaState, target: ReplicaState, caplog: pytest.LogCaptureFixture
) -> None:
    machines = Machines(UnusedNodes())
    machines.add({0: [B]})
    if state is not NON_EXISTENT:
        machines.put_replica(0, B, state)
    change(machines, target)
    if (state, target) in VALID:
        assert machines.replica_state(0, B) == target
        assert caplog.records == []
        return
    assert machines.replica_state(0, B) == state
    assert machines.channel.sent == []
    [record] = caplog.records
    assert record.getMessage() == (
        "[Controller id=1000 epoch=1] Controller 1000 epoch 1 initiated state change of replica 5 for "
        f"partition t-0 from {state.kafka_name} to {target.kafka_name} failed"
    )
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], IllegalStateError)


def test_valid_and_invalid_replicas_of_one_call(caplog: pytest.LogCaptureFixture) -> None:
    machines = Machines(UnusedNodes())
    machines.add({0: [B, OTHER]})
    machines.put_replica(0, B, OFFLINE)
    machines.put_replica(0, OTHER, ONLINE)
    change(machines, STARTED, (0, B), (0, OTHER), (0, B))
    assert machines.replica_state(0, B) == STARTED
    assert machines.replica_state(0, OTHER) == ONLINE
    assert len(caplog.records) == 1


# -- what each transition sends and writes


def test_new_replica_is_sent_the_leader(nodes: StateNodes) -> None:
    machines = led(nodes)
    machines.state.set_brokers([*(machines.state.broker(one) for one in (B, OTHER))])
    change(machines, NEW, (0, 7))
    assert machines.replica_state(0, 7) == NEW
    # Broker 7 is not live, so nothing reaches it.
    assert machines.recipients(LeaderAndIsrRequest) == set()
    machines.context.put_replica_states(*pairs((0, OTHER)), NON_EXISTENT)
    change(machines, NEW, (0, OTHER))
    [request] = machines.leader_and_isr(OTHER)
    assert request.is_new.tolist() == [1]
    assert machines.updated(B) == {("t", 0)}


def test_a_leader_cannot_be_a_new_replica(nodes: StateNodes, caplog: pytest.LogCaptureFixture) -> None:
    machines = led(nodes, NON_EXISTENT)
    change(machines, NEW, (0, B))
    assert machines.replica_state(0, B) == NON_EXISTENT
    assert machines.channel.sent == []
    assert len(caplog.records) == 1


def test_new_to_online_sends_nothing(nodes: StateNodes) -> None:
    machines = led(nodes, NEW)
    change(machines, ONLINE)
    assert machines.replica_state(0, B) == ONLINE
    assert machines.channel.sent == []


def test_new_to_online_joins_the_assignment(nodes: StateNodes) -> None:
    machines = led(nodes)
    machines.put_replica(0, 7, NEW)
    change(machines, ONLINE, (0, 7))
    assert machines.state.partitions.replicas[0].tolist() == [B, OTHER, 7]


@pytest.mark.parametrize("state", [ONLINE, OFFLINE, INELIGIBLE])
def test_online_is_sent_the_leader(nodes: StateNodes, state: ReplicaState) -> None:
    machines = led(nodes, state)
    change(machines, ONLINE)
    assert machines.replica_state(0, B) == ONLINE
    assert machines.recipients(LeaderAndIsrRequest) == {B}
    [request] = machines.leader_and_isr(B)
    assert request.is_new.tolist() == [0]
    assert machines.updated(OTHER) == {("t", 0)}


def test_new_to_offline_without_leader() -> None:
    machines = Machines(UnusedNodes())
    machines.add({0: [B]})
    machines.put_replica(0, B, NEW)
    change(machines, OFFLINE)
    assert machines.sent_stops(B) == {("t", 0): (-1, False)}
    # Metadata of partitions without a leader is left out, the live brokers are sent.
    assert machines.recipients(UpdateMetadataRequest) == {B}
    assert machines.replica_state(0, B) == OFFLINE


def test_online_to_offline(nodes: StateNodes, znodes: KazooClient) -> None:
    machines = led(nodes)
    change(machines, OFFLINE)
    assert znode(znodes, state_path()) == {
        "version": 1, "leader": -1, "leader_epoch": 1, "controller_epoch": 1, "isr": [OTHER], "zk_version": 1,
    }  # fmt: skip
    assert machines.leadership() == {
        "leader": -1, "leader_epoch": 1, "partition_epoch": 1, "controller_epoch": 1, "recovery_state": 0,
        "isr": [OTHER],
    }  # fmt: skip
    # The leader epoch from before the change, and no deletion.
    assert machines.sent_stops(B) == {("t", 0): (0, False)}
    assert machines.recipients(LeaderAndIsrRequest) == {OTHER}
    assert machines.sent_leaders(OTHER) == {("t", 0): (-1, [OTHER])}
    assert machines.updated(B) == machines.updated(OTHER) == {("t", 0)}
    assert machines.replica_state(0, B) == OFFLINE


def test_a_follower_leaves_the_isr_and_the_leader_stays(nodes: StateNodes) -> None:
    machines = led(nodes)
    change(machines, OFFLINE, (0, OTHER))
    leadership = machines.leadership()
    assert (leadership["leader"], leadership["leader_epoch"], leadership["isr"]) == (B, 1, [B])


def test_the_last_member_stays_in_the_isr(nodes: StateNodes, znodes: KazooClient) -> None:
    machines = Machines(nodes, brokers=(OTHER,))
    machines.add({0: [B, OTHER]})
    machines.lead(0, B, [B])
    machines.put_replica(0, B, ONLINE)
    change(machines, OFFLINE)
    found = znode(znodes, state_path())
    assert (found["leader"], found["leader_epoch"], found["isr"]) == (-1, 1, [B])


def test_each_replica_that_leaves_costs_one_leader_epoch(nodes: StateNodes, znodes: KazooClient) -> None:
    machines = Machines(nodes, brokers=(1,))
    machines.add({0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 2]})
    machines.lead(0, 1, [1, 2, 3])
    machines.lead(1, 2, [2, 1])
    machines.lead(2, 3, [3, 2])
    dead = [(0, 2), (0, 3), (1, 2), (1, 3), (2, 2), (2, 3)]
    machines.context.put_replica_states(*pairs(*dead), ONLINE)
    change(machines, OFFLINE, *dead)
    found = [znode(znodes, state_path(number)) for number in range(3)]
    assert [(one["leader"], one["leader_epoch"], one["isr"]) for one in found] == [
        (1, 2, [1]),
        (-1, 1, [1]),
        # Broker 2 leaves first, so 3 is the last member.
        (-1, 2, [3]),
    ]
    assert machines.sent_leaders(1) == {("t", 0): (1, [1]), ("t", 1): (-1, [1])}


def test_a_replica_outside_the_isr_costs_no_write(nodes: StateNodes, znodes: KazooClient) -> None:
    machines = Machines(nodes, epoch=1, brokers=(B, OTHER))
    machines.add({0: [B, OTHER]})
    machines.lead(0, B, [B])
    machines.put_replica(0, OTHER, ONLINE)
    machines.context.epoch = 2
    change(machines, OFFLINE, (0, OTHER))
    assert znode(znodes, state_path())["zk_version"] == 0
    assert machines.replica_state(0, OTHER) == OFFLINE
    # The request has the epoch of this controller, the node that of the one before.
    [request] = machines.leader_and_isr(B)
    assert request.partitions.controller_epoch.tolist() == [2]
    assert znode(znodes, state_path())["controller_epoch"] == 1


def test_topics_to_delete_are_sent_no_leader(nodes: StateNodes) -> None:
    machines = led(nodes)
    machines.context.queue_topic_deletion(["t"])
    change(machines, OFFLINE)
    assert machines.recipients(LeaderAndIsrRequest) == set()
    assert machines.sent_stops(B) == {("t", 0): (-2, False)}
    assert machines.replica_state(0, B) == OFFLINE


def test_deletion_is_sent_to_the_replica(nodes: StateNodes) -> None:
    machines = led(nodes, OFFLINE)
    change(machines, STARTED)
    assert machines.sent_stops(B) == {("t", 0): (0, True)}
    assert machines.recipients(StopReplicaRequest) == {B}


def test_a_deleted_replica_leaves_the_assignment() -> None:
    machines = Machines(UnusedNodes())
    machines.add({0: [B, OTHER, 7]})
    machines.state.update(0, adding=[B, 7], removing=[B])
    machines.put_replica(0, B, SUCCESSFUL)
    machines.put_replica(0, 7, SUCCESSFUL)
    change(machines, NON_EXISTENT, (0, B), (0, 7))
    partitions = machines.state.partitions
    assert partitions.adding is not None
    assert partitions.removing is not None
    assert partitions.replicas[0].tolist() == [OTHER]
    assert partitions.adding[0].tolist() == partitions.removing[0].tolist() == []
    assert len(machines.context.replicas) == 0


# -- state nodes that others wrote, and faults


def test_a_bad_version_is_read_back_and_removed_again(nodes: StateNodes, znodes: KazooClient) -> None:
    faulty = FaultyNodes(nodes)
    machines = led(faulty)
    shrunk = StateNode(OTHER, 4, 1, [OTHER, B])
    faulty.before_update = lambda: znodes.set(state_path(), encode_partition_state(shrunk))
    change(machines, OFFLINE)
    assert znode(znodes, state_path()) == {
        "version": 1, "leader": OTHER, "leader_epoch": 5, "controller_epoch": 1, "isr": [OTHER],
        "zk_version": 2,
    }  # fmt: skip
    assert machines.sent_leaders(OTHER) == {("t", 0): (OTHER, [OTHER])}


def test_the_state_node_decides_who_is_outside_the_isr(nodes: StateNodes, znodes: KazooClient) -> None:
    """The leader has expanded the ISR, and its notification has not been processed yet."""
    machines = Machines(nodes, brokers=(B, OTHER))
    machines.add({0: [B, OTHER]})
    machines.lead(0, B, [B])
    machines.put_replica(0, OTHER, ONLINE)
    znodes.set(state_path(), encode_partition_state(StateNode(B, 0, 1, [B, OTHER])))
    change(machines, OFFLINE, (0, OTHER))
    assert znode(znodes, state_path())["isr"] == [B]
    assert machines.leadership()["partition_epoch"] == 2


def test_a_node_of_a_later_controller_is_left_alone(
    nodes: StateNodes, znodes: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    machines = led(nodes)
    znodes.set(state_path(), encode_partition_state(StateNode(7, 9, 2, [7])))
    change(machines, OFFLINE)
    assert znode(znodes, state_path())["leader"] == 7
    assert machines.replica_state(0, B) == ONLINE
    assert "later epoch" in str(caplog.records[0].exc_info)


def test_a_missing_node_fails_its_own_replicas_only(
    nodes: StateNodes, znodes: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    machines = Machines(nodes, brokers=(B, OTHER))
    machines.add({0: [B, OTHER], 1: [B, OTHER]})
    for row in (0, 1):
        machines.lead(row, OTHER, [OTHER, B])
        machines.put_replica(row, B, ONLINE)
    znodes.delete(state_path(0))
    change(machines, OFFLINE, (0, B), (1, B))
    assert machines.replica_state(0, B) == ONLINE
    assert machines.replica_state(1, B) == OFFLINE
    assert len(caplog.records) == 1


def test_zookeeper_fails(nodes: StateNodes, caplog: pytest.LogCaptureFixture) -> None:
    faulty = FaultyNodes(nodes)
    machines = led(faulty)
    faulty.failing = {"update"}
    change(machines, OFFLINE, (0, B), (0, OTHER))
    assert machines.replica_state(0, B) == machines.replica_state(0, OTHER) == ONLINE
    assert len(caplog.records) == 2
    assert machines.recipients(LeaderAndIsrRequest) == set()


@pytest.mark.parametrize("error", [ControllerMovedError, SessionExpiredError])
def test_the_end_of_the_term_ends_the_change_and_the_batch(
    nodes: StateNodes, error: type[CtrlchanError]
) -> None:
    faulty = FaultyNodes(nodes)
    machines = led(faulty)
    faulty.failing, faulty.error = {"update"}, error("the term has ended")
    with pytest.raises(error):
        change(machines, OFFLINE)
    assert machines.channel.sent == []
    machines.batch.new_batch()


def test_log_lines_are_those_of_kafka(nodes: StateNodes, caplog: pytest.LogCaptureFixture) -> None:
    machines = led(nodes)
    with caplog.at_level(logging.INFO, "state.change.logger"):
        change(machines, OFFLINE)
    assert caplog.records[0].getMessage() == (
        "[Controller id=1000 epoch=1] Partition t-0 state changed to (Leader:-1,ISR:6,LeaderRecoveryState:"
        "RECOVERED,LeaderEpoch:1,ZkVersion:1,ControllerEpoch:1) after removing replica 5 from the ISR as "
        "part of transition to OfflineReplica"
    )
