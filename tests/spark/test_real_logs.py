"""State-change logs that real Kafka brokers wrote, merged and explained: a partition made, moved and deleted,
under two controllers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.exceptions import NoNodeError
from pyspark.sql import SparkSession

from ctrlchan.pipeline import ExplainConfig, MergeLogsConfig, TopicPartition, explain, merge_logs
from ctrlchan.pipeline.jobs.merge_logs.entries import OTHER
from tests.kafka.fixtures import kafka_jars_ready
from tests.kafka.jars import java_command
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until

__all__ = ["kafka_jars_ready"]

_TOPIC = "moved-about.v1-2"
_REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


def _admin(rig: KafkaRig) -> AdminClient:
    """A new one each time: an old one still asks the controller that was."""
    return AdminClient({"bootstrap.servers": rig.bootstrap, "log_level": 2})


def _logged(rig: KafkaRig, broker: int, words: str) -> bool:
    return any(words in line for line in rig.log_lines(broker, "state-change.log"))


def _deletes(rig: KafkaRig, broker: int) -> bool:
    """As a broker: what it has said as the controller, of itself too, may not have arrived."""
    lines = rig.log_lines(broker, "state-change.log")
    return any(f"[Broker id={broker}]" in line and "deletePartition=true" in line for line in lines)


def _replicas(rig: KafkaRig) -> object:
    """Of partition 0, those that come and go included; None: there is no such topic."""
    try:
        data, _ = rig.zookeeper.get(f"/brokers/topics/{_TOPIC}")
    except NoNodeError:
        return None
    return json.loads(data)["partitions"]["0"]


@pytest.fixture(scope="module")
def real_logs(kafka_jars_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a rig that has gone through the partition's life; it has ended, its logs stay."""
    folder = tmp_path_factory.mktemp("kafka-logs")
    with KafkaRig(folder) as rig:
        wait_until(lambda: rig.jvm_controller() is not None, what="a controller is elected")
        assignment = [[1, 2], [2, 3], [3, 1]]
        topic = NewTopic(_TOPIC, len(assignment), replica_assignment=assignment)
        # It is kept until the answer is there: what its handle waits for ends with it.
        admin = _admin(rig)
        admin.create_topics([topic])[_TOPIC].result(timeout=60)
        _everywhere(rig, f"for partition {_TOPIC}-0 in response to UpdateMetadata")

        plan = {"version": 1, "partitions": [{"topic": _TOPIC, "partition": 0, "replicas": [3, 2]}]}
        (folder / "plan.json").write_text(json.dumps(plan))
        options = ("--bootstrap-server", rig.bootstrap, "--execute", "--reassignment-json-file")
        command = java_command(_REASSIGN, *options, str(folder / "plan.json"))
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        wait_until(lambda: _replicas(rig) == [3, 2], what="the partition has moved")
        wait_until(lambda: _deletes(rig, 1), what="broker 1 deletes its replica")

        before = rig.jvm_controller()
        epoch = _controller_epoch(rig)
        rig.zookeeper.delete("/controller")
        wait_until(lambda: _controller_epoch(rig) > epoch, what=f"a controller after {before} is elected")
        # By then it has told everybody all there is.
        _everywhere(rig, f"epoch {epoch + 1} with correlation id")

        wait_until(lambda: _deleted(rig), timeout=60, what="the topic is deleted")
        _everywhere(rig, f"Deleted partition {_TOPIC}-0 from metadata cache")
    return folder


def _controller_epoch(rig: KafkaRig) -> int:
    return int(rig.zookeeper.get("/controller_epoch")[0])


def _everywhere(rig: KafkaRig, words: str) -> None:
    wait_until(
        lambda: all(_logged(rig, broker, words) for broker in rig.broker_ids),
        timeout=60,
        what=f"every broker logs {words!r}",
    )


def _deleted(rig: KafkaRig) -> bool:
    if _replicas(rig) is None:
        return True
    # While the new controller settles, requests may still be refused.
    admin = _admin(rig)
    admin.delete_topics([_TOPIC])[_TOPIC].exception(timeout=30)
    return False


def test_every_line_is_an_entry(spark: SparkSession, real_logs: Path) -> None:
    with merge_logs(spark, MergeLogsConfig(logs=real_logs)) as merged:
        lines = sum(len(log.read_text().splitlines()) for log in real_logs.glob("*/state-change.log"))
        assert merged.counts.lines == merged.counts.entries == lines > 100
        assert merged.counts.rejected == 0
        unknown = merged.entries.where(f"event = '{OTHER}' OR broker IS NULL OR role IS NULL")
        assert unknown.collect() == []
        texts = list(merged.texts())
    # The head's time sorts as text does.
    assert [text[:25] for text in texts] == sorted(text[:25] for text in texts)


def test_the_story_is_right(spark: SparkSession, real_logs: Path) -> None:
    config = ExplainConfig(partition=TopicPartition.of(f"{_TOPIC}-0"), logs=MergeLogsConfig(logs=real_logs))
    story = explain(spark, config)
    assert story.faults == []
    assert len({reign.controller_epoch for reign in story.context.reigns}) == 2
    assert [one.kind for one in story.findings].count("controller_change") == 1

    (life,) = story.lives
    assert life.ended is not None
    # The last epochs are those in which the replicas of a topic that is deleted go offline.
    led = [step for step in story.steps if step.leader != -1]
    assert len(led) < len(story.steps)
    first, last = led[0], led[-1]
    assert (first.leader_epoch, first.leader, first.replicas) == (0, 1, [1, 2])
    assert (last.leader, last.replicas) == (3, [3, 2])
    assert [step.leader_epoch for step in story.steps] == list(range(len(story.steps)))
    for broker, applied_as in ((1, "leader"), (2, "follower")):
        part = first.brokers[broker]
        assert part.told is not None
        assert part.received is not None
        assert part.applied is not None
        assert part.applied_as == applied_as
    # Broker 3 came in with the move, broker 1 left with it.
    assert first.brokers[3].applied is None
    assert first.brokers[3].metadata is not None
    assert any(step.brokers[1].stop_received for step in story.steps if 1 in step.brokers)
    assert "leader" in {step.brokers[3].applied_as for step in led if 3 in step.brokers}

    deleted = [entry for entry in story.entries if entry.event == "metadata_deleted"]
    assert {entry.broker for entry in deleted} == {1, 2, 3}
    stopped = [entry for entry in story.entries if entry.event == "receive_stop_replica" and entry.delete]
    assert {entry.broker for entry in stopped} == {1, 2, 3}
    states = [entry.to_state for entry in story.entries if entry.event == "partition_state"]
    assert states[:2] == ["NewPartition", "OnlinePartition"]
    assert states[-1] == "NonExistentPartition"


def test_another_partition_has_another_story(spark: SparkSession, real_logs: Path) -> None:
    logs = MergeLogsConfig(logs=real_logs)
    story = explain(spark, ExplainConfig(partition=TopicPartition(_TOPIC, 1), logs=logs))
    assert {tuple(step.replicas) for step in story.steps if step.replicas} == {(2, 3)}
    assert (
        explain(spark, ExplainConfig(partition=TopicPartition("moved-about.v1", 2), logs=logs)).entries == []
    )
