"""``ctrlchan pipeline frames`` and ``dispatch`` of a snapshot of the real cluster, to its real brokers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ctrlchan import ClusterState
from ctrlchan._codec import UPDATE_METADATA
from ctrlchan.errors import ErrorCode
from ctrlchan.journal import read_journal
from tests.acceptance.clients import TopicView, metadata, produce
from tests.acceptance.frames import TRUE_HEAD, Row, Topic, control_errors, control_frame
from tests.acceptance.recordings import target_of
from tests.acceptance.test_push import ctrlchan
from tests.acceptance.zk_controller import ZkController, refused
from tests.acceptance.znodes import ControllerZnodes
from tests.kafka.rig import KafkaRig
from tests.kafka.wire import exchange

TOPIC = "dispatched"
ASSIGNMENT = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1], 3: [2]}
SPARK = ["--json", "--master", "local[2]", "--conf", "spark.driver.memory=1g"]


@pytest.fixture(scope="module")
def views(kafka: KafkaRig, controller: ZkController) -> dict[int, TopicView]:
    """The topic as every broker should show it to clients."""
    assert refused(controller.create_topic(TOPIC, ASSIGNMENT)) == []
    assert refused(controller.move_leader(TOPIC, 0, 2)) == []
    return {broker_id: metadata(kafka, broker_id, [TOPIC])[TOPIC] for broker_id in kafka.broker_ids}


@pytest.fixture(scope="module")
def snapshot(kafka: KafkaRig, views: dict[int, TopicView], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dispatch") / "snapshot"
    ctrlchan("snapshot", "import", "--zookeeper", kafka.zookeeper_connect, str(folder))
    return folder


@pytest.mark.long
def test_a_dispatch_restores_lost_metadata_like_a_push(
    kafka: KafkaRig,
    snapshot: Path,
    views: dict[int, TopicView],
    znodes: ControllerZnodes,
    tmp_path: Path,
) -> None:
    rows = [Row(Topic(TOPIC), partition, leader=-2) for partition in ASSIGNMENT]
    frames, journal = str(tmp_path / "frames"), str(tmp_path / "journal")
    for way in ("push", "dispatch"):
        for broker_id in kafka.broker_ids:
            address = kafka.broker(broker_id).endpoint("PLAINTEXT")
            frame = control_frame(target_of(kafka, znodes, broker_id), UPDATE_METADATA, 8, rows, TRUE_HEAD)
            assert control_errors(UPDATE_METADATA, 8, exchange(address.host, address.port, frame)) == (0, {})
            assert metadata(kafka, broker_id, [TOPIC])[TOPIC].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if way == "push":
            ctrlchan("push", str(snapshot), "--take-over")
        else:
            # Small frames, so that there are several of each kind.
            made = json.loads(
                ctrlchan(
                    *("pipeline", "frames", str(snapshot), "-o", frames, "--max-request-bytes", "700"), *SPARK
                )
            )
            assert made["brokers"] == len(kafka.broker_ids)
            assert made["frames"] >= 3 * made["brokers"]
            sent = json.loads(ctrlchan("pipeline", "dispatch", frames, "-j", journal, *SPARK))
            assert sent["acknowledged"] == sent["brokers"] == len(kafka.broker_ids)
            assert sent["frames_sent"] == made["frames"]
        assert {
            broker_id: metadata(kafka, broker_id, [TOPIC])[TOPIC] for broker_id in kafka.broker_ids
        } == views
    outcomes = read_journal(journal).to_pylist()
    assert len(outcomes) == made["frames"]
    assert {row["outcome"] for row in outcomes} <= {"acknowledged", "partition errors"}
    again = json.loads(ctrlchan("pipeline", "dispatch", frames, "-j", journal, *SPARK))
    assert (again["frames_sent"], again["frames_done_before"]) == (0, made["frames"])


@pytest.mark.long
def test_a_former_controllers_frames_are_fenced(kafka: KafkaRig, snapshot: Path, tmp_path: Path) -> None:
    epoch = ClusterState.read(snapshot).controller_epoch - 1
    frames = str(tmp_path / "frames")
    ctrlchan("pipeline", "frames", str(snapshot), "-o", frames, "--controller-epoch", str(epoch), *SPARK)
    words = ctrlchan("pipeline", "dispatch", frames, "-j", str(tmp_path / "journal"), *SPARK, status=1)
    outcomes = json.loads(words)["outcomes"]
    assert ErrorCode.STALE_CONTROLLER_EPOCH in {one["error_code"] for one in outcomes}
    assert {one["outcome"] for one in outcomes} <= {"fenced", "stopped"}
    assert sum(one["applied"] for one in outcomes) == 0


@pytest.mark.long
def test_a_dispatch_makes_a_fresh_broker_lead_and_follow(
    kafka: KafkaRig, controller: ZkController, views: dict[int, TopicView], tmp_path: Path
) -> None:
    """A broker that knows no live broker acknowledges LeaderAndIsr and follows nothing."""
    fresh = 3
    kafka.kill_broker(fresh)
    logged = len(kafka.log_lines(fresh, "state-change.log"))
    kafka.restart_broker(fresh)
    snapshot, frames = str(tmp_path / "snapshot"), str(tmp_path / "frames")
    ctrlchan("snapshot", "import", "--zookeeper", kafka.zookeeper_connect, snapshot)
    ctrlchan("pipeline", "frames", snapshot, "-o", frames, *SPARK)
    sent = json.loads(ctrlchan("pipeline", "dispatch", frames, "-j", str(tmp_path / "journal"), *SPARK))
    assert sent["acknowledged"] == sent["brokers"] == len(kafka.broker_ids)
    log = kafka.log_lines(fresh, "state-change.log")[logged:]
    assert [line for line in log if "cannot become follower" in line] == []
    for partition, role in ((0, "Follower"), (1, "Follower"), (2, "Leader")):
        assert [line for line in log if f"{role} {TOPIC}-{partition} " in line], (role, partition)
    # Acknowledged by all replicas.
    produce(kafka.bootstrap, TOPIC, [b"x"] * 5, partition=0)
    # The other tests of this session have its controller again.
    controller.broker_is_back(fresh)
