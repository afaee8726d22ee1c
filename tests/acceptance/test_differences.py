"""rows="changed" to real brokers: each gets its missing metadata and no more, also after a restart."""

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
    """Broker id -> number of partitions sent to it; brokers without missing metadata are not there."""
    outcomes = controller.channel.wait(send_changed(controller), timeout=TIMEOUT)
    assert refused(outcomes) == []
    return {outcome.broker_id: outcome.rows for outcome in outcomes}


def to_all(controller: ZkController, rows: int) -> dict[int, int]:
    return dict.fromkeys(controller.broker_ids, rows)


def change(controller: ZkController, partition: int) -> None:
    """A new leader epoch, sent by UpdateMetadata only."""
    row = controller.state.row(KEPT, partition)
    controller.state.update(row, leader_epoch=int(controller.state.partitions.leader_epoch[row]) + 1)


def check(kafka: KafkaRig, controller: ZkController) -> None:
    """Every broker shows clients the partitions of the state."""
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

    # Metadata sent before the first request for differences does not count: everything is sent once.
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

    # Removed topics are sent as deleted; StopReplica has deleted their replicas before.
    assert refused(controller.delete_topic(DROPPED)) == []
    push_changed(controller)
    assert push_changed(controller) == {}
    for broker_id in kafka.broker_ids:
        shown = metadata(kafka, broker_id, [DROPPED])[DROPPED]
        assert shown.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
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
    # The restarted broker has acknowledged nothing, so it gets deletions too; the others miss one row.
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
    """Requests for its former generation ended with it, or the new one refused them; no broker missed any."""
    others = [outcome for outcome in outcomes if outcome.kind is not OutcomeKind.ACKNOWLEDGED]
    assert {outcome.broker_id for outcome in others} <= {RESTARTED}
    assert {outcome.kind for outcome in others} <= {OutcomeKind.BROKER_GONE, OutcomeKind.FENCED}
