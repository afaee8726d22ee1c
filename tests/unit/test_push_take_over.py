"""``ctrlchan push`` sends nothing to a cluster whose controller is alive, without --take-over."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ctrlchan import TEMPORARY, Broker, ClusterState, EmbeddedCluster, Endpoint, SecurityProtocol
from tests.fault.channels import eventually

_TOPIC = "deleted-later"


@pytest.fixture(scope="module")
def controlled() -> Iterator[EmbeddedCluster]:
    """A cluster with a controller."""
    with EmbeddedCluster(2, log_dir=TEMPORARY) as cluster:
        yield cluster


def _push(snapshot: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ctrlchan", "push", str(snapshot), "--json", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def _snapshot(
    folder: Path, brokers: Iterable[Broker], *, controller_id: int = 0, epoch: int = 1, topic: str = _TOPIC
) -> Path:
    state = ClusterState.empty(controller_id=controller_id, controller_epoch=epoch)
    state.set_brokers(list(brokers))
    ids = [int(broker_id) for broker_id in state.broker_ids]
    state.add_topic(topic, {0: ids}, leader=ids[0], leader_epoch=0, isr=ids)
    state.write(folder)
    return folder


def _topics(cluster: EmbeddedCluster) -> set[str]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})
    return set(admin.list_topics(timeout=60).topics)


def test_a_deleted_topic_does_not_come_back(controlled: EmbeddedCluster, tmp_path: Path) -> None:
    """The snapshot is older than the deletion of its topic, and has the very controller of the cluster."""
    admin = AdminClient({"bootstrap.servers": controlled.bootstrap_servers, "log_level": 2})
    admin.create_topics([NewTopic(_TOPIC, 1, 2)])[_TOPIC].result(60)
    eventually(lambda: _TOPIC in _topics(controlled))
    admin.delete_topics([_TOPIC], operation_timeout=60)[_TOPIC].result(60)
    eventually(lambda: _TOPIC not in _topics(controlled))

    for controller_id in (1, 1000, 7):
        stale = _snapshot(
            tmp_path / f"of-{controller_id}", controlled.brokers, controller_id=controller_id, epoch=1_000
        )
        ran = _push(stale)
        assert ran.returncode == 1, ran.stdout
        assert ran.stdout == ""
        (error,) = ran.stderr.splitlines()[-1:]
        assert "has controller" in error
        assert "nothing was sent" in error
        assert "--take-over" in error
        assert _TOPIC not in _topics(controlled)

    ran = _push(stale, "--take-over")
    assert ran.returncode == 0, ran.stderr
    assert [one["outcome"] for one in json.loads(ran.stdout)["outcomes"]] == ["acknowledged"] * 2
    assert _TOPIC in _topics(controlled)


def test_brokers_without_a_controller_are_pushed_to_again_and_again(tmp_path: Path) -> None:
    with EmbeddedCluster(2, log_dir=None) as cluster:
        snapshots = {
            controller_id: _snapshot(
                tmp_path / f"of-{controller_id}", cluster.brokers, controller_id=controller_id
            )
            for controller_id in (0, 1, 5)
        }
        # The id that the brokers know since the first push is that of the second.
        for _ in range(2):
            assert _push(snapshots[0]).returncode == 0
        # Nobody has the id that they know: such a controller may be hidden from clients.
        ran = _push(snapshots[5])
        assert ran.returncode == 1
        assert "error: broker 1 has controller 0: nothing was sent" in ran.stderr.replace(
            "broker 2", "broker 1"
        )
        # The id that they know is of a broker that cannot be a controller.
        assert _push(snapshots[1], "--take-over").returncode == 0
        assert _push(snapshots[5]).returncode == 0


def test_brokers_that_cannot_be_asked(tmp_path: Path) -> None:
    endpoint = Endpoint("SSL", SecurityProtocol.SSL, "127.0.0.1", 1)
    folder = _snapshot(tmp_path / "secured", [Broker(1, 5, (endpoint,)), Broker(2, 5, (endpoint,))])
    ran = _push(folder)
    assert ran.returncode == 1
    assert (
        "error: brokers can be asked for their controller over PLAINTEXT alone: nothing was sent"
        in ran.stderr
    )
    assert "--take-over" in ran.stderr


def test_the_help_warns_first() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "ctrlchan", "push", "--help"], capture_output=True, text=True, timeout=60
    )
    assert ran.stdout.index("WARNING") < ran.stdout.index("Connects to each broker")
    assert "--take-over" in ran.stdout
