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

from ctrlchan.launch.embedded import EmbeddedBroker
from ctrlchan.launch.registration import Registrations
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


def test_clients_get_the_same_metadata_from_both_brokers(jvm_rig: KafkaRig) -> None:
    """The JVM controller sends the embedded broker the same metadata as its own."""
    with _broker_command(jvm_rig) as printed:
        assert printed["id"] == OURS
        assert printed["epoch"] == jvm_rig.broker(OURS).epoch
        ours = f"{printed['host']}:{printed['port']}"
        jvm_rig.zookeeper.create(f"/config/topics/{TOPIC}", b'{"version":1,"config":{}}')
        jvm_rig.zookeeper.create(
            f"/brokers/topics/{TOPIC}", json.dumps({"version": 2, "partitions": ASSIGNMENT}).encode()
        )

        def same_view() -> dict[str, Any] | None:
            # Either client may ask either broker, so one view alone can be older than the next.
            view = _view(ours)
            return view if view["partitions"] and view == _view(jvm_rig.bootstrap) else None

        view = wait_until(same_view, what="both brokers have the topic")
        assert view["brokers"] == {
            1: jvm_rig.bootstrap,
            OURS: ours,
        }
        assert view["partitions"] == {
            int(partition): (replicas[0], tuple(replicas), tuple(replicas))
            for partition, replicas in ASSIGNMENT.items()
        }
    # Its registration ends with it, and the controller makes the real broker the leader of its partition.
    with pytest.raises(NoNodeError):
        jvm_rig.zookeeper.get(f"/brokers/ids/{OURS}")
    wait_until(
        lambda: {leader for leader, _, _ in _view(jvm_rig.bootstrap)["partitions"].values()} == {1},
        what="the controller moves the leaders of the broker that left",
    )


def test_a_jvm_follower_of_an_embedded_leader_backs_off_without_warnings(jvm_rig: KafkaRig) -> None:
    """The follower's fetches are answered, and its log has no warning about them."""
    lines_before = len(jvm_rig.log_lines(1))
    with EmbeddedBroker(OURS) as embedded:
        registrations = Registrations(jvm_rig.zookeeper_connect, lambda _, epoch: embedded.set_epoch(epoch))
        registrations.connect()
        registrations.register([embedded.broker])
        try:
            topic = "followed"
            jvm_rig.zookeeper.create(f"/config/topics/{topic}", b'{"version":1,"config":{}}')
            jvm_rig.zookeeper.create(
                f"/brokers/topics/{topic}",
                json.dumps({"version": 2, "partitions": {"0": [OURS, 1]}}).encode(),
            )
            wait_until(
                lambda: (
                    sum(
                        one["requests"]
                        for name, one in embedded.describe()["apis"].items()
                        if name == "Fetch"
                    )
                    >= 5
                ),
                what="the JVM broker fetches from its embedded leader",
            )
            warnings = [
                line
                for line in jvm_rig.log_lines(1)[lines_before:]
                if ("followed-0" in line or f":{embedded.port})" in line)
                and (" WARN " in line or " ERROR " in line)
            ]
            assert warnings == [], "\n".join(warnings)
        finally:
            registrations.stop()


@contextmanager
def _broker_command(rig: KafkaRig) -> Iterator[dict[str, Any]]:
    """Run the command in a process of its own until SIGTERM; yield the JSON that it prints."""
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
    """The cluster as librdkafka reads it, with this broker as its bootstrap server."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    listed = admin.list_topics(TOPIC, timeout=30)
    return {
        "cluster": listed.cluster_id,
        "controller": listed.controller_id,
        "brokers": {broker.id: f"{broker.host}:{broker.port}" for broker in listed.brokers.values()},
        "partitions": {
            number: (partition.leader, tuple(partition.replicas), tuple(partition.isrs))
            for number, partition in listed.topics[TOPIC].partitions.items()
        },
    }
