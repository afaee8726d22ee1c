"""The status of a controller: what it lists, and that it never waits for long."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

from ctrlchan._codec import ListColumn
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.machines.states import PartitionState, ReplicaState
from ctrlchan.controller.status import status as status_module
from ctrlchan.state import Broker, Endpoint, SecurityProtocol
from tests.unit.batch.manual_channel import broker
from tests.unit.controller.local_controller import local_controller, pair


def test_a_controller_with_nothing_to_do() -> None:
    with local_controller() as controller:
        status = json.loads(json.dumps(controller.describe()))
    assert status["active"]
    assert not status["busy"]
    assert (status["controller_id"], status["epoch"], status["cluster_id"]) == (1000, 7, "test")
    assert status["zookeeper"] == {
        "servers": "localhost:2181/kafka",
        "in_memory": False,
        "connected": True,
        "silent_for": 0.25,
    }
    assert status["endpoints"] == ["PLAINTEXT://here:9090"]
    assert status["events"] == {"state": "idle", "waiting": 0}
    assert (status["offline"], status["reassignments"], status["deletions"]) == ([], [], [])
    assert status["channel"]["state"] == "new"
    assert [one["id"] for one in status["brokers"]] == [1, 2, 3]
    assert status["brokers"][0] == {
        "id": 1,
        "epoch": 101,
        "endpoints": ["PLAINTEXT://host1:9092"],
        "rack": None,
        "shutting_down": False,
        "leads": 2,
        "replicas": 4,
        "out_of_sync": 0,
        "connection": "not connected",
        "waiting": 0,
        "waiting_bytes": 0,
        "oldest_age": 0.0,
        "attempts": 0,
        "last_error": "",
        "needs_resync": False,
    }


def test_the_queue_of_a_broker_is_in_its_line() -> None:
    with local_controller() as controller:
        assert controller.core is not None
        # Its host name cannot be resolved.
        controller.core.channel.startup([broker(2, 102)])
        controller.core.batch.new_batch()
        controller.core.batch.add_update_metadata([2], rows="all")
        controller.core.batch.send_requests_to_brokers(controller_epoch=7)
        line = controller.describe()["brokers"][1]
    assert line["connection"] != "not connected"
    assert (line["id"], line["waiting"]) == (2, 1)
    assert line["oldest_age"] > 0


def test_a_broker_without_the_listener_is_left_out() -> None:
    with local_controller() as controller:
        assert controller.core is not None
        inside = Endpoint("INSIDE", SecurityProtocol.SSL, "127.0.0.1", 1)
        controller.core.channel.startup([Broker(2, 102, (inside,))])
        line = controller.describe()["brokers"][1]
    assert line["connection"] == "left out"
    assert "has no endpoint for listener PLAINTEXT" in line["last_error"]


def test_what_the_controller_is_doing() -> None:
    with local_controller() as controller:
        context = controller.context

        def change(_: object) -> None:
            context.partition_states[0] = PartitionState.OFFLINE
            context.state.update(np.array([0]), leader=np.array([-1], np.int32), isr=[[2]])
            context.state.update(
                np.array([2]), adding=ListColumn.from_lists([[3]]), removing=ListColumn.from_lists([[1]])
            )
            context.queue_topic_deletion(["b", "c"])
            context.begin_topic_deletion(["b"])
            context.topics_ineligible.add("c")
            context.put_replica_states(*pair(3, 1), ReplicaState.DELETION_SUCCESSFUL)
            context.state.set_shutting_down([3])

        controller.loop.call(ControllerState.TOPIC_CHANGE, change).result(10)
        status = controller.describe()
    assert status["offline"] == [
        {
            "topic": "a",
            "partition": 0,
            "leader": -1,
            "isr": [2],
            "replicas": [1, 2],
            "adding": [],
            "removing": [],
        }
    ]
    (reassignment,) = status["reassignments"]
    assert (reassignment["partition"], reassignment["adding"], reassignment["removing"]) == (2, [3], [1])
    assert status["deletions"] == [
        {"topic": "b", "state": "started", "replicas": 3, "deleted": 1},
        {"topic": "c", "state": "ineligible", "replicas": 2, "deleted": 0},
    ]
    assert [one["shutting_down"] for one in status["brokers"]] == [False, False, True]
    assert [one["out_of_sync"] for one in status["brokers"]] == [1, 0, 0]
    assert status["figures"]["offline_partitions"] == 1


def test_long_lists_are_cut_and_counted() -> None:
    with local_controller() as controller:
        context = controller.context

        def change(_: object) -> None:
            context.state.add_topic("many", {number: [1] for number in range(250)})
            context.partition_states[:] = PartitionState.OFFLINE

        controller.loop.call(ControllerState.TOPIC_CHANGE, change).result(10)
        status = controller.describe()
    assert len(status["offline"]) == status_module.LISTED
    assert status["figures"]["offline_partitions"] == 256


def test_a_process_that_is_not_the_controller() -> None:
    with local_controller() as controller:
        controller.core = None
        controller.active_controller_id = 3
        status = json.loads(json.dumps(controller.describe()))
    assert not status["active"]
    assert (status["active_controller_id"], status["active_since"], status["epoch"]) == (3, None, None)
    assert status["brokers"] == []


def test_before_the_session_zookeeper_is_not_connected() -> None:
    with local_controller() as controller:
        controller.session = None
        assert controller.describe()["zookeeper"]["connected"] is False


def test_a_busy_loop_gives_the_description_of_the_last_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with local_controller() as controller:
        before = controller.describe()
        monkeypatch.setattr(status_module, "_WAIT_SECONDS", 0.01)
        go_on, begun = threading.Event(), threading.Event()

        def wait(_: object) -> None:
            begun.set()
            go_on.wait(30)

        waiting = controller.loop.call(ControllerState.LOG_DIR_CHANGE, wait)
        assert begun.wait(10)
        status = controller.describe()
        go_on.set()
        waiting.result(10)
    assert status["busy"]
    assert status["events"]["state"] == "log dir change"
    assert (status["at"], status["figures"]) == (before["at"], before["figures"])
