"""Connections of brokers without records: frames in every cut, peers that misbehave, shared threads."""

from __future__ import annotations

import logging
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from ctrlchan._codec import UPDATE_METADATA
from ctrlchan.broker.config.broker_config import BrokerConfig
from ctrlchan.errors import ConfigError
from ctrlchan.launch.embedded import EmbeddedBroker
from ctrlchan.launch.host import BrokerHost
from tests.kafka.waiting import wait_until
from tests.kafka.wire import receive_frame
from tests.unit.broker.local_broker import (
    CORRELATION_ID,
    EPOCH,
    Part,
    client_frame,
    control_frame,
    read_client_response,
)
from tests.unit.server.serving import sized

UPDATE = control_frame(UPDATE_METADATA, 8, [Part()])
METADATA = client_frame(3, 12, topics=["alpha"])


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(1, epoch=EPOCH, max_request_bytes=1 << 20) as broker:
        yield broker


def numbered(frame: bytes, correlation_id: int) -> bytes:
    return sized(frame[:4] + correlation_id.to_bytes(4, "big") + frame[8:])


def connect(broker: EmbeddedBroker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), timeout=10)


def is_closed_after(connection: socket.socket, data: bytes) -> bool:
    """Return whether the broker closes the connection, without an answer, when it gets ``data``."""
    connection.sendall(data)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def still_serves(broker: EmbeddedBroker) -> bool:
    with connect(broker) as connection:
        connection.sendall(sized(UPDATE))
        return receive_frame(connection)[:4] == CORRELATION_ID.to_bytes(4, "big")


def test_a_frame_byte_by_byte(broker: EmbeddedBroker) -> None:
    with connect(broker) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in sized(UPDATE):
            connection.sendall(bytes([byte]))
        assert receive_frame(connection)[:4] == CORRELATION_ID.to_bytes(4, "big")


def test_requests_of_one_connection_are_answered_in_order(broker: EmbeddedBroker) -> None:
    frames = [numbered(METADATA if i % 3 == 0 else UPDATE, i) for i in range(300)]
    with connect(broker) as connection:
        connection.sendall(b"".join(frames))
        assert [int.from_bytes(receive_frame(connection)[:4], "big") for _ in frames] == list(range(300))


def test_a_slow_broker_applies_at_once_and_answers_late() -> None:
    with EmbeddedBroker(1, epoch=EPOCH, response_delay=600) as broker, connect(broker) as connection:
        connection.sendall(sized(UPDATE) * 2)
        wait_until(
            lambda: [one["requests"] for one in broker.describe()["apis"].values()] == [1],
            what="the first request",
        )
        assert broker.describe()["metadata"]["partitions"] == 1
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)
    with pytest.raises(ConfigError, match="response_delay"):
        EmbeddedBroker(1, response_delay=-1)


def test_a_slow_broker_keeps_the_order() -> None:
    """Other connections do not wait for it."""
    with EmbeddedBroker(1, epoch=EPOCH, response_delay=0.001) as broker:
        frames = [numbered(METADATA if i % 3 == 0 else UPDATE, i) for i in range(60)]
        with connect(broker) as connection, connect(broker) as other:
            connection.sendall(b"".join(frames))
            other.sendall(sized(UPDATE))
            receive_frame(other)
            assert [int.from_bytes(receive_frame(connection)[:4], "big") for _ in frames] == list(range(60))


def test_connections_do_not_wait_for_one_another(broker: EmbeddedBroker) -> None:
    with connect(broker) as half, connect(broker) as whole:
        half.sendall(sized(UPDATE)[:-1])
        whole.sendall(sized(UPDATE))
        receive_frame(whole)
        half.sendall(sized(UPDATE)[-1:])
        receive_frame(half)


@pytest.mark.parametrize("size", [-1, -(2**31), (1 << 20) + 1, 2**31 - 1])
def test_a_size_that_is_not_allowed_closes(broker: EmbeddedBroker, size: int) -> None:
    with connect(broker) as connection:
        assert is_closed_after(connection, struct.pack(">i", size))
    assert still_serves(broker)


@pytest.mark.parametrize(
    "frame", [b"", b"\0", bytes(3), bytes(40), b"\xff" * 100, UPDATE[:-1], UPDATE + b"\0"]
)
def test_a_frame_that_cannot_be_read_closes(broker: EmbeddedBroker, frame: bytes) -> None:
    with connect(broker) as connection:
        assert is_closed_after(connection, sized(frame))
    assert still_serves(broker)


def test_a_bad_frame_does_not_cancel_the_answer_before_it(broker: EmbeddedBroker) -> None:
    with connect(broker) as connection:
        connection.sendall(sized(UPDATE) + sized(b"\xff" * 9))
        assert receive_frame(connection)[:4] == CORRELATION_ID.to_bytes(4, "big")
        assert connection.recv(1) == b""


def test_garbage_affects_only_its_connection(broker: EmbeddedBroker) -> None:
    """Garbage is answered or closes its connection; other connections are not affected."""
    choose = random.Random(5)
    for _ in range(150):
        data = bytearray(sized(choose.choice([UPDATE, METADATA])))
        for _ in range(choose.randrange(1, 6)):
            data[choose.randrange(len(data))] = choose.randrange(256)
        with connect(broker) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass
    assert still_serves(broker)


def test_a_cut_connection_leaves_nothing(broker: EmbeddedBroker) -> None:
    # Linux shows the broker's descriptors among ours; so does macOS.
    before = psutil.Process().num_fds()
    for cut in (0, 3, 4, 20, len(sized(UPDATE)) - 1):
        with connect(broker) as connection:
            connection.sendall(sized(UPDATE)[:cut])
    with connect(broker) as connection:
        connection.sendall(struct.pack(">i", 1 << 20) + bytes(500_000))
    wait_until(lambda: psutil.Process().num_fds() <= before, what="the broker closes its ends", timeout=10)
    assert still_serves(broker)


def test_lines_about_bad_clients_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(1) as broker:
        for _ in range(40):
            with connect(broker) as connection:
                assert is_closed_after(connection, sized(b"\xff" * 9))
    lines = [one for one in caplog.records if "closing the connection" in one.getMessage()]
    assert 1 <= len(lines) < 20, "five at once, then one in ten seconds"


def test_announced_bytes_cost_nothing_before_they_come() -> None:
    with EmbeddedBroker(1) as broker:
        before = psutil.Process().memory_info().rss
        connections = [connect(broker) for _ in range(20)]
        for connection in connections:
            connection.sendall(struct.pack(">i", 100 << 20) + bytes(10))
        assert still_serves(broker)
        grown = psutil.Process().memory_info().rss - before
        for connection in connections:
            connection.close()
    assert grown < 50 << 20, f"{grown:,} bytes for 20 announcements of 100 MiB"


def test_a_peer_that_does_not_read_blocks_only_itself(broker: EmbeddedBroker) -> None:
    topics = [f"topic-{number:03}" for number in range(60)]
    update = control_frame(UPDATE_METADATA, 8, [Part(topic, i) for topic in topics for i in range(100)])
    with connect(broker) as connection:
        connection.sendall(sized(update))
        receive_frame(connection)
    with socket.socket() as greedy:
        greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        greedy.settimeout(0.2)
        greedy.connect(("127.0.0.1", broker.port))
        # Bytes behind a client's request are ignored; here they fill the kernel's buffers sooner.
        request = sized(client_frame(3, 12, topics=None) + bytes(10_000))
        with pytest.raises(TimeoutError):
            greedy.sendall(request * 5_000)
        # The kernel's buffers hold some answers and many requests; the broker has not read the rest.
        assert still_serves(broker)
        wait_until(lambda: "Metadata" in broker.describe()["apis"], what="the first answer")
        assert broker.describe()["apis"]["Metadata"]["requests"] < 100
        greedy.settimeout(10)
        assert len(receive_frame(greedy)) > 100_000
    assert still_serves(broker)


def test_idle_connections_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ctrlchan.broker")
    with EmbeddedBroker(1, idle_timeout=0.2) as broker, connect(broker) as idle, connect(broker) as busy:
        idle.sendall(sized(UPDATE)[:10])
        closed = threading.Event()

        def wait() -> None:
            assert idle.recv(1) == b""
            closed.set()

        waiter = threading.Thread(target=wait)
        waiter.start()
        deadline = time.monotonic() + 60
        while not closed.is_set() and time.monotonic() < deadline:
            busy.sendall(sized(UPDATE))
            receive_frame(busy)
            closed.wait(0.02)
        waiter.join()
        assert closed.is_set()
        busy.sendall(sized(UPDATE))
        receive_frame(busy)
    wait_until(lambda: "idle for 0.2 s" in caplog.text, what="the line of the idle connection")


def test_close_drops_connections_and_frees_the_port(broker: EmbeddedBroker) -> None:
    connections = [connect(broker) for _ in range(10)]
    connections[0].sendall(sized(UPDATE)[:7])
    for connection in connections[1:]:
        connection.sendall(sized(UPDATE))
        receive_frame(connection)
    port = broker.port
    broker.close()
    for connection in connections:
        with connection:
            assert is_closed_after(connection, b"")
    with EmbeddedBroker(1, port=port) as again:
        assert still_serves(again)


def test_a_port_that_is_taken(broker: EmbeddedBroker) -> None:
    with pytest.raises(OSError, match="in use"):
        EmbeddedBroker(2, port=broker.port)


def _asked(port: int) -> tuple[int, str]:
    """Return the id of a broker and the id of its cluster, as it answers them."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(sized(client_frame(10, 0, key="group")))
        coordinator = read_client_response(10, 0, receive_frame(connection))
        connection.sendall(sized(client_frame(3, 12, topics=None)))
        return int(coordinator.node_id), str(
            read_client_response(3, 12, receive_frame(connection)).cluster_id
        )


def test_the_brokers_of_a_process_share_its_threads() -> None:
    """Their listeners have the same name; each answers for itself, and has its own counters."""
    threads = psutil.Process().num_threads()
    configs = [BrokerConfig(id=number, cluster_id=f"cluster-{number}") for number in range(40)]
    host = BrokerHost(configs)
    host.start()
    try:
        assert psutil.Process().num_threads() < threads + 10
        for number, broker in enumerate(host.brokers):
            assert _asked(broker.endpoints[0].port) == (number, f"cluster-{number}")
        for one in host.describe():
            assert {name: counters["requests"] for name, counters in one["apis"].items()} == {
                "FindCoordinator": 1,
                "Metadata": 1,
            }
    finally:
        host.stop()
    # Linux counts a thread for a moment after it was joined.
    wait_until(lambda: psutil.Process().num_threads() <= threads, what="the end of the threads")


def test_brokers_of_a_process_with_other_settings() -> None:
    configs = [
        BrokerConfig(id=1, max_request_bytes=100),
        BrokerConfig(id=2, max_request_bytes=200),
        BrokerConfig(id=3, max_request_bytes=100, response_delay=0.05),
    ]
    host = BrokerHost(configs)
    host.start()
    try:
        ports = [broker.endpoints[0].port for broker in host.brokers]
        for port, served in zip(ports, (False, True, False), strict=True):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                connection.sendall(struct.pack(">i", 150))
                connection.settimeout(0.2 if served else 10)
                if served:
                    with pytest.raises(TimeoutError):
                        connection.recv(1)
                else:
                    assert connection.recv(1) == b""
        began = time.monotonic()
        assert [_asked(port)[0] for port in ports] == [1, 2, 3]
        assert time.monotonic() - began >= 0.1
    finally:
        host.stop()


def test_the_error_names_the_broker_that_cannot_listen() -> None:
    with EmbeddedBroker(1) as first:
        host = BrokerHost([BrokerConfig(id=7), BrokerConfig(id=8, port=first.port)])
        with pytest.raises(
            ConfigError, match=rf"broker 8: cannot listen on 127\.0\.0\.1:{first.port}: .* in use"
        ):
            host.start()
        host.stop()


def test_a_line_about_a_client_names_the_broker(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(7) as broker, connect(broker) as connection:
        assert is_closed_after(connection, sized(b"\xff" * 9))
    assert any(line.startswith("broker 7: closing the connection of 127.0.0.1:") for line in caplog.messages)
