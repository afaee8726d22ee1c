"""A broker is killed and restarted in the middle of a stream of updates: at the end all brokers agree."""

from __future__ import annotations

from dataclasses import replace

from ctrlchan import Outcome, OutcomeKind, Sent
from tests.acceptance.clients import metadata
from tests.acceptance.zk_controller import TIMEOUT, ZkController, broker_of, refused
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until

TOPIC = "restarted"
PARTITIONS = 6
RESTARTED = 2
#: Leaders are moved so often before the broker is killed, while it is away, and after it is back.
MOVES = 30


def test_a_broker_restarted_during_a_stream_of_updates(kafka: KafkaRig, controller: ZkController) -> None:
    others = [broker_id for broker_id in kafka.broker_ids if broker_id != RESTARTED]
    assignment = {partition: [*others, RESTARTED] for partition in range(PARTITIONS)}
    assert refused(controller.create_topic(TOPIC, assignment)) == []
    former = kafka.broker(RESTARTED)
    stream = Stream(controller)
    stream.move(MOVES, others)
    # Nobody waits for an answer: some requests are on their way, others are queued.
    kafka.kill_broker(RESTARTED)
    stream.move(MOVES, others)
    described = controller.channel.describe()["brokers"]
    assert described[RESTARTED]["queue_size"] > 0
    now = kafka.restart_broker(RESTARTED)
    stream.move(MOVES, others)

    # The registration shows that the broker has restarted; the channel alone cannot see that.
    assert now.epoch > former.epoch
    assert refused(controller.broker_is_back(RESTARTED)) == []
    stream.move(MOVES, others)
    outcomes = stream.outcomes()
    gone = [outcome for outcome in outcomes if outcome.kind is not OutcomeKind.ACKNOWLEDGED]
    # Requests for its former generation ended with it, or the new one refused them; others missed none.
    assert {outcome.broker_id for outcome in gone} == {RESTARTED}
    assert {outcome.kind for outcome in gone} <= {OutcomeKind.BROKER_GONE, OutcomeKind.FENCED}
    assert controller.channel.describe()["brokers"][RESTARTED]["broker_epoch"] == now.epoch
    assert broker_of(now) == broker_of(kafka.broker(RESTARTED))

    # The ISR is not compared: the leaders write it to ZooKeeper as the replicas catch up.
    views = {broker_id: metadata(kafka, broker_id, [TOPIC])[TOPIC] for broker_id in kafka.broker_ids}
    columns, rows = controller.state.partitions, controller.state.rows_of_topic(TOPIC)
    for view in views.values():
        assert view == views[RESTARTED]
        assert {p: (one.leader, one.leader_epoch) for p, one in view.partitions.items()} == {
            int(columns.partition[row]): (columns.leader[row], columns.leader_epoch[row])
            for row in range(rows.start, rows.stop)
        }
        assert all(one.offline == () for one in view.partitions.values())
    wait_until(lambda: not controller.channel.describe()["total_queue_size"], what="all queues are empty")
    assert refused(controller.delete_topic(TOPIC)) == []


class Stream:
    """Leaders that move, in ZooKeeper and in requests to all brokers that nobody waits for."""

    def __init__(self, controller: ZkController) -> None:
        self._controller = controller
        self._sent: list[Sent] = []
        self._count = 0

    def move(self, times: int, leaders: list[int]) -> None:
        controller = self._controller
        for _ in range(times):
            partition, leader = self._count % PARTITIONS, leaders[self._count // PARTITIONS % len(leaders)]
            self._count += 1
            before = controller.znodes.partition_state(TOPIC, partition)
            now = controller.znodes.set_partition_state(
                TOPIC, partition, replace(before, leader=leader, leader_epoch=before.leader_epoch + 1)
            )
            row = controller.state.row(TOPIC, partition)
            controller.state.update(
                row,
                leader=now.leader,
                leader_epoch=now.leader_epoch,
                partition_epoch=now.version,
                controller_epoch=now.controller_epoch,
                isr=[list(now.isr)],
            )
            controller.batch.new_batch()
            controller.batch.add_leader_and_isr(controller.state.partitions.replicas[row].tolist(), row)
            self._sent += controller.batch.send_requests_to_brokers(controller.znodes.controller_epoch)

    def outcomes(self) -> list[Outcome]:
        return self._controller.channel.wait(self._sent, timeout=TIMEOUT)
