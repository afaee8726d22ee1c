"""What a broker asks the controller: a real one, with its nodes in memory."""

from __future__ import annotations

import socket
import struct
import threading
from concurrent.futures import Future
from contextlib import suppress

import pytest

from ctrlchan.broker.controller_client import ControllerClient, NewTopic
from ctrlchan.broker.metadata.metadata_cache import MetadataCache
from ctrlchan.broker.replica.isr_changes import AlteredPartition, IsrChange
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.embedded.controller import LocalController
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.peers.controller_connections import ControllerConnections
from ctrlchan.peers.requests import Answer, OutgoingRequest
from tests.kafka.ports import free_port
from tests.kafka.waiting import wait_until
from tests.unit.broker.controller.conftest import ClientOf
from tests.unit.broker.cores import node_of
from tests.unit.server.contexts import LOCAL_CLIENT

SECONDS = 30.0
API_VERSIONS, CREATE_TOPICS, ALTER_PARTITION = 18, 19, 56


def test_topics_are_created(client_of: ClientOf) -> None:
    client = client_of(1)
    topics = [NewTopic("orders", 2, 2, {"retention.ms": "1000"}), NewTopic("bad/name", 1, 1)]
    invalid = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert client.create_topics(topics).result(SECONDS) == {"orders": 0, "bad/name": invalid}
    exists = {"orders": int(ErrorCode.TOPIC_ALREADY_EXISTS)}
    assert client.create_topics(topics[:1]).result(SECONDS) == exists


def test_blocks_of_producer_ids_do_not_overlap(client_of: ClientOf) -> None:
    blocks = [client_of(one).allocate_producer_ids().result(SECONDS) for one in (1, 2, 1)]
    assert [length for _, length in blocks] == [1000] * 3
    assert [first - blocks[0][0] for first, _ in blocks] == [0, 1000, 2000]


def test_a_leader_shrinks_the_isr(controller: LocalController, client_of: ClientOf) -> None:
    client_of(1).create_topics([NewTopic("shrinking", 2, 2)]).result(SECONDS)

    def read(core: ControllerCore) -> list[tuple[bytes, int, int, int]]:
        rows = core.state.rows_of_topic("shrinking")
        columns = core.state.partitions
        topic_id = core.state.topics.ids[core.state.topic_row("shrinking")].tobytes()
        return [
            (
                topic_id,
                int(columns.leader[row]),
                int(columns.leader_epoch[row]),
                int(columns.partition_epoch[row]),
            )
            for row in range(rows.start, rows.stop)
        ]

    partitions = controller.call(ControllerState.IDLE, read)
    for number, (topic_id, leader, leader_epoch, epoch) in enumerate(partitions):
        client = client_of(leader)
        answer = client.alter_partition(
            IsrChange("shrinking", topic_id, number, leader_epoch, epoch, (leader,))
        )
        assert answer.result(SECONDS) == AlteredPartition(0, leader, leader_epoch, (leader,), epoch + 1)
        late = client.alter_partition(
            IsrChange("shrinking", topic_id, number, leader_epoch, epoch, (1, 2))
        ).result(SECONDS)
        assert late.error == ErrorCode.INVALID_UPDATE_VERSION


def test_the_leaders_of_a_broker_that_shuts_down_are_moved(client_of: ClientOf) -> None:
    client = client_of(2)
    client.create_topics([NewTopic("moving", 4, 2)]).result(SECONDS)
    assert ("moving", 0) not in client.controlled_shutdown().result(SECONDS)


def test_a_controller_that_is_gone_does_not_hold_up_the_end_of_a_broker() -> None:
    client = ControllerClient(node_of(1, epoch=1), MetadataCache(), f"127.0.0.1:{free_port()}")
    with pytest.raises(KafkaError, match="did not answer"):
        client.controlled_shutdown().result(SECONDS)
    client.stop()


class OtherController:
    """A controller that serves given versions, keeps the requests, and answers none but ApiVersions.

    ``answers``: bodies with which it answers others nevertheless, by API key.
    """

    def __init__(self, versions: dict[int, tuple[int, int]], answers: dict[int, bytes] | None = None) -> None:
        self._versions = versions
        self._answers = answers or {}
        self._server = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        #: API key and version of each request, and the frames.
        self.requests: list[tuple[int, int]] = []
        self.frames: list[bytes] = []
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                self._connections.append(self._server.accept()[0])
                threading.Thread(target=self._read, args=[self._connections[-1]], daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        with suppress(OSError):
            while size := connection.recv(4, socket.MSG_WAITALL):
                frame = connection.recv(int.from_bytes(size), socket.MSG_WAITALL)
                key, version, correlation_id = struct.unpack_from(">hhi", frame)
                self.frames.append(frame)
                self.requests.append((key, version))
                if key == API_VERSIONS:
                    entries = [struct.pack(">hhh", one, *range_) for one, range_ in self._versions.items()]
                    body = struct.pack(">hi", 0, len(entries)) + b"".join(entries)
                elif key in self._answers:
                    body = self._answers[key]
                else:
                    continue
                connection.sendall((4 + len(body)).to_bytes(4) + correlation_id.to_bytes(4) + body)

    def __enter__(self) -> OtherController:
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._server, *self._connections):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def forward(client: ControllerClient) -> Future[Answer]:
    return client.forward(
        CREATE_TOPICS, 7, flexible=True, body=b"", client_id=b"a-client", context=LOCAL_CLIENT
    )


def test_an_isr_does_not_wait_behind_requests_of_clients() -> None:
    with OtherController({CREATE_TOPICS: (0, 7), ALTER_PARTITION: (0, 3)}) as silent:
        client = ControllerClient(node_of(1, epoch=1), MetadataCache(), f"127.0.0.1:{silent.port}")
        for _ in range(20):
            forward(client)
        client.alter_partition(IsrChange("t", bytes(range(16)), 0, 0, 0, (1,)))
        wait_until(lambda: (ALTER_PARTITION, 3) in silent.requests, what="the request for an ISR")
        client.stop()


@pytest.mark.parametrize(("highest", "topic_id", "sent"), [(1, bytes(range(16)), 1), (3, bytes(16), 1)])
def test_a_request_has_a_version_that_the_controller_serves(highest: int, topic_id: bytes, sent: int) -> None:
    with OtherController({ALTER_PARTITION: (0, highest), CREATE_TOPICS: (0, 4)}) as other:
        client = ControllerClient(node_of(1, epoch=1), MetadataCache(), f"127.0.0.1:{other.port}")
        with pytest.raises(KafkaError, match="does not serve this version of CreateTopics") as refused:
            forward(client).result(SECONDS)
        assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION
        client.alter_partition(IsrChange("t", topic_id, 0, 0, 0, (1,)))
        wait_until(lambda: (ALTER_PARTITION, sent) in other.requests, what="the request for an ISR")
        client.stop()


def test_a_request_that_reaches_a_former_controller_is_sent_to_the_next_one() -> None:
    refused = topics_answer(("one", ErrorCode.NOT_CONTROLLER), ("two", ErrorCode.NOT_CONTROLLER))
    # What is done in part is the client's to repeat.
    done = topics_answer(("one", ErrorCode.NONE), ("two", ErrorCode.NOT_CONTROLLER))
    versions = {CREATE_TOPICS: (0, 4)}
    request = OutgoingRequest(CREATE_TOPICS, range(2, 3), 5, lambda _: b"")
    with (
        OtherController(versions, {CREATE_TOPICS: refused}) as former,
        OtherController(versions, {CREATE_TOPICS: done}) as present,
    ):

        def find() -> tuple[str, int]:
            return "127.0.0.1", (present if (CREATE_TOPICS, 2) in former.requests else former).port

        connections = ControllerConnections(find, "broker-1")
        assert connections.send(request, SECONDS).result(SECONDS).body == done
        former.requests.clear()
        assert connections.send(request, SECONDS, once=True).result(SECONDS).body == refused
        connections.stop()


def topics_answer(*errors: tuple[str, ErrorCode]) -> bytes:
    """Return the body of a CreateTopics response, v2."""
    topics = [struct.pack(f">h{len(name)}shh", len(name), name.encode(), code, -1) for name, code in errors]
    return struct.pack(">ii", 0, len(topics)) + b"".join(topics)


def test_a_client_that_has_stopped_answers_no_request(client_of: ClientOf) -> None:
    client = client_of(1)
    client.stop()
    with pytest.raises(KafkaError, match="did not answer"):
        client.allocate_producer_ids().result(SECONDS)
    with pytest.raises(KafkaError, match="OPERATION_NOT_ATTEMPTED"):
        client.alter_partition(IsrChange("t", bytes(16), 0, 0, 0, (1,))).result(SECONDS)
