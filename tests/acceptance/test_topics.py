"""The life of topics on real brokers, by our requests alone."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition
from kazoo.exceptions import NoNodeError

from ctrlchan._codec import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from ctrlchan.errors import ErrorCode
from tests.acceptance.clients import consume, consuming, metadata, produce, producing, send_all, take
from tests.acceptance.zk_controller import ZkController, refused
from tests.kafka.rig import KafkaRig


def test_a_topic_is_created_written_and_read(kafka: KafkaRig, controller: ZkController) -> None:
    topic = "made-by-us"
    assignment = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}
    outcomes = controller.create_topic(topic, assignment)
    assert refused(outcomes) == []
    assert [o.api_key for o in outcomes] == [LEADER_AND_ISR] * 3 + [UPDATE_METADATA] * 3
    for broker_id in kafka.broker_ids:
        assert {f"{topic}-{p}" for p in assignment} <= kafka.data_folders(broker_id)
        view = metadata(kafka, broker_id, [topic])[topic]
        assert view.error == 0
        assert view.topic_id == controller.state.topics.ids[controller.state.topic_row(topic)].tobytes()
        for partition, replicas in assignment.items():
            seen = view.partitions[partition]
            assert (seen.error, seen.leader, seen.leader_epoch) == (0, replicas[0], 0)
            assert (seen.replicas, seen.isr, seen.offline) == (tuple(replicas), tuple(replicas), ())
    for partition in assignment:
        values = [b"%d-%d" % (partition, n) for n in range(50)]
        produce(kafka.bootstrap, topic, values, partition)
        assert consume(kafka.bootstrap, topic, partition, len(values)) == values
    assert refused(controller.delete_topic(topic)) == []


def test_clients_follow_the_leader(kafka: KafkaRig, controller: ZkController) -> None:
    topic = "moves"
    assert refused(controller.create_topic(topic, {0: [1, 2, 3]})) == []
    with producing(kafka.bootstrap) as producer, consuming(kafka.bootstrap, group="none") as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        for epoch, leader in enumerate([1, 2, 3, 1]):
            if epoch:
                outcomes = controller.move_leader(topic, 0, leader)
                assert refused(outcomes) == []
            for broker_id in kafka.broker_ids:
                seen = metadata(kafka, broker_id, [topic])[topic].partitions[0]
                assert (seen.leader, seen.leader_epoch) == (leader, epoch)
            values = [b"%d from %d" % (n, leader) for n in range(20)]
            send_all(producer, topic, values, partition=0)
            assert take(consumer, len(values)) == values
    assert refused(controller.delete_topic(topic)) == []


def test_a_consumer_group_finds_its_coordinator(kafka: KafkaRig, controller: ZkController) -> None:
    """The offsets topic is a topic like others; LeaderAndIsr makes its leader the coordinator."""
    topic = "in-a-group"
    assert refused(controller.create_topic(topic, {0: [1, 2]})) == []
    values = [b"%d" % n for n in range(10)]
    produce(kafka.bootstrap, topic, values, partition=0)
    with consuming(kafka.bootstrap, group="readers") as consumer:
        consumer.subscribe([topic])
        assert take(consumer, 4) == values[:4]
        consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    assert refused(controller.move_leader("__consumer_offsets", 0, 3)) == []
    with consuming(kafka.bootstrap, group="readers") as consumer:
        consumer.subscribe([topic])
        assert take(consumer, 6) == values[4:]
    assert refused(controller.delete_topic(topic)) == []


def test_a_deleted_topic_is_gone_everywhere(kafka: KafkaRig, controller: ZkController) -> None:
    topic = "goes"
    assignment = {0: [1, 2, 3], 1: [2, 1]}
    assert refused(controller.create_topic(topic, assignment)) == []
    produce(kafka.bootstrap, topic, [b"lost"], partition=0)
    outcomes = controller.delete_topic(topic)
    assert refused(outcomes) == []
    assert [o.api_key for o in outcomes] == [UPDATE_METADATA] * 3 + [STOP_REPLICA] * 6
    # Every deletion was confirmed, partition by partition, to the one who asked for it.
    assert {p: controller.deleted[topic, p] for p in assignment} == {p: set(r) for p, r in assignment.items()}
    for broker_id in kafka.broker_ids:
        folders = {name for name in kafka.data_folders(broker_id) if name.startswith(topic)}
        hosted = {p for p, replicas in assignment.items() if broker_id in replicas}
        assert {name.split(".")[0] for name in folders} == {f"{topic}-{p}" for p in hosted}
        assert all(name.endswith("-delete") for name in folders)
        view = metadata(kafka, broker_id, [topic])[topic]
        assert view.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(NoNodeError):
        kafka.zookeeper.get(f"/brokers/topics/{topic}")
