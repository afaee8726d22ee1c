"""Watches outlive the connections of their session: no change is missed, and none is reported twice."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient

from ctrlchan.zookeeper.operations import Create
from ctrlchan.zookeeper.session import ZooKeeperSession
from tests.fault.proxy import Proxy
from tests.kafka.waiting import wait_until
from tests.kafka.zookeeper_proxy import SET_WATCHES, Loss, ZooKeeperProxy
from tests.unit.controller.expiry import expire
from tests.unit.zookeeper.sessions import away, session

Calls = queue.Queue[str]
#: Sets one watch that calls the function.
SetWatch = Callable[[ZooKeeperSession, Callable[[str], object]], object]
Change = Callable[[KazooClient], object]

#: (the watch, a change that it waits for); ``/there`` has the child ``a``.
CASES: dict[str, tuple[SetWatch, Change]] = {
    "data is changed": (lambda one, call: one.watch_node("/there", call), lambda z: z.set("/there", b"2")),
    "a node is deleted": (lambda one, call: one.watch_node("/there/a", call), lambda z: z.delete("/there/a")),
    "a node is made again": (
        lambda one, call: one.watch_node("/there/a", call),
        lambda z: (z.delete("/there/a"), z.create("/there/a")),
    ),
    "what exists is changed": (
        lambda one, call: one.watch_existence("/there", call),
        lambda z: z.set("/there", b"2"),
    ),
    "what does not exist is created": (
        lambda one, call: one.watch_existence("/none", call),
        lambda z: z.create("/none"),
    ),
    "a node is changed after others were read": (
        lambda one, call: one.watch_then_get_many("/there", call, ["/there/a", "/none"]),
        lambda z: z.set("/there", b"2"),
    ),
    "a child of one of several is created": (
        lambda one, call: one.watch_children_of_each(["/there/a", "/there"], call),
        lambda z: z.create("/there/b"),
    ),
    "one of several parents is created": (
        lambda one, call: one.watch_children_of_each(["/none", "/there/a"], call),
        lambda z: z.create("/none"),
    ),
    "a node is created": (lambda one, call: one.watch_node("/none", call), lambda z: z.create("/none")),
    "a child is created": (
        lambda one, call: one.watch_children("/there", call),
        lambda z: z.create("/there/b"),
    ),
    "a child is deleted": (
        lambda one, call: one.watch_children("/there", call),
        lambda z: z.delete("/there/a"),
    ),
    "a parent is created": (lambda one, call: one.watch_children("/none", call), lambda z: z.create("/none")),
    "a parent is deleted": (
        lambda one, call: one.watch_children("/there/a", call),
        lambda z: z.delete("/there/a"),
    ),
    "one of many is changed": (
        lambda one, call: one.watch_nodes(["/there", "/there/a"], call),
        lambda z: z.set("/there/a", b"2"),
    ),
}


@pytest.fixture
def proxied(zookeeper: str, znodes: KazooClient) -> Iterator[tuple[Proxy, ZooKeeperSession]]:
    """A session through a proxy, and the nodes of the cases."""
    znodes.create("/there", b"1")
    znodes.create("/there/a", b"1")
    address, _, chroot = zookeeper.partition("/")
    with Proxy(int(address.rpartition(":")[2])) as proxy, session(f"127.0.0.1:{proxy.port}/{chroot}") as one:
        yield proxy, one


@pytest.mark.parametrize("case", CASES)
def test_a_change_while_the_connection_is_away_calls_once(
    proxied: tuple[Proxy, ZooKeeperSession], znodes: KazooClient, case: str
) -> None:
    proxy, one = proxied
    set_watch, change = CASES[case]
    calls: Calls = queue.Queue()
    set_watch(one, calls.put)
    with away(proxy, one):
        change(znodes)
    path = calls.get(timeout=20)
    assert path.startswith(("/there", "/none"))
    with away(proxy, one):
        pass
    znodes.create("/there/later")
    assert one.get("/there/later") is not None
    assert calls.empty(), "a watch that has fired is gone"


@pytest.mark.parametrize("case", CASES)
def test_a_change_after_the_connection_is_back_calls_once(
    proxied: tuple[Proxy, ZooKeeperSession], znodes: KazooClient, case: str
) -> None:
    proxy, one = proxied
    set_watch, change = CASES[case]
    calls: Calls = queue.Queue()
    set_watch(one, calls.put)
    for _ in range(2):
        with away(proxy, one):
            pass
    assert one.get("/there") is not None
    assert calls.empty(), "nothing has changed"
    change(znodes)
    calls.get(timeout=20)
    assert one.get("/there") is not None
    assert calls.empty()


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("skip", [0, 1])
def test_a_connection_that_is_lost_while_watches_are_set_again(
    zookeeper: str, znodes: KazooClient, loss: Loss, skip: int
) -> None:
    """Two requests set the watches; one of them is lost, with the event of a node that has changed."""
    address, _, chroot = zookeeper.partition("/")
    calls: Calls = queue.Queue()
    with (
        ZooKeeperProxy(int(address.rpartition(":")[2])) as proxy,
        session(f"{proxy.address}/{chroot}") as one,
    ):
        paths = [f"/n{number:04}" for number in range(1_500)]
        one.multi([Create(path, b"0") for path in paths])
        one.watch_nodes(paths, calls.put)
        target, proxy.target = proxy.target, 1
        proxy.drop_connections()
        wait_until(lambda: not one.is_connected, what="the connection is lost")
        for path in (paths[0], paths[-1]):
            znodes.set(path, b"1")
        plan = {"lose_request": proxy.lose_request, "lose_answer": proxy.lose_answer}
        plan[f"lose_{loss.value}"](SET_WATCHES, skip)
        proxy.target = target
        assert sorted({calls.get(timeout=20), calls.get(timeout=20)}) == [paths[0], paths[-1]]
        assert proxy.losses == 1
        znodes.set(paths[700], b"1")
        assert calls.get(timeout=20) == paths[700]


def test_watches_end_with_their_session(zookeeper: str, znodes: KazooClient) -> None:
    calls: Calls = queue.Queue()
    expired = threading.Event()
    znodes.create("/there")
    with session(zookeeper, on_expired=expired.set) as one:
        one.watch_node("/there", calls.put)
        expire(one)
        assert expired.wait(20)
        one.renew()
        assert one.wait_until_connected(20)
        znodes.set("/there", b"2")
        one.watch_node("/there", calls.put)
        znodes.set("/there", b"3")
        assert calls.get(timeout=20) == "/there"
        assert one.get("/there") is not None
        assert calls.empty()
