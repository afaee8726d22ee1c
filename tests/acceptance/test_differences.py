"""rows="changed" to real brokers: each is told what it lacks and no more, also one that has restarted."""

from __future__ import annotations

from ctrlchan import Outcome, OutcomeKind, Sent
from ctrlchan.errors import ErrorCode
from tests.acceptance.clients import metadata
from tests.acceptance.zk_controller import TIMEOUT, ZkController, broker_of, refused
from tests.kafka.rig import KafkaRig

KEPT, DROPPED = "differences-kept", "differences-dropped"
PARTITIONS = 5
RESTARTED = 3
ROUNDS = 20


def send_changed(controller: ZkController) -> list[Sent]:
    controller.batch.new_batch()
    controller.batch.add_update_metadata(controller.broker_ids, "changed")
    return controller.batch.send_requests_to_brokers(controller.znodes.controller_epoch)


def push_changed(controller: ZkController) -> dict[int, int]:
    """Broker id -> how many partitions it was told of; brokers that lacked nothing are not there."""
    outcomes = controller.channel.wait(send_changed(controller), timeout=TIMEOUT)
    assert refused(outcomes) == []
    return {outcome.broker_id: outcome.rows for outcome in outcomes}


def to_all(controller: ZkController, rows: int) -> dict[int, int]:
    return dict.fromkeys(controller.broker_ids, rows)


def change(controller: ZkController, partition: int) -> None:
    """Another leader epoch, which only metadata tells of."""
    row = controller.state.row(KEPT, partition)
    controller.state.update(row, leader_epoch=int(controller.state.partitions.leader_epoch[row]) + 1)


def check(kafka: KafkaRig, controller: ZkController) -> None:
    """Every broker tells clients what the state says."""
    columns, rows = controller.state.partitions, controller.state.rows_of_topic(KEPT)
    for broker_id in kafka.broker_ids:
        view = metadata(kafka, broker_id, [KEPT])[KEPT]
        assert {p: (one.leader, one.leader_epoch, one.offline) for p, one in view.partitions.items()} == {
            int(columns.partition[row]): (columns.leader[row], columns.leader_epoch[row], ())
            for row in range(rows.start, rows.stop)
        }, broker_id


def test_differences_to_real_brokers(kafka: KafkaRig, controller: ZkController) -> None:
    assignment = {partition: [1, 2, 3] for partition in range(PARTITIONS)}
    assert refused(controller.create_topic(KEPT, assignment)) == []
    assert refused(controller.create_topic(DROPPED, assignment)) == []

    # What it was told before somebody asked for differences does not count: everything, once.
    # Both topics, and what other tests have left or deleted on this cluster.
    first = push_changed(controller)
    assert sorted(first) == sorted(controller.broker_ids)
    assert min(first.values()) >= 2 * PARTITIONS
    assert push_changed(controller) == {}
    check(kafka, controller)

    for number in range(ROUNDS):
        change(controller, number % PARTITIONS)
        assert push_changed(controller) == to_all(controller, 1)
    check(kafka, controller)

    # A topic that goes is told to go; the brokers' replicas of it go with StopReplica before.
    assert refused(controller.delete_topic(DROPPED)) == []
    push_changed(controller)
    assert push_changed(controller) == {}
    for broker_id in kafka.broker_ids:
        told = metadata(kafka, broker_id, [DROPPED])[DROPPED]
        assert told.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    check(kafka, controller)

    # Killed in the middle of a stream that nobody waits for.
    sent: list[Sent] = []
    former = kafka.broker(RESTARTED)
    for number in range(ROUNDS):
        change(controller, number % PARTITIONS)
        sent += send_changed(controller)
        if number == ROUNDS // 2:
            kafka.kill_broker(RESTARTED)
    now = kafka.restart_broker(RESTARTED)
    assert now.epoch > former.epoch
    controller.state.add_brokers([broker_of(now)])
    controller.channel.add_broker(broker_of(now))
    change(controller, 0)
    last = controller.channel.wait(send_changed(controller), timeout=TIMEOUT)
    assert refused(last) == []
    # Of the restarted one nothing is known, so it is told what is gone as well; the others lack one row.
    rows = {outcome.broker_id: outcome.rows for outcome in last}
    assert rows.pop(RESTARTED) >= 2 * PARTITIONS
    assert set(rows.values()) == {1}
    assert sorted([*rows, RESTARTED]) == sorted(controller.broker_ids)
    check_ends(controller.channel.wait(sent, timeout=TIMEOUT))
    assert push_changed(controller) == {}
    check(kafka, controller)

    # It has its replicas again, as from any controller, before others of this session need it.
    assert refused(controller.broker_is_back(RESTARTED)) == []
    assert refused(controller.delete_topic(KEPT)) == []


def check_ends(outcomes: list[Outcome]) -> None:
    """What its former life was owed ended with it, or was refused by the new one; nobody missed anything."""
    others = [outcome for outcome in outcomes if outcome.kind is not OutcomeKind.ACKNOWLEDGED]
    assert {outcome.broker_id for outcome in others} <= {RESTARTED}
    assert {outcome.kind for outcome in others} <= {OutcomeKind.BROKER_GONE, OutcomeKind.FENCED}
