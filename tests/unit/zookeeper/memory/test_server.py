"""What nodes in memory have of their own: the end of sessions, bytes that are no request, a file."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

from ctrlchan.errors import ConfigError, NodeError, SessionExpiredError
from ctrlchan.zookeeper.memory.server import MemoryZooKeeper
from tests.kafka.waiting import wait_until
from tests.unit.zookeeper.sessions import session


def test_a_session_is_ended_by_its_node() -> None:
    with MemoryZooKeeper() as server, session(server.address) as one, session(server.address) as other:
        one.create("/mine", ephemeral=True)
        server.end_session_of("/nothing")
        server.end_session_of("/mine")
        assert other.get("/mine") is None

        def is_expired() -> bool:
            try:
                one.get("/")
            except SessionExpiredError:
                return True
            return False

        wait_until(is_expired, what="the client hears that its session has ended")


def test_a_session_ends_after_its_client() -> None:
    with MemoryZooKeeper() as server, session(server.address) as other:
        with session(server.address, session_timeout=0.2) as one:
            one.create("/mine", ephemeral=True)
            one._connection.cut()
            assert one.get("/mine") is not None  # the session goes on, on another connection
        wait_until(lambda: other.get("/mine") is None, what="the node goes with its session")


@pytest.mark.parametrize(
    "data", [b"\xff" * 64, struct.pack(">i", 12) + b"\x00" * 12, struct.pack(">i", 2**30)]
)
def test_bytes_that_are_no_request_close_the_connection(data: bytes) -> None:
    with MemoryZooKeeper() as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
            client.sendall(data)
            assert client.recv(100) == b""
        with session(server.address) as one:
            assert one.get("/") is not None


def test_a_close_with_a_client_logs_no_error(caplog: pytest.LogCaptureFixture) -> None:
    server = MemoryZooKeeper()
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        # The first request waits for bytes: the server's task has begun.
        client.sendall(b"\x00")
        with session(server.address) as one:
            assert one.get("/") is not None
            server.close()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def test_nodes_outlive_a_restart_but_for_those_of_sessions(tmp_path: Path) -> None:
    journal = tmp_path / "new" / "nodes.jsonl"
    with MemoryZooKeeper(journal) as server, session(server.address) as one:
        one.create("/a", bytes(range(256)))
        one.create("/a/b", b"1")
        one.set("/a/b", b"2")
        one.create("/gone")
        one.delete("/gone")
        one.create("/e", ephemeral=True)
        with pytest.raises(NodeError):
            one.create("/a")
        before = one.get("/a/b")
    with journal.open("ab") as file:
        file.write(b'[99,[["create","/torn"')
    with MemoryZooKeeper(journal) as server, session(server.address) as one:
        assert sorted(one.children("/") or []) == ["a"]
        assert one.get("/a/b") == before
        node = one.get("/a")
        assert node is not None
        assert node.data == bytes(range(256))
        one.set("/a/b", b"3", 1)
    with MemoryZooKeeper(journal) as server, session(server.address) as one:
        found = one.get("/a/b")
        assert found is not None
        assert (found.data, found.version) == (b"3", 2)
    journal.write_bytes(b'[1,[["set","/none",""]]]\n')
    with pytest.raises(ConfigError, match="line 1 is no transaction"):
        MemoryZooKeeper(journal)
