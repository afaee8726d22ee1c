"""The partition state machine on a real ZooKeeper: twins of PartitionStateMachineTest, and more."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from kazoo.client import KazooClient

from ctrlchan._codec import LeaderAndIsrRequest
from ctrlchan.controller.machines.leader_election import RECOVERING, Strategy
from ctrlchan.controller.machines.leadership import StateNodes
from ctrlchan.controller.machines.states import PartitionState
from ctrlchan.errors import (
    ControllerMovedError,
    CtrlchanError,
    ErrorCode,
    IllegalStateError,
    SessionExpiredError,
)
from ctrlchan.zookeeper.nodes import PartitionState as StateNode
from ctrlchan.zookeeper.nodes import encode_partition_state
from tests.unit.controller.faulty_nodes import FaultyNodes, UnusedNodes
from tests.unit.controller.machines import Machines, rows, state_path, znode

B = 5
OTHER = 6
NON_EXISTENT, NEW, ONLINE, OFFLINE = PartitionState


def with_partition(state: PartitionState) -> Machines:
    """Return a cluster with one partition in this state, whose state nodes must not be touched."""
    machines = Machines(UnusedNodes())
    machines.add({0: [B]})
    machines.put_partition(0, state)
    return machines


def change(machines: Machines, target: PartitionState, strategy: Strategy | None = None) -> None:
    if target is ONLINE and strategy is None:
        strategy = Strategy.OFFLINE
    machines.partitions.handle_state_changes(machines.context.all_rows, target, strategy)


# -- transitions without state nodes


@pytest.mark.parametrize(
    ("state", "target"),
    [
        (NON_EXISTENT, NEW),
        (NEW, OFFLINE),
        (ONLINE, OFFLINE),
        (OFFLINE, OFFLINE),
        (OFFLINE, NON_EXISTENT),
    ],
)
def test_valid_transition(state: PartitionState, target: PartitionState) -> None:
    machines = with_partition(state)
    change(machines, target)
    assert machines.partition_state() == target
    assert machines.channel.sent == []


@pytest.mark.parametrize(
    ("state", "target"),
    [
        (NON_EXISTENT, ONLINE),
        (NON_EXISTENT, OFFLINE),
        (NON_EXISTENT, NON_EXISTENT),
        (NEW, NON_EXISTENT),
        (NEW, NEW),
        (ONLINE, NON_EXISTENT),
        (ONLINE, NEW),
        (OFFLINE, NEW),
    ],
)
def test_invalid_transition(
    state: PartitionState, target: PartitionState, caplog: pytest.LogCaptureFixture
) -> None:
    machines = with_partition(state)
    change(machines, target)
    assert machines.partition_state() == state
    [record] = caplog.records
    assert record.getMessage() == (
        "[Controller id=1000 epoch=1] Controller 1000 epoch 1 failed to change state for partition t-0 from "
        f"{state.kafka_name} to {target.kafka_name}"
    )
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], IllegalStateError)


def test_valid_and_invalid_rows_of_one_call(caplog: pytest.LogCaptureFixture) -> None:
    machines = Machines(UnusedNodes())
    machines.add({number: [B] for number in range(4)})
    machines.context.partition_states[:] = [NEW, NON_EXISTENT, ONLINE, NON_EXISTENT]
    machines.partitions.handle_state_changes(rows(3, 0, 1, 1), OFFLINE)
    assert machines.context.partition_states.tolist() == [OFFLINE, NON_EXISTENT, ONLINE, NON_EXISTENT]
    assert len(caplog.records) == 2


def test_no_rows_are_no_batch() -> None:
    machines = Machines(UnusedNodes())
    elections = machines.partitions.handle_state_changes(rows(), ONLINE, Strategy.OFFLINE)
    assert elections.rows.tolist() == []


def test_online_needs_a_strategy() -> None:
    machines = with_partition(OFFLINE)
    with pytest.raises(ValueError, match="strategy"):
        machines.partitions.handle_state_changes(rows(0), ONLINE)


# -- first leaders


def test_new_to_online(nodes: StateNodes, znodes: KazooClient) -> None:
    machines = Machines(nodes, brokers=(B, OTHER))
    machines.add({0: [B, 9, OTHER]})
    machines.put_partition(0, NEW)
    change(machines, ONLINE)
    assert machines.partition_state() == ONLINE
    assert znode(znodes, state_path()) == {
        "version": 1, "leader": B, "leader_epoch": 0, "controller_epoch": 1, "isr": [B, OTHER],
        "zk_version": 0,
    }  # fmt: skip
    assert machines.leadership() == {
        "leader": B, "leader_epoch": 0, "partition_epoch": 0, "controller_epoch": 1, "recovery_state": 0,
        "isr": [B, OTHER],
    }  # fmt: skip
    assert machines.recipients(LeaderAndIsrRequest) == {B, OTHER}
    [request] = machines.leader_and_isr(OTHER)
    assert request.is_new.tolist() == [1]
    assert machines.updated(B) == machines.updated(OTHER) == {("t", 0)}


def test_new_to_online_without_an_online_replica(caplog: pytest.LogCaptureFixture) -> None:
    machines = Machines(UnusedNodes())
    machines.add({0: [8, 9]})
    machines.put_partition(0, NEW)
    change(machines, ONLINE)
    assert machines.partition_state() == NEW
    assert "live brokers [5]" in str(caplog.records[0].exc_info)


def test_new_to_online_when_zookeeper_fails(nodes: StateNodes, caplog: pytest.LogCaptureFixture) -> None:
    faulty = FaultyNodes(nodes)
    faulty.failing = {"create"}
    machines = Machines(faulty)
    machines.add({0: [B]})
    machines.put_partition(0, NEW)
    change(machines, ONLINE)
    assert machines.partition_state() == NEW
    assert machines.channel.sent == []
    assert "the connection is lost" in str(caplog.records[0].exc_info)


def test_new_to_online_when_the_state_node_exists(
    nodes: StateNodes, znodes: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    machines = Machines(nodes)
    machines.add({0: [B], 1: [B]})
    machines.context.partition_states[:] = NEW
    znodes.create(state_path(0), b"{}", makepath=True)
    change(machines, ONLINE)
    assert machines.context.partition_states.tolist() == [NEW, ONLINE]
    assert machines.sent_leaders(B) == {("t", 1): (B, [B])}
    assert len(caplog.records) == 1


# -- elections


def test_online_to_online_by_the_preferred_replica(nodes: StateNodes, znodes: KazooClient) -> None:
    machines = Machines(nodes)
    machines.add({0: [B]})
    machines.lead(0, B, [B])
    machines.put_partition(0, ONLINE)
    change(machines, ONLINE, Strategy.PREFERRED)
    assert machines.partition_state() == ONLINE
    assert znode(znodes, state_path())["leader_epoch"] == 1
    leadership = machines.leadership()
    assert (leadership["leader"], leadership["leader_epoch"], leadership["partition_epoch"]) == (B, 1, 1)
    [request] = machines.leader_and_isr(B)
    assert request.partitions.leader_epoch.tolist() == [1]
    assert request.is_new.tolist() == [0]


def test_online_to_online_for_controlled_shutdown(nodes: StateNodes) -> None:
    machines = Machines(nodes, brokers=(B, OTHER))
    machines.add({0: [B, OTHER]})
    machines.lead(0, B, [B, OTHER])
    machines.put_partition(0, ONLINE)
    machines.state.set_shutting_down([B])
    change(machines, ONLINE, Strategy.CONTROLLED_SHUTDOWN)
    # The broker that shuts down is sent the new leader too.
    for one in (B, OTHER):
        assert machines.sent_leaders(one) == {("t", 0): (OTHER, [OTHER])}
    assert machines.partition_state() == ONLINE


def test_offline_to_online(nodes: StateNodes, znodes: KazooClient) -> None:
    machines = Machines(nodes)
    machines.add({0: [B]})
    machines.lead(0, -1, [B])
    machines.put_partition(0, OFFLINE)
    change(machines, ONLINE)
    assert machines.partition_state() == ONLINE
    assert znode(znodes, state_path())["leader"] == B
    assert machines.sent_leaders(B) == {("t", 0): (B, [B])}
    # The configuration matters only when no member of the ISR is online.
    assert machines.configs_asked == []


@pytest.mark.parametrize("recovery_supported", [True, False])
@pytest.mark.parametrize("by_configuration", [True, False])
def test_offline_to_online_uncleanly(
    nodes: StateNodes, znodes: KazooClient, recovery_supported: bool, by_configuration: bool
) -> None:
    machines = Machines(nodes, recovery_supported=recovery_supported)
    machines.add({0: [OTHER, B]})
    machines.lead(0, OTHER, [OTHER])
    machines.put_partition(0, OFFLINE)
    if by_configuration:
        machines.unclean_topics = {b"t"}
        change(machines, ONLINE, Strategy.OFFLINE)
    else:
        change(machines, ONLINE, Strategy.OFFLINE_UNCLEAN)
    assert machines.configs_asked == ([b"t"] if by_configuration else [])
    found = znode(znodes, state_path())
    assert (found["leader"], found["isr"]) == (B, [B])
    assert found.get("leader_recovery_state") == (RECOVERING if recovery_supported else None)
    assert machines.sent_leaders(B) == {("t", 0): (B, [B])}
    assert machines.context.unclean_elections == 1


def test_offline_stays_offline_when_zookeeper_fails(nodes: StateNodes) -> None:
    for number, call in enumerate(("read", "update")):
        faulty = FaultyNodes(nodes)
        machines = Machines(faulty)
        machines.add({number: [B]})
        machines.lead(0, -1, [] if call == "read" else [B])
        machines.put_partition(0, OFFLINE)
        faulty.failing = {call}
        elections = machines.partitions.handle_state_changes(rows(0), ONLINE, Strategy.OFFLINE)
        assert elections.error.tolist() == [ErrorCode.UNKNOWN_SERVER_ERROR]
        assert machines.partition_state() == OFFLINE
        assert machines.channel.sent == []


def test_offline_stays_offline_without_a_state_node(nodes: StateNodes, znodes: KazooClient) -> None:
    machines = Machines(nodes)
    machines.add({0: [B]})
    machines.put_partition(0, OFFLINE)
    elections = machines.partitions.handle_state_changes(rows(0), ONLINE, Strategy.OFFLINE)
    assert elections.error.tolist() == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]
    assert machines.partition_state() == OFFLINE

    machines.lead(0, -1, [B])
    znodes.delete(state_path())
    elections = machines.partitions.handle_state_changes(rows(0), ONLINE, Strategy.PREFERRED)
    assert elections.error[0] != 0
    assert machines.partition_state() == OFFLINE


@pytest.mark.parametrize(
    "data",
    [
        b"{not JSON",
        b"",
        b'{"version":1,"leader":5,"leader_epoch":0,"controller_epoch":1}',
        encode_partition_state(StateNode(-7, 0, 1, [5])),
        encode_partition_state(StateNode(5, -9, 1, [5])),
        encode_partition_state(StateNode(5, 0, 1, [-1, 5])),
        encode_partition_state(StateNode(5, 0, 1, [5], 7)),
        encode_partition_state(StateNode(2**40, 0, 1, [5])),
    ],
)
def test_a_malformed_state_node_stops_its_own_election_only(
    nodes: StateNodes, znodes: KazooClient, data: bytes
) -> None:
    machines = Machines(nodes)
    machines.add({0: [B], 1: [B]})
    machines.lead(1, -1, [B])
    znodes.create(state_path(0), data, makepath=True)
    machines.context.partition_states[:] = OFFLINE
    elections = machines.partitions.handle_state_changes(rows(0, 1), ONLINE, Strategy.OFFLINE)
    assert elections.error.tolist() == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, 0]
    assert elections.elected.tolist() == [1]
    assert machines.context.partition_states.tolist() == [OFFLINE, ONLINE]


def test_errors_per_partition(nodes: StateNodes, caplog: pytest.LogCaptureFixture) -> None:
    machines = Machines(nodes, brokers=(B, OTHER))
    machines.add({0: [B, OTHER], 1: [OTHER, 9], 2: [B, OTHER]})
    machines.lead(0, OTHER, [OTHER])
    machines.lead(1, OTHER, [OTHER])
    machines.lead(2, OTHER, [B, OTHER])
    machines.context.partition_states[:] = ONLINE
    elections = machines.partitions.handle_state_changes(rows(0, 1, 2), ONLINE, Strategy.PREFERRED)
    assert elections.error.tolist() == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 0, 0]
    assert machines.state.partitions.leader.tolist() == [OTHER, OTHER, B]
    [record] = caplog.records
    assert "t-0 from OnlinePartition to OnlinePartition" in record.getMessage()


def test_reassignment_sends_to_target_replicas(nodes: StateNodes) -> None:
    machines = Machines(nodes, brokers=(1, 2, 3))
    machines.add({0: [2, 3, 1]})
    machines.state.update(0, adding=[2], removing=[1])
    machines.lead(0, 1, [1, 3])
    machines.put_partition(0, ONLINE)
    change(machines, ONLINE, Strategy.REASSIGN)
    assert machines.leadership()["leader"] == 3
    assert machines.leadership()["isr"] == [1, 3]
    assert machines.recipients(LeaderAndIsrRequest) == {2, 3}


# -- state nodes that brokers write


def broker_writes(client: KazooClient, leader: int, isr: list[int], controller_epoch: int = 1) -> None:
    node = StateNode(leader, 0, controller_epoch, isr)
    client.set(state_path(), encode_partition_state(node))


def test_a_bad_version_is_read_back_and_elected_again(nodes: StateNodes, znodes: KazooClient) -> None:
    """The leader shrinks the ISR while the controller decides."""
    faulty = FaultyNodes(nodes)
    machines = Machines(faulty, brokers=(1, 2))
    machines.add({0: [9, 1, 2], 1: [9, 1]})
    machines.lead(0, 9, [9, 1, 2])
    machines.lead(1, 9, [9, 1])
    machines.context.partition_states[:] = OFFLINE
    faulty.before_update = lambda: broker_writes(znodes, 9, [9, 2])
    elections = machines.partitions.handle_state_changes(rows(0, 1), ONLINE, Strategy.OFFLINE)
    assert elections.error.tolist() == [0, 0]
    assert znode(znodes, state_path()) == {
        "version": 1, "leader": 2, "leader_epoch": 1, "controller_epoch": 1, "isr": [2], "zk_version": 2,
    }  # fmt: skip
    assert machines.leadership()["partition_epoch"] == 2
    assert faulty.updates == [2, 1]
    assert machines.sent_leaders(2) == {("t", 0): (2, [2])}


def test_the_state_node_decides_that_no_replica_may_lead(nodes: StateNodes, znodes: KazooClient) -> None:
    """The leader has expanded the ISR, and its notification has not been processed yet."""
    machines = Machines(nodes, brokers=(1, 2))
    machines.add({0: [9, 1]})
    machines.lead(0, 9, [9])
    broker_writes(znodes, 9, [9, 1])
    machines.put_partition(0, OFFLINE)
    change(machines, ONLINE)
    assert machines.leadership()["leader"] == 1
    assert machines.context.unclean_elections == 0


def test_a_node_of_a_later_controller_is_left_alone(nodes: StateNodes, znodes: KazooClient) -> None:
    faulty = FaultyNodes(nodes)
    machines = Machines(faulty)
    machines.add({0: [B]})
    machines.lead(0, -1, [B])
    machines.put_partition(0, OFFLINE)
    faulty.before_update = lambda: broker_writes(znodes, 7, [7], controller_epoch=2)
    elections = machines.partitions.handle_state_changes(rows(0), ONLINE, Strategy.OFFLINE)
    assert elections.error.tolist() == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]
    assert znode(znodes, state_path())["leader"] == 7
    assert machines.partition_state() == OFFLINE


# -- startup


def test_startup_takes_states_from_leaderships(nodes: StateNodes) -> None:
    machines = Machines(nodes, brokers=(1, 2))
    machines.add({0: [1, 2], 1: [9, 2], 2: [2, 1], 3: [9]})
    machines.lead(0, 1, [1, 2])
    machines.lead(1, 9, [9, 2])
    machines.lead(3, 9, [9])
    elections = machines.partitions.startup()
    assert machines.context.partition_states.tolist() == [ONLINE, ONLINE, ONLINE, OFFLINE]
    # Partition 2 is new, which is no election; partition 3 has no online replica.
    assert elections.rows.tolist() == [1, 3]
    assert machines.state.partitions.leader.tolist() == [1, 2, 2, 9]
    assert machines.state.partitions.leader_epoch.tolist() == [0, 1, 0, 0]
    assert machines.updated(1) == {("t", 1), ("t", 2)}


def test_topics_to_delete_get_no_leader() -> None:
    machines = Machines(UnusedNodes())
    machines.add({0: [B]})
    machines.context.queue_topic_deletion(["t"])
    assert machines.partitions.startup().rows.tolist() == []
    assert machines.partition_state() == NEW


def test_trigger_online_for_some_rows(nodes: StateNodes) -> None:
    machines = Machines(nodes)
    machines.add({0: [B], 1: [B], 2: [B]})
    machines.context.partition_states[:] = [NEW, NEW, NON_EXISTENT]
    machines.partitions.trigger_online(rows(1, 2))
    assert machines.context.partition_states.tolist() == [NEW, ONLINE, NON_EXISTENT]


# -- the number of offline partitions


def test_offline_partitions_are_counted(nodes: StateNodes) -> None:
    machines = Machines(nodes)
    machines.add({number: [B] for number in range(4)})
    for row in range(4):
        machines.lead(row, B, [B])
    change(machines, NEW)
    change(machines, OFFLINE)
    assert machines.context.offline_partition_count() == 4
    change(machines, ONLINE)
    assert machines.context.offline_partition_count() == 0


def test_topics_with_deletion_started_are_not_counted() -> None:
    machines = Machines(UnusedNodes())
    machines.add({number: [B] for number in range(4)})
    machines.context.queue_topic_deletion(["t"])
    machines.context.begin_topic_deletion(["t"])
    change(machines, NEW)
    change(machines, OFFLINE)
    assert machines.context.offline_partition_count() == 0


def test_the_deletion_of_a_topic_takes_its_offline_partitions_out_of_the_count() -> None:
    machines = Machines(UnusedNodes())
    machines.add({number: [B] for number in range(4)})
    machines.add({0: [B]}, topic="other")
    change(machines, NEW)
    change(machines, OFFLINE)
    assert machines.context.offline_partition_count() == 5
    machines.context.queue_topic_deletion(["t"])
    machines.context.begin_topic_deletion(["t"])
    assert machines.context.offline_partition_count() == 1


# -- what ends the term


@pytest.mark.parametrize("error", [ControllerMovedError, SessionExpiredError])
def test_the_end_of_the_term_ends_the_change_and_the_batch(
    nodes: StateNodes, error: type[CtrlchanError]
) -> None:
    faulty = FaultyNodes(nodes)
    machines = Machines(faulty)
    machines.add({0: [B], 1: [B]})
    machines.lead(1, -1, [B])
    machines.context.partition_states[:] = [NEW, OFFLINE]
    faulty.failing, faulty.error = {"update"}, error("the term has ended")
    with pytest.raises(error):
        change(machines, ONLINE)
    assert machines.channel.sent == []
    machines.batch.new_batch()


def test_another_error_is_an_illegal_state(nodes: StateNodes) -> None:
    """Otherwise brokers would never be sent a leader that was written."""
    machines = Machines(nodes, brokers=(B, OTHER))
    machines.add({0: [9, B], 1: [9, B]})
    machines.lead(1, 9, [9])
    machines.context.partition_states[:] = [NEW, OFFLINE]
    machines.unclean_election_error = RuntimeError("a defect")
    with pytest.raises(IllegalStateError, match="a defect"):
        change(machines, ONLINE)
    machines.batch.new_batch()


def test_requests_that_were_not_sent_before_are_an_illegal_state() -> None:
    machines = with_partition(NEW)
    machines.batch.add_update_metadata([B], ())
    with pytest.raises(IllegalStateError, match="the last batch was not sent"):
        change(machines, OFFLINE)
    machines.batch.new_batch()


def test_an_illegal_state_of_the_batch_is_raised_and_cleared(nodes: StateNodes) -> None:
    machines = Machines(nodes)
    machines.add({0: [B]})
    machines.put_partition(0, NEW)
    machines.channel.fail_at = {B}
    with pytest.raises(IllegalStateError, match="the channel is broken"):
        change(machines, ONLINE)
    machines.batch.new_batch()


# -- the state-change log


def test_log_lines_are_those_of_kafka(nodes: StateNodes, caplog: pytest.LogCaptureFixture) -> None:
    machines = Machines(nodes, brokers=(1, 2))
    machines.add({0: [1, 2]})
    with caplog.at_level(logging.INFO, "state.change.logger"):
        change(machines, NEW)
        change(machines, ONLINE)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[:2] == [
        "[Controller id=1000 epoch=1] Changed partition t-0 state from NonExistentPartition to NewPartition "
        "with assigned replicas 1,2",
        "[Controller id=1000 epoch=1] Changed partition t-0 from NewPartition to OnlinePartition with state "
        "LeaderAndIsr(leader=1, leaderEpoch=0, isrWithBrokerEpoch=List(BrokerState(brokerId=1, "
        "brokerEpoch=-1), BrokerState(brokerId=2, brokerEpoch=-1)), leaderRecoveryState=RECOVERED, "
        "partitionEpoch=0)",
    ]


def test_many_partitions_are_one_write_and_one_request_for_each_broker(nodes: StateNodes) -> None:
    faulty = FaultyNodes(nodes)
    machines = Machines(faulty, brokers=(1, 2, 3))
    machines.add({number: [number % 3 + 1, (number + 1) % 3 + 1] for number in range(60)})
    change(machines, NEW)
    change(machines, ONLINE)
    machines.channel.sent.clear()
    machines.state.remove_brokers([1])
    dead = machines.context.rows_with_offline_leader()
    machines.partitions.handle_state_changes(dead, OFFLINE)
    machines.partitions.trigger_online()
    assert faulty.updates == [len(dead)] == [20]
    assert faulty.reads == []
    assert not np.any(machines.state.partitions.leader == 1)
    assert len(machines.leader_and_isr(2)) == 1
    assert machines.recipients(LeaderAndIsrRequest) == {2}
