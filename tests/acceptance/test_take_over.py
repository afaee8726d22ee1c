"""From the JVM controller's hands into ours, and a broker that comes back from the dead."""

from __future__ import annotations

import json

from ctrlchan import OutcomeKind
from ctrlchan.errors import ErrorCode
from tests.acceptance.clients import metadata, produce
from tests.acceptance.inherited import Inherited
from tests.acceptance.zk_controller import ZkController, broker_of, refused
from tests.acceptance.znodes import TakeOver
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until


def test_the_jvm_controller_resigns(kafka: KafkaRig, controller: ZkController, take_over: TakeOver) -> None:
    former = take_over.former_controller
    assert former in kafka.broker_ids
    assert former is not None
    wait_until(
        lambda: any("Resigned" in line for line in kafka.log_lines(former, "controller.log")),
        what=f"broker {former} resigns as controller",
    )
    assert kafka.jvm_controller() == controller.znodes.controller_id
    seat, _ = kafka.zookeeper.get("/controller")
    assert json.loads(seat)["version"] == 2
    assert take_over.epoch == take_over.former_epoch + 1


def test_topics_of_the_jvm_controller_are_taken_over(
    kafka: KafkaRig, controller: ZkController, inherited: Inherited
) -> None:
    """The state read from ZooKeeper is the one that the former controller has sent to the brokers."""
    topic, columns = inherited.topic, inherited.state.partitions
    for broker_id in kafka.broker_ids:
        view = metadata(kafka, broker_id, [topic])[topic]
        assert (view.error, view.topic_id) == (0, inherited.state.topics.ids[0].tobytes())
        assert len(view.partitions) == inherited.partitions
        for row, partition in enumerate(columns.partition.tolist()):
            shown = view.partitions[partition]
            assert (shown.leader, shown.leader_epoch) == (columns.leader[row], columns.leader_epoch[row])
            assert list(shown.replicas) == columns.replicas[row].tolist()
            assert list(shown.isr) == columns.isr[row].tolist()
    outcomes = controller.move_leader(topic, 0, int(columns.replicas[0][1]))
    assert refused(outcomes) == []


def test_a_killed_broker_comes_back(kafka: KafkaRig, controller: ZkController) -> None:
    topic = "comes-back"
    assert refused(controller.create_topic(topic, {0: [1, 3], 1: [3, 1]})) == []
    assert refused(controller.move_leader(topic, 1, 1)) == []
    former = kafka.broker(3)
    kafka.kill_broker(3)
    now = kafka.restart_broker(3)
    assert now.epoch > former.epoch
    # What is meant for its former life does not reach it: our epoch of it is still the old one.
    controller.channel.remove_broker(3)
    controller.channel.add_broker(broker_of(former))
    controller.batch.new_batch()
    controller.batch.add_update_metadata([3], rows="all")
    (fenced,) = controller.send()
    assert (fenced.kind, fenced.error_code) == (OutcomeKind.FENCED, ErrorCode.STALE_BROKER_EPOCH)

    assert refused(controller.broker_is_back(3)) == []
    view = metadata(kafka, 3, [topic])[topic]
    assert [view.partitions[p].leader for p in (0, 1)] == [1, 1]
    # Acknowledged by all in-sync replicas: broker 3 follows again.
    produce(kafka.bootstrap, topic, [b"after the restart"], partition=0)
    assert refused(controller.move_leader(topic, 1, 3)) == []
    produce(kafka.bootstrap, topic, [b"to the restarted one"], partition=1)
    assert refused(controller.delete_topic(topic)) == []
