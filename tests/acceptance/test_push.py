"""``ctrlchan push`` of a snapshot imported from the cluster's own ZooKeeper, as a person would type it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ctrlchan import ClusterState
from ctrlchan._codec import UPDATE_METADATA
from ctrlchan.errors import ErrorCode
from tests.acceptance.clients import TopicView, metadata
from tests.acceptance.frames import TRUE_HEAD, Row, Topic, control_errors, control_frame
from tests.acceptance.inherited import Inherited
from tests.acceptance.recordings import target_of
from tests.acceptance.zk_controller import ZkController, refused
from tests.acceptance.znodes import ControllerZnodes
from tests.kafka.rig import KafkaRig
from tests.kafka.wire import exchange

TOPIC = "pushed"
ASSIGNMENT = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1], 3: [2]}


@pytest.fixture(scope="module")
def views(kafka: KafkaRig, controller: ZkController) -> dict[int, TopicView]:
    """The topic as every broker should show it to clients."""
    assert refused(controller.create_topic(TOPIC, ASSIGNMENT)) == []
    assert refused(controller.move_leader(TOPIC, 0, 2)) == []
    return {broker_id: metadata(kafka, broker_id, [TOPIC])[TOPIC] for broker_id in kafka.broker_ids}


@pytest.fixture(scope="module")
def snapshot(kafka: KafkaRig, views: dict[int, TopicView], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("push") / "snapshot"
    ctrlchan("snapshot", "import", "--zookeeper", kafka.zookeeper_connect, str(folder))
    return folder


def test_the_snapshot_is_the_controllers_state(snapshot: Path, controller: ZkController) -> None:
    read, ours = ClusterState.read(snapshot), controller.state
    assert read.describe() == ours.describe()
    assert (read.controller_id, read.controller_epoch) == (
        controller.znodes.controller_id,
        controller.znodes.controller_epoch,
    )
    assert read.check() == []
    for partition in ASSIGNMENT:
        theirs, own = read.row(TOPIC, partition), ours.row(TOPIC, partition)
        for column in ("leader", "leader_epoch", "partition_epoch", "controller_epoch"):
            assert getattr(read.partitions, column)[theirs] == getattr(ours.partitions, column)[own]
        for column in ("isr", "replicas"):
            assert (
                getattr(read.partitions, column)[theirs].tolist()
                == getattr(ours.partitions, column)[own].tolist()
            )


def test_a_push_restores_lost_metadata(
    kafka: KafkaRig, snapshot: Path, views: dict[int, TopicView], znodes: ControllerZnodes
) -> None:
    rows = [Row(Topic(TOPIC), partition, leader=-2) for partition in ASSIGNMENT]
    for broker_id in kafka.broker_ids:
        _tell(kafka, znodes, broker_id, rows)
        assert metadata(kafka, broker_id, [TOPIC])[TOPIC].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    result = json.loads(ctrlchan("push", str(snapshot), "--take-over", "--rounds", "2", "--json"))

    state = ClusterState.read(snapshot)
    assert (result["partitions"], result["brokers"], result["acknowledged"]) == (
        len(state.partitions),
        len(kafka.broker_ids),
        len(kafka.broker_ids),
    )
    assert [o["outcome"] for o in result["outcomes"]] == ["acknowledged"] * len(kafka.broker_ids)
    assert len(result["rounds_ms"]) == 2
    for broker_id in kafka.broker_ids:
        assert metadata(kafka, broker_id, [TOPIC])[TOPIC] == views[broker_id]


def test_a_former_controllers_push_is_fenced(kafka: KafkaRig, snapshot: Path) -> None:
    epoch = ClusterState.read(snapshot).controller_epoch - 1
    words = ctrlchan(
        "push", str(snapshot), "--take-over", "--controller-epoch", str(epoch), "--json", status=1
    )
    result = json.loads(words)
    # One broker's word is enough: to the others nothing more need be sent.
    assert [o["outcome"] for o in result["outcomes"]] == ["fenced"] * len(kafka.broker_ids)
    assert ErrorCode.STALE_CONTROLLER_EPOCH in {o["error_code"] for o in result["outcomes"]}
    assert result["acknowledged"] == 0


def test_kafka_topics_describes_the_same_cluster(inherited: Inherited, tmp_path: Path) -> None:
    (tmp_path / "describe.txt").write_text(inherited.described)
    ctrlchan("snapshot", "import", "--describe", str(tmp_path / "describe.txt"), str(tmp_path / "snapshot"))
    theirs, ours = ClusterState.read(tmp_path / "snapshot"), inherited.state
    assert len(theirs.partitions) == len(ours.partitions) == inherited.partitions
    assert theirs.topics.ids.tolist() == ours.topics.ids.tolist()
    for column in ("partition", "leader"):
        assert getattr(theirs.partitions, column).tolist() == getattr(ours.partitions, column).tolist()
    for column in ("replicas", "isr"):
        assert getattr(theirs.partitions, column).to_lists() == getattr(ours.partitions, column).to_lists()


def ctrlchan(*arguments: str, status: int = 0) -> str:
    """Standard output of the command, which must end with this status."""
    result = subprocess.run(
        [sys.executable, "-m", "ctrlchan", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == status, result.stdout + result.stderr
    return result.stdout


def _tell(kafka: KafkaRig, znodes: ControllerZnodes, broker_id: int, rows: list[Row]) -> None:
    """UpdateMetadata of these rows to one broker, past the controller."""
    address = kafka.broker(broker_id).endpoint("PLAINTEXT")
    frame = control_frame(target_of(kafka, znodes, broker_id), UPDATE_METADATA, 8, rows, TRUE_HEAD)
    assert control_errors(UPDATE_METADATA, 8, exchange(address.host, address.port, frame)) == (0, {})
