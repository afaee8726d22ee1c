"""``ctrlchan broker`` beside a real broker, both under a real JVM controller."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kazoo.exceptions import NoNodeError

from tests.kafka.processes import Reaper
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until

OURS = 9
TOPIC = "shared"
ASSIGNMENT = {"0": [1, OURS], "1": [OURS, 1], "2": [1]}


@pytest.fixture(scope="module")
def jvm_rig(kafka_jars_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaRig]:
    with KafkaRig(tmp_path_factory.mktemp("beside"), brokers=1) as rig:
        wait_until(lambda: rig.jvm_controller() == 1, what="the JVM controller is elected")
        yield rig


def test_both_brokers_tell_clients_the_same(jvm_rig: KafkaRig) -> None:
    """What the JVM controller told the embedded broker is what it told its own."""
    with _broker_command(jvm_rig) as told:
        assert told["id"] == OURS
        assert told["epoch"] == jvm_rig.broker(OURS).epoch
        ours = f"{told['host']}:{told['port']}"
        jvm_rig.zookeeper.create(f"/config/topics/{TOPIC}", b'{"version":1,"config":{}}')
        jvm_rig.zookeeper.create(
            f"/brokers/topics/{TOPIC}", json.dumps({"version": 2, "partitions": ASSIGNMENT}).encode()
        )
        wait_until(lambda: _view(ours).get("partitions"), what="the embedded broker hears of the topic")
        wait_until(lambda: _view(ours) == _view(jvm_rig.bootstrap), what="both brokers tell the same")
        view = _view(ours)
        assert view["brokers"] == {
            1: jvm_rig.bootstrap,
            OURS: ours,
        }
        assert view["partitions"] == {
            int(partition): (replicas[0], tuple(replicas), tuple(replicas))
            for partition, replicas in ASSIGNMENT.items()
        }
    # Its registration goes with it, and the controller gives its partition to the real broker.
    with pytest.raises(NoNodeError):
        jvm_rig.zookeeper.get(f"/brokers/ids/{OURS}")
    wait_until(
        lambda: {leader for leader, _, _ in _view(jvm_rig.bootstrap)["partitions"].values()} == {1},
        what="the controller moves the leaders of the broker that left",
    )


@contextmanager
def _broker_command(rig: KafkaRig) -> Iterator[dict[str, Any]]:
    """The command as a person would start it, ended by SIGTERM; yields the line it prints."""
    command = [sys.executable, "-m", "ctrlchan", "broker", "--id", str(OURS), "--json"]
    command += ["--zookeeper", rig.zookeeper_connect]
    reaper = Reaper()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        reaper.add(process.pid)
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()
            process.wait(timeout=30)
            reaper.remove(process.pid)
            reaper.close()
    assert process.returncode == 0


def _view(bootstrap: str) -> dict[str, Any]:
    """The cluster as librdkafka reads it from this one broker."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    told = admin.list_topics(TOPIC, timeout=30)
    return {
        "cluster": told.cluster_id,
        "controller": told.controller_id,
        "brokers": {broker.id: f"{broker.host}:{broker.port}" for broker in told.brokers.values()},
        "partitions": {
            number: (partition.leader, tuple(partition.replicas), tuple(partition.isrs))
            for number, partition in told.topics[TOPIC].partitions.items()
        },
    }
