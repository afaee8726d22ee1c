"""What happens to a controller when its connection or its session with ZooKeeper ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.term import election
from ctrlchan.errors import NotControllerError
from ctrlchan.zookeeper import paths
from tests.fault.proxy import Proxy
from tests.kafka.waiting import wait_until
from tests.unit.controller.expiry import expire
from tests.unit.controller.real_cluster import TIMEOUT, RealCluster

THREE = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}


def test_a_controller_whose_session_has_expired_is_elected_again(cluster: RealCluster) -> None:
    cluster.start_brokers(1, 2, 3)
    cluster.create_topic("t", THREE)
    controller = cluster.active_controller()
    cluster.wait_seen("t", {0: 1, 1: 2, 2: 3})
    former = controller.session.session_id
    expire(controller.session)
    wait_until(lambda: controller.epoch == 2, what="the controller is elected again")
    controller.wait_until_active(TIMEOUT)
    assert controller.session.session_id != former
    cluster.create_topic("u", {0: [3, 2, 1]})
    assert cluster.wait_state("u", 0, leader=3).controller_epoch == 2
    cluster.kill_brokers(1)
    cluster.wait_seen("t", {0: 2, 1: 2, 2: 3})


def test_another_takes_over_after_an_expired_session(cluster: RealCluster) -> None:
    cluster.start_brokers(1)
    first = cluster.active_controller(1000)
    second = cluster.controller(1001)
    wait_until(lambda: second.active_controller_id == 1000, what="the second controller sees the first")
    for _ in range(3):
        active = first if first.is_active else second
        epoch = active.epoch
        assert epoch is not None
        expire(active.session)
        wait_until(
            lambda epoch=epoch: any((one.epoch or 0) > epoch for one in (first, second)),  # type: ignore[misc]
            what="one of them is elected",
        )
        wait_until(lambda: first.is_active != second.is_active, what="one of them is active")


def test_requests_that_wait_are_answered_when_the_session_expires(cluster: RealCluster) -> None:
    controller = cluster.active_controller()
    begun, go_on = threading.Event(), threading.Event()

    def wait(_: object) -> None:
        begun.set()
        assert go_on.wait(TIMEOUT)

    blocked = controller.loop.call(ControllerState.IDLE, wait)
    assert begun.wait(TIMEOUT)
    waiting = controller.loop.call(ControllerState.ISR_CHANGE, lambda core: core.epoch)
    expire(controller.session)
    with pytest.raises(NotControllerError):
        waiting.result(TIMEOUT)
    go_on.set()
    blocked.result(TIMEOUT)
    wait_until(lambda: controller.epoch == 2, what="the controller is elected again")


def test_a_controller_that_is_closed_while_it_takes_over(
    cluster: RealCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of its session ends the failover, which is no error."""
    begun = threading.Event()

    def fail_over(core: ControllerCore) -> None:
        begun.set()
        wait_until(lambda: core.session.is_closed, timeout=TIMEOUT, what="the session is closed")
        core.nodes.topic_deletions()

    monkeypatch.setattr(election, "fail_over", fail_over)
    controller = cluster.controller(1000)
    assert begun.wait(TIMEOUT)
    controller.close()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_fence_that_comes_after_the_end_of_the_term_does_nothing(cluster: RealCluster) -> None:
    """``close`` and the watchdog may have read the core just before the event loop ends its term."""
    cluster.start_brokers(1)
    controller = cluster.active_controller()
    core = controller.current()
    assert core is not None
    controller.close()
    core.fence()
    assert not core.active


@pytest.fixture
def proxied(cluster: RealCluster) -> Iterator[tuple[RealCluster, Proxy]]:
    """A cluster whose controllers reach ZooKeeper through a proxy."""
    address, slash, chroot = cluster.zookeeper.partition("/")
    with Proxy(int(address.rpartition(":")[2])) as proxy:
        cluster.zookeeper = f"127.0.0.1:{proxy.port}{slash}{chroot}"
        yield cluster, proxy
        for controller in cluster.controllers:
            controller.close()


def test_changes_during_a_lost_connection_are_found(proxied: tuple[RealCluster, Proxy]) -> None:
    """The session goes on, the watches are gone: everything is read again."""
    cluster, proxy = proxied
    cluster.start_brokers(1, 2, 3)
    controller = cluster.active_controller(zookeeper_session_timeout=4.0)
    cluster.create_topic("t", {0: [1, 2, 3]})
    cluster.wait_seen("t", {0: 1})
    for number in range(3):
        proxy.drop_connections()
        cluster.create_topic(f"u{number}", {0: [2, 3]})
        cluster.set_assignment("t", {0: [1, 2, 3]} | {one: [3, 2] for one in range(1, number + 2)})
        cluster.wait_state(f"u{number}", 0, leader=2)
        cluster.wait_state("t", number + 1, leader=3)
    proxy.drop_connections()
    cluster.kill_brokers(1)
    cluster.wait_state("t", 0, leader=2)
    assert controller.epoch == 1


def test_nothing_is_sent_while_zookeeper_is_silent(proxied: tuple[RealCluster, Proxy]) -> None:
    """A fence by clock: after a session timeout another controller may have been elected."""
    cluster, proxy = proxied
    cluster.start_brokers(1, 2)
    controller = cluster.active_controller(zookeeper_session_timeout=0.5)
    core = controller.current()
    assert core is not None
    proxy.stop_listening()
    proxy.drop_connections()
    wait_until(lambda: not controller.is_active, what="the controller has resigned by the clock")
    assert not core.active
    wait_until(
        lambda: core.channel.describe()["state"] in ("resigned", "closed"), what="the channel is closed"
    )
    proxy.listen()
    wait_until(lambda: (controller.epoch or 0) > 1, what="the controller is elected again")
    controller.wait_until_active(TIMEOUT)
    wait_until(lambda: cluster.znodes.exists(paths.CONTROLLER) is not None, what="/controller is there")


def test_a_silence_ends_without_a_lost_connection(cluster: RealCluster) -> None:
    """As for a process that was stopped for a while: the session and ``/controller`` are as they were."""
    cluster.start_brokers(1)
    first = cluster.active_controller(1000)
    second = cluster.controller(1001)
    wait_until(lambda: second.active_controller_id == 1000, what="the second controller sees the first")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first.session, "silent_for", lambda: 2 * first.session.session_timeout)
        wait_until(lambda: not first.is_active, what="the controller has resigned by the clock")
    wait_until(lambda: first.is_active or second.is_active, what="one of them is elected")
    cluster.create_topic("t", {0: [1]})
    assert cluster.wait_state("t", 0, leader=1).controller_epoch == 2


def test_resigning_ends_while_zookeeper_does_not_answer(proxied: tuple[RealCluster, Proxy]) -> None:
    cluster, proxy = proxied
    cluster.start_brokers(1)
    controller = cluster.active_controller(zookeeper_session_timeout=4.0)
    core = controller.current()
    assert core is not None
    proxy.stop_listening()
    proxy.drop_connections()
    resigning = threading.Thread(target=controller.resign, daemon=True)
    resigning.start()
    resigning.join(TIMEOUT)
    assert not resigning.is_alive()
    assert not controller.is_active
    assert not core.active
    controller.close()


def test_taking_over_ends_while_zookeeper_does_not_answer(proxied: tuple[RealCluster, Proxy]) -> None:
    cluster, proxy = proxied
    controller = cluster.active_controller(zookeeper_session_timeout=0.5)
    proxy.stop_listening()
    proxy.drop_connections()
    wait_until(lambda: not controller.is_active, what="the controller has resigned by the clock")
    results: list[bool] = []
    taking_over = threading.Thread(target=lambda: results.append(controller.take_over()), daemon=True)
    taking_over.start()
    taking_over.join(TIMEOUT)
    assert results == [False]
    proxy.listen()
    controller.wait_until_active(TIMEOUT)


def test_a_term_that_has_ended_at_once_is_not_taken_over(
    cluster: RealCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = cluster.active_controller()
    core = controller.current()
    assert core is not None
    assert controller.take_over()
    # What the watchdog does when ZooKeeper has been silent for too long, before the loop hears of it.
    monkeypatch.setattr(controller._elector, "take_over", core.fence)
    assert not controller.take_over()
