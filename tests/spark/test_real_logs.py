"""Tests of merge-logs and explain with logs of real Kafka brokers.

A partition is created, moved and deleted under two controllers.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
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
_ASSIGNMENT = [[1, 2], [2, 3], [3, 1]]
_REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


def _admin(rig: KafkaRig) -> AdminClient:
    """Return a new client; an old one still asks the previous controller."""
    return AdminClient({"bootstrap.servers": rig.bootstrap, "log_level": 2})


def _logged(rig: KafkaRig, broker: int, words: str) -> bool:
    return any(words in line for line in rig.log_lines(broker, "state-change.log"))


def _deletes(rig: KafkaRig, broker: int) -> bool:
    """Return whether the broker logged, as a broker, that it deletes its replica."""
    lines = rig.log_lines(broker, "state-change.log")
    return any(f"[Broker id={broker}]" in line and "deletePartition=true" in line for line in lines)


def _replicas(rig: KafkaRig) -> object:
    """Return the replicas of partition 0, also those being added or removed; None: no such topic."""
    try:
        data, _ = rig.zookeeper.get(f"/brokers/topics/{_TOPIC}")
    except NoNodeError:
        return None
    return json.loads(data)["partitions"]["0"]


@pytest.fixture(scope="module")
def real_logs(kafka_jars_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create, move and delete the partition in a real cluster; return the folder of its logs."""
    folder = tmp_path_factory.mktemp("kafka-logs")
    with KafkaRig(folder) as rig:
        wait_until(lambda: rig.jvm_controller() is not None, what="a controller is elected")
        wait_until(lambda: _created(rig), timeout=120, what="the topic is created")
        _logged_everywhere(rig, f"for partition {_TOPIC}-0 in response to UpdateMetadata")

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
        # The new controller has sent its first full state.
        _logged_everywhere(rig, f"epoch {epoch + 1} with correlation id")

        wait_until(lambda: _deleted(rig), timeout=60, what="the topic is deleted")
        _logged_everywhere(rig, f"Deleted partition {_TOPIC}-0 from metadata cache")
    return folder


def _controller_epoch(rig: KafkaRig) -> int:
    return int(rig.zookeeper.get("/controller_epoch")[0])


def _logged_everywhere(rig: KafkaRig, words: str) -> None:
    wait_until(
        lambda: all(_logged(rig, broker, words) for broker in rig.broker_ids),
        timeout=60,
        what=f"every broker logs {words!r}",
    )


def _created(rig: KafkaRig) -> bool:
    if _replicas(rig) is not None:
        return True
    admin = _admin(rig)
    topic = NewTopic(_TOPIC, len(_ASSIGNMENT), replica_assignment=_ASSIGNMENT)
    # As for ``_deleted``: brokers that have just started may not know the controller.
    with suppress(TimeoutError):
        admin.create_topics([topic])[_TOPIC].exception(timeout=10)
    return False


def _deleted(rig: KafkaRig) -> bool:
    if _replicas(rig) is None:
        return True
    # Until the new controller is ready, requests may be refused, and a client that does not know it may wait
    # for as long as its request may take: the next client asks anew.
    admin = _admin(rig)
    with suppress(TimeoutError):
        admin.delete_topics([_TOPIC])[_TOPIC].exception(timeout=10)
    return False


def test_every_line_is_an_entry(spark: SparkSession, real_logs: Path) -> None:
    with merge_logs(spark, MergeLogsConfig(logs=real_logs)) as merged:
        lines = sum(len(log.read_text().splitlines()) for log in real_logs.glob("*/state-change.log"))
        assert merged.counts.lines == merged.counts.entries == lines > 100
        assert merged.counts.rejected == 0
        unknown = merged.entries.where(f"event = '{OTHER}' OR broker IS NULL OR role IS NULL")
        assert unknown.collect() == []
        texts = list(merged.texts())
    # Times of entries sort like their text.
    assert [text[:25] for text in texts] == sorted(text[:25] for text in texts)


def test_the_history_of_a_partition(spark: SparkSession, real_logs: Path) -> None:
    config = ExplainConfig(partition=TopicPartition.of(f"{_TOPIC}-0"), logs=MergeLogsConfig(logs=real_logs))
    history = explain(spark, config)
    assert history.faults == []
    assert len({term.controller_epoch for term in history.context.terms}) == 2
    assert [one.kind for one in history.findings].count("controller_change") == 1

    (incarnation,) = history.incarnations
    assert incarnation.deleted is not None
    # In the last epochs the replicas of the deleted topic go offline.
    led = [step for step in history.steps if step.leader != -1]
    assert len(led) < len(history.steps)
    first, last = led[0], led[-1]
    assert (first.leader_epoch, first.leader, first.replicas) == (0, 1, [1, 2])
    assert (last.leader, last.replicas) == (3, [3, 2])
    assert [step.leader_epoch for step in history.steps] == list(range(len(history.steps)))
    for broker, applied_as in ((1, "leader"), (2, "follower")):
        progress = first.brokers[broker]
        assert progress.sent is not None
        assert progress.received is not None
        assert progress.applied is not None
        assert progress.applied_as == applied_as
    # The move added broker 3 and removed broker 1.
    assert first.brokers[3].applied is None
    assert first.brokers[3].metadata is not None
    assert any(step.brokers[1].stop_received for step in history.steps if 1 in step.brokers)
    assert "leader" in {step.brokers[3].applied_as for step in led if 3 in step.brokers}

    deleted = [entry for entry in history.entries if entry.event == "metadata_deleted"]
    assert {entry.broker for entry in deleted} == {1, 2, 3}
    stopped = [entry for entry in history.entries if entry.event == "receive_stop_replica" and entry.delete]
    assert {entry.broker for entry in stopped} == {1, 2, 3}
    states = [entry.to_state for entry in history.entries if entry.event == "partition_state"]
    assert states[:2] == ["NewPartition", "OnlinePartition"]
    assert states[-1] == "NonExistentPartition"


def test_another_partition_has_another_history(spark: SparkSession, real_logs: Path) -> None:
    logs = MergeLogsConfig(logs=real_logs)
    history = explain(spark, ExplainConfig(partition=TopicPartition(_TOPIC, 1), logs=logs))
    assert {tuple(step.replicas) for step in history.steps if step.replicas} == {(2, 3)}
    assert (
        explain(spark, ExplainConfig(partition=TopicPartition("moved-about.v1", 2), logs=logs)).entries == []
    )
