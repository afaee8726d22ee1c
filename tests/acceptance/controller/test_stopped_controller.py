"""A controller process that is stopped for longer than its session writes and sends nothing when it wakes."""

from __future__ import annotations

import datetime
import socket
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kio.index import load_payload_module
from kio.static.constants import EntityType

from ctrlchan.errors import ErrorCode
from tests.acceptance.client_frames import client_response, request_frame
from tests.acceptance.controller import nodes
from tests.acceptance.controller.agreement import wait_until_agreed, wait_until_in_sync
from tests.acceptance.controller.cluster import CONTROLLER_ID, ControlledCluster
from tests.acceptance.controller.controller_process import ControllerProcess
from tests.acceptance.controller.load import Load
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until
from tests.kafka.wire import receive_frame, send_frame

CREATE_TOPICS = 19


@pytest.mark.parametrize("senders", [False, True], ids=["parent", "all-processes"])
def test_it_wakes_up_and_changes_nothing(cluster: ControlledCluster, senders: bool, tmp_path: Path) -> None:
    rig, topic = cluster.rig, f"stopped-{'senders' if senders else 'parent'}"
    cluster.create_topic(topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    successor = cluster.active
    with (
        ControllerProcess(tmp_path, rig.zookeeper_connect, CONTROLLER_ID + 2) as process,
        Load(rig.bootstrap, topic) as load,
    ):
        epoch = int(process.elected["epoch"])
        wait_until_agreed(rig)
        # It has plenty to do when it wakes: a request, and the deaths of watched nodes.
        with socket.create_connection(("127.0.0.1", process.elected["port"]), timeout=90) as connection:
            process.stop(senders=senders)
            send_frame(connection, _create_topics_frame("made-by-nobody"))
            wait_until(
                lambda: nodes.controller_epoch(rig.zookeeper) > epoch,
                what="the session of the stopped expires",
            )
            cluster.take_over(successor)
            cluster.create_topic(f"{topic}-after", [[1, 2], [2, 3]])
            wait_until_in_sync(rig)
            load.wait_for_more(partitions=3)
            load.pause()
            wait_until_in_sync(rig)
            before = _all_nodes(rig.zookeeper)
            lines = {
                broker_id: len(rig.log_lines(broker_id, "state-change.log")) for broker_id in rig.broker_ids
            }
            process.go_on()
            assert process.wait_for("resigned")["epoch"] == epoch
            answer = client_response(CREATE_TOPICS, 5, receive_frame(connection))
            assert [(t.name, t.error_code) for t in answer.topics] == [
                ("made-by-nobody", ErrorCode.NOT_CONTROLLER)
            ]
        assert _changed(before, _all_nodes(rig.zookeeper)) == []
        assert _accepted_from(rig, lines, CONTROLLER_ID + 2, epoch) == []
        # It waits for its turn, and can be elected again.
        wait_until_agreed(rig)
        load.go_on()
        load.wait_for_more(partitions=3)
    load.check_nothing_is_lost()
    cluster.delete_topic(f"{topic}-after")
    cluster.delete_topic(topic)


def _create_topics_frame(name: str) -> bytes:
    module: Any = load_payload_module(CREATE_TOPICS, 5, EntityType.request)
    topic = module.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    return request_frame(
        CREATE_TOPICS,
        5,
        module.CreateTopicsRequest(
            topics=(topic,), timeout=datetime.timedelta(seconds=60), validate_only=False
        ),
    )


def _all_nodes(client: KazooClient, path: str = "/") -> dict[str, tuple[int, int]]:
    """Return (mzxid, pzxid) of every node, but for ephemeral ones, which begin and end with sessions."""
    found: dict[str, tuple[int, int]] = {}
    stat = client.exists(path)
    if stat is None or stat.ephemeralOwner:
        return found
    if path != "/":
        found[path] = (stat.mzxid, stat.pzxid)
    for child in client.get_children(path):
        if path == "/" and child == "zookeeper":
            continue
        found |= _all_nodes(client, f"{path.rstrip('/')}/{child}")
    return found


def _changed(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> list[str]:
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def _accepted_from(rig: KafkaRig, lines: dict[int, int], controller_id: int, epoch: int) -> list[str]:
    """Return the brokers' log lines of requests by this controller since ``lines``, but for refused ones.

    A broker logs what it has received before it looks at the epoch, and then either what it does or that it
    ignores the request.
    """
    return [
        f"broker {broker_id}: {line}"
        for broker_id, count in lines.items()
        for line in rig.log_lines(broker_id, "state-change.log")[count:]
        if f"controller {controller_id} epoch {epoch}" in line
        and "gnoring" not in line
        and "] Received " not in line
    ]
