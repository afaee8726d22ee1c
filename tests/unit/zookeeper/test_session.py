"""A session with a real ZooKeeper: reads, writes, watches, lost connections, expiry."""

from __future__ import annotations

import os
import queue
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from ctrlchan.errors import ConfigError, NodeError, ResultCode, SessionExpiredError, ZooKeeperError
from ctrlchan.zookeeper.operations import Check, Create, Delete, Node, Operation, SetData
from ctrlchan.zookeeper.session import ZooKeeperSession
from ctrlchan.zookeeper.settings import SaslSettings, TlsSettings, ZooKeeperSettings
from tests.fault.proxy import FINE, Harm, Proxy
from tests.kafka.waiting import wait_until
from tests.kafka.zookeeper import ZooKeeperServer
from tests.kafka.zookeeper_proxy import EXISTS, GET_CHILDREN, MULTI_READ, Loss, ZooKeeperProxy
from tests.unit.zookeeper.sessions import session


def test_nodes_are_created_read_changed_and_deleted(zookeeper: str) -> None:
    with session(zookeeper) as one:
        one.create("/a", b"1")
        node = one.get("/a")
        assert node == Node(b"1", 0, node.czxid, node.czxid, 0) if node else False
        assert one.set("/a", b"2") == 1
        assert one.set("/a", b"3", 1) == 2
        one.create_path("/deep/er/path")
        one.create_path("/deep/er/path")
        assert sorted(one.children("/") or []) == ["a", "deep"]
        one.delete("/a", 2)
        assert one.get("/a") is None
        assert one.children("/a") is None


def test_the_time_of_each_answer_counts(zookeeper: str) -> None:
    with session(zookeeper) as one:
        times = one.request_times
        before = times.count, times.total_ns
        one.create("/a", b"1")
        one.get("/a")
        assert one.get("/none") is None
        assert (times.count - before[0], times.total_ns > before[1]) == (3, True)


@pytest.mark.parametrize(
    ("operations", "index", "code"),
    [
        ([SetData("/a", b"", 5)], 0, ResultCode.BAD_VERSION),
        ([Create("/a")], 0, ResultCode.NODE_EXISTS),
        ([Create("/b/c")], 0, ResultCode.NO_NODE),
        ([SetData("/a", b"", 0), Delete("/a", 0)], 1, ResultCode.BAD_VERSION),
        ([SetData("/a", b"", 0), Check("/a", 0), Create("/x")], 1, ResultCode.BAD_VERSION),
        ([Create("/x"), Delete("/none")], 1, ResultCode.NO_NODE),
        ([Delete("/parent")], 0, ResultCode.NOT_EMPTY),
    ],
)
def test_a_failed_multi_names_its_operation_and_changes_nothing(
    zookeeper: str, operations: Any, index: int, code: ResultCode
) -> None:
    with session(zookeeper) as one:
        one.create("/a", b"data")
        one.create_path("/parent/child")
        with pytest.raises(NodeError) as raised:
            one.multi(operations)
        error = raised.value
        assert (error.index, error.code, error.path) == (index, code, operations[index].path)
        assert str(error) == f"{error.path}: {code.name}"
        assert one.get("/x") is None
        found = one.get("/a")
        assert found is not None
        assert (found.data, found.version) == (b"data", 0)


def test_a_multi_returns_new_versions(zookeeper: str) -> None:
    with session(zookeeper) as one:
        one.create("/a")
        operations: list[Operation] = [
            Check("/a", 0),
            SetData("/a", b"1", 0),
            Create("/e", ephemeral=True),
            Create("/s-", sequential=True),
        ]
        assert one.multi(operations) == [0, 1, 0, 0]
        assert sorted(one.children("/") or []) == ["a", "e", "s-0000000002"]
        owner = one.get("/e")
        assert owner is not None
        assert owner.ephemeral_owner == one.session_id


def test_a_missing_chroot_is_made(
    zookeeper_server: ZooKeeperServer, zookeeper: str, znodes: KazooClient
) -> None:
    with session(f"{zookeeper}/some/where") as one:
        assert one.get("/") is None
        one.create_path("/a/b")
        one.create_path("/")
        assert one.children("/") == ["a"]
    assert znodes.exists("/some/where/a/b")


def test_ephemeral_nodes_end_with_the_session(zookeeper: str, znodes: KazooClient) -> None:
    with session(zookeeper) as one:
        one.create("/e", ephemeral=True)
        assert znodes.exists("/e")
    assert not znodes.exists("/e")


def test_many_nodes_are_read_in_few_requests(zookeeper_server: ZooKeeperServer, zookeeper: str) -> None:
    chroot = zookeeper.partition("/")[2]
    with ZooKeeperProxy(zookeeper_server.port) as proxy, session(f"{proxy.address}/{chroot}") as one:
        one.create("/a", b"1")
        proxy.requests.clear()
        found = one.get_many(["/a", "/none"] * 1_500)
        assert [node and node.data for node in found] == [b"1", None] * 1_500
        assert list(proxy.requests) == [MULTI_READ] * 3


def test_requests_stay_below_the_longest_that_the_server_takes(zookeeper: str) -> None:
    long = "/" + "x" * 700
    with session(zookeeper) as one:
        one.settings = ZooKeeperSettings(connect=zookeeper, max_request_bytes=4096)
        one.create(long, b"1")
        assert [node and node.data for node in one.get_many([long] * 20)] == [b"1"] * 20
        assert [len(part) for part in one._batches(one.chrooted([long] * 12))] == [5, 5, 2]


def test_a_server_without_multi_read_is_read_node_by_node(
    zookeeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with session(zookeeper) as one:
        one.create("/a", b"1")
        value_of = ZooKeeperSession.value_of

        def unimplemented(self: ZooKeeperSession, result: Any, path: str) -> Any:
            answer = value_of(self, result, path)
            # What a server below 3.6 answers to opcode 22.
            if isinstance(answer, list) and isinstance(answer[0], bytes):
                raise NodeError(path, ResultCode.UNIMPLEMENTED)
            return answer

        monkeypatch.setattr(ZooKeeperSession, "value_of", unimplemented)
        assert [node and node.data for node in one.get_many(["/a", "/none"] * 700)] == [b"1", None] * 700
        assert not one.has_multi_read


def test_watches_call_once_for_each_change(zookeeper: str, znodes: KazooClient) -> None:
    calls: queue.Queue[str] = queue.Queue()
    with session(zookeeper) as one:
        one.create("/a", b"1")
        one.create("/b")
        assert one.watch_children("/", calls.put) is not None
        assert one.watch_node("/a", calls.put) is not None
        assert one.watch_node("/new", calls.put) is None
        assert one.watch_children("/later", calls.put) is None
        znodes.set("/a", b"2")
        assert calls.get(timeout=10) == "/a"
        znodes.set("/a", b"3")
        znodes.create("/new")
        assert sorted([calls.get(timeout=10), calls.get(timeout=10)]) == ["/", "/new"]
        znodes.create("/later")
        assert calls.get(timeout=10) == "/later"
        assert calls.empty()


def test_what_is_read_with_a_watch(zookeeper: str) -> None:
    with session(zookeeper) as one:
        one.multi([Create("/a", b"1"), Create("/a/b"), Create("/c")])
        calls: queue.Queue[str] = queue.Queue()
        found = one.watch_then_get_many("/none", calls.put, ["/a", "/none"])
        assert [node and node.data for node in found] == [b"1", None]
        assert one.watch_children_of_each(["/a", "/none", "/c"], calls.put) == [["b"], None, []]
        assert one.watch_existence("/a", calls.put)
        assert not one.watch_existence("/none", calls.put)
        assert calls.empty()


@pytest.mark.parametrize("skip", [0, 1])
def test_a_watch_with_a_read_outlives_a_lost_answer(
    zookeeper_server: ZooKeeperServer, zookeeper: str, znodes: KazooClient, skip: int
) -> None:
    """Of two requests that are sent together, the answer to either is lost."""
    chroot = zookeeper.partition("/")[2]
    calls: queue.Queue[str] = queue.Queue()
    with (
        ZooKeeperProxy(zookeeper_server.port) as proxy,
        session(f"{proxy.address}/{chroot}") as one,
    ):
        one.multi([Create("/a", b"1"), Create("/b")])
        for names in (["/a"], ["/a", "/b"]):
            proxy.lose_answer(EXISTS if skip == 0 else MULTI_READ)
            found = one.watch_then_get_many("/b", calls.put, names)
            assert [node and node.data for node in found] == [b"1", b""][: len(names)]
        proxy.lose_answer(GET_CHILDREN, skip)
        assert one.watch_children_of_each(["/a", "/b"], calls.put) == [[], []]
        znodes.set("/b", b"2")
        znodes.create("/a/child")
        assert sorted([calls.get(timeout=10), calls.get(timeout=10)]) == ["/a", "/b"]
        assert calls.empty()


def test_many_nodes_are_watched_in_bulk(zookeeper: str, znodes: KazooClient) -> None:
    calls: queue.Queue[str] = queue.Queue()
    with session(zookeeper) as one:
        one.multi([Create(f"/n{number}", b"0") for number in range(1_200)])
        paths = [f"/n{number}" for number in range(1_200)]
        found = one.watch_nodes([*paths, "/none"], calls.put)
        assert [node and node.data for node in found] == [b"0"] * 1_200 + [None]
        znodes.set("/n0", b"1")
        znodes.delete("/n1199")
        assert [calls.get(timeout=10), calls.get(timeout=10)] == ["/n0", "/n1199"]


def test_a_node_that_changes_while_it_is_read_in_bulk_calls(
    zookeeper: str, znodes: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: queue.Queue[str] = queue.Queue()
    with session(zookeeper) as one:
        one.create("/a", b"0")
        set_watches = one._set_watches

        def change_first(*given: Any) -> bool:
            znodes.set("/a", b"1")
            return set_watches(*given)

        monkeypatch.setattr(one, "_set_watches", change_first)
        (found,) = one.watch_nodes(["/a"], calls.put)
        assert found is not None
        assert found.data == b"0"
        assert calls.get(timeout=10) == "/a"


def test_a_request_waits_for_the_connection(zookeeper_server: ZooKeeperServer, zookeeper: str) -> None:
    chroot = zookeeper.partition("/")[2]
    events: queue.Queue[Any] = queue.Queue()
    calls: queue.Queue[str] = queue.Queue()
    with (
        ZooKeeperProxy(zookeeper_server.port) as proxy,
        session(
            f"{proxy.address}/{chroot}",
            on_suspended=lambda: events.put("suspended"),
            on_connected=lambda new: events.put(("connected", new)),
            on_expired=lambda: events.put("expired"),
        ) as one,
    ):
        first_session = one.session_id
        one.create("/a", b"1")
        one.watch_node("/a", calls.put)
        assert events.get(timeout=10) == ("connected", False)
        proxy.drop_connections()
        node = one.get("/a")
        assert node is not None
        assert node.data == b"1"
        assert [events.get(timeout=10), events.get(timeout=10)] == ["suspended", ("connected", False)]
        assert one.session_id == first_session
        assert calls.empty(), "the end of a connection is no change of a node"


def test_nothing_is_sent_on_a_new_session_before_the_expiry_was_handled(
    zookeeper_server: ZooKeeperServer, zookeeper: str, znodes: KazooClient
) -> None:
    chroot = zookeeper.partition("/")[2]
    events: queue.Queue[Any] = queue.Queue()
    with (
        ZooKeeperProxy(zookeeper_server.port) as proxy,
        session(
            f"{proxy.address}/{chroot}",
            session_timeout=0.8,
            on_expired=lambda: events.put("expired"),
            on_connected=lambda new: events.put(("connected", new)),
        ) as one,
    ):
        assert one.session_timeout == pytest.approx(0.8)
        former = one.session_id
        one.create("/e", ephemeral=True)
        # Requests reach nobody until the server has ended the session.
        target, proxy.target = proxy.target, 1
        proxy.drop_connections()
        wait_until(lambda: not znodes.exists("/e"), what="the session expires")
        assert one.silent_for() > 0.5
        proxy.target = target
        assert [events.get(timeout=20) for _ in range(3)] == [
            ("connected", False),
            "expired",
            ("connected", True),
        ]
        for request in (lambda: one.get("/"), lambda: one.create("/x"), lambda: one.get_many(["/"])):
            with pytest.raises(SessionExpiredError):
                request()
        assert not one.is_connected
        one.renew()
        assert one.wait_until_connected(10)
        one.create("/x", ephemeral=True)
        assert one.session_id not in (0, former)


def test_silence_counts_from_the_last_request_that_was_answered(tmp_path: Path) -> None:
    with (
        ZooKeeperServer(tmp_path / "zookeeper") as server,
        session(server.address, session_timeout=4.0) as one,
    ):
        one.get("/")
        assert one.silent_for() < 2
        os.kill(server.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: one.silent_for() > 1.5, what="the server is silent")
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert one.get("/") is not None
        assert one.silent_for() < 1.5


def test_a_session_outlives_a_restart_of_the_server(tmp_path: Path) -> None:
    with (
        ZooKeeperServer(tmp_path / "zookeeper") as server,
        session(server.address, session_timeout=30) as one,
    ):
        one.create("/e", b"1", ephemeral=True)
        former = one.session_id
        server.kill()
        wait_until(lambda: not one.is_connected, what="the connection is lost")
        # Who compares owners of nodes meanwhile finds his own.
        assert one.session_id == former
        server.start()
        assert one.set("/e", b"2") == 1
        assert one.session_id == former


def test_a_closed_session_refuses_requests(zookeeper: str) -> None:
    with session(zookeeper) as one:
        pass
    with pytest.raises(ZooKeeperError, match="the session was closed"):
        one.get("/")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:1", r"127\.0\.0\.1:1: socket connection error: Connection refused"),
        ("nowhere.invalid:1", "no server's name has an address"),
    ],
)
def test_no_server(address: str, reason: str) -> None:
    one = ZooKeeperSession(ZooKeeperSettings(connect=address))
    message = rf"^zookeeper {address}: no connection within 0\.3 s \({reason}\)$"
    with pytest.raises(ZooKeeperError, match=message):
        one.start(0.3)


def test_a_server_that_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        one = ZooKeeperSession(ZooKeeperSettings(connect=address, session_timeout=0.4))
        with pytest.raises(ZooKeeperError, match=rf"\({address}: socket time-out during read\)$"):
            one.start(1)


def test_a_start_that_is_interrupted_before_there_is_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    before = set(threading.enumerate())
    failed: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    started = ZooKeeperSession(ZooKeeperSettings(connect="127.0.0.1:1"))
    monkeypatch.setattr(started._client._connection, "start", interrupt)
    with pytest.raises(KeyboardInterrupt):
        started.start()
    assert failed == []
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize("loss", Loss)
def test_a_connection_that_is_lost_at_the_start_is_made_again(
    zookeeper_server: ZooKeeperServer, zookeeper: str, loss: Loss
) -> None:
    chroot = zookeeper.partition("/")[2]
    with ZooKeeperProxy(zookeeper_server.port) as proxy:
        proxy.plan = lambda opcode: loss if opcode == EXISTS and proxy.losses < 3 else None
        with session(f"{proxy.address}/{chroot}") as one:
            one.create("/a")
        assert proxy.losses == 3


def test_a_session_that_is_cut_before_it_is_established_is_made_again(
    zookeeper_server: ZooKeeperServer, zookeeper: str
) -> None:
    chroot = zookeeper.partition("/")[2]
    with Proxy(zookeeper_server.port, lambda number: (FINE, Harm(cut_at=5 if number < 3 else None))) as proxy:
        with session(f"127.0.0.1:{proxy.port}/{chroot}") as one:
            one.create("/a")
        assert proxy.connections > 3


def test_a_start_whose_connections_are_all_lost(zookeeper_server: ZooKeeperServer) -> None:
    with ZooKeeperProxy(zookeeper_server.port) as proxy:
        proxy.plan = lambda opcode: Loss.REQUEST if opcode == EXISTS else None
        one = ZooKeeperSession(ZooKeeperSettings(connect=proxy.address))
        message = rf"^zookeeper {proxy.address}: no connection within 1 s \(the connection was lost\)$"
        with pytest.raises(ZooKeeperError, match=message):
            one.start(1)


def test_a_session_is_closed_while_zookeeper_does_not_answer(
    zookeeper_server: ZooKeeperServer, zookeeper: str
) -> None:
    """kazoo's thread waits a session timeout for the answer of a server."""
    chroot = zookeeper.partition("/")[2]
    with Proxy(zookeeper_server.port) as proxy:
        one = ZooKeeperSession(
            ZooKeeperSettings(connect=f"127.0.0.1:{proxy.port}/{chroot}", session_timeout=120)
        )
        one.start(20)
        before = proxy.connections
        proxy.plan = lambda _: (FINE, Harm(stall_at=0))
        proxy.drop_connections()
        wait_until(lambda: proxy.connections > before, what="the session connects again")
        errors = queue.Queue[str]()

        def read() -> None:
            try:
                one.get("/")
            except ZooKeeperError as error:
                errors.put(str(error))

        threads = [threading.Thread(target=target, daemon=True) for target in (read, one.close, one.close)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads)
        assert "the session was closed" in errors.get_nowait()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"connect": "localhost:x"}, "localhost:x"),
        ({"connect": "localhost:1", "session_timeout": 0}, "session timeout"),
        ({"connect": "localhost:1", "set_acl": True}, "set_acl needs"),
        ({"connect": "localhost:1", "max_request_bytes": 10}, "too short"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ZooKeeperSettings(**settings)


def test_secrets_are_not_shown() -> None:
    settings = ZooKeeperSettings(
        connect="h:1", digest=("user", "s3cret"), tls=TlsSettings(certificate="c", key_password="s3cret")
    )
    assert "s3cret" not in repr(settings)
    assert "s3cret" not in repr(SaslSettings(username="user", password="s3cret"))


def test_nodes_belong_to_their_creator_with_set_acl(zookeeper: str, znodes: KazooClient) -> None:
    settings = ZooKeeperSettings(connect=zookeeper, digest=("kafka", "s3cret"), set_acl=True)
    one = ZooKeeperSession(settings)
    one.start(20)
    try:
        one.create_path("/config/users")
        one.create("/config/users/alice", b"x")
        one.create("/controller_epoch", b"1")
        one.set("/controller_epoch", b"2")
    finally:
        one.close()
    with session(zookeeper) as stranger:
        found = stranger.get("/controller_epoch")
        assert found is not None
        assert found.data == b"2"
        with pytest.raises(NodeError, match="NO_AUTH"):
            stranger.set("/controller_epoch", b"3")
        with pytest.raises(NodeError, match="/config/users/alice: NO_AUTH"):
            stranger.get("/config/users/alice")
        with pytest.raises(NodeError, match="/config/users/alice: NO_AUTH"):
            stranger.get_many(["/controller_epoch", "/config/users/alice"])
