"""The ZooKeeper server of the tests."""

from __future__ import annotations

from kazoo.client import KazooClient

from tests.kafka.zookeeper import ZooKeeperServer


def test_each_test_has_an_empty_chroot(zookeeper: str, znodes: KazooClient) -> None:
    assert zookeeper.count("/") == 1
    assert znodes.get_children("/") == []
    znodes.create("/one", b"1")
    assert znodes.get("/one")[0] == b"1"


def test_the_server_is_of_a_version_with_multi_read(
    zookeeper_server: ZooKeeperServer, znodes: KazooClient
) -> None:
    assert znodes.server_version() >= (3, 6)
