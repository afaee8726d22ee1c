"""Offsets of groups in ZooKeeper, with a real one."""

from __future__ import annotations

import pytest

from ctrlchan.errors import MalformedError
from ctrlchan.zookeeper.consumer_offsets import ConsumerOffsets
from ctrlchan.zookeeper.session import ZooKeeperSession
from tests.unit.zookeeper.sessions import session

PATH = "/consumers/group/offsets/topic/3"


class Hurried(ZooKeeperSession):
    """Another broker creates the node between two requests of this session."""

    def create(self, path: str, data: bytes | None = None, *, ephemeral: bool = False) -> None:
        if path == PATH and self.get(path) is None:
            super().create(path, b"0")
        super().create(path, data, ephemeral=ephemeral)


def test_offsets_are_decimal_text_in_kafkas_nodes(zookeeper: str) -> None:
    with session(zookeeper) as one:
        offsets = ConsumerOffsets(one)
        assert offsets.get("group", "topic", 3) is None
        for offset in (7, 0, -1, 2**63 - 1, -(2**63)):
            offsets.set("group", "topic", 3, offset)
            node = one.get(PATH)
            assert node is not None
            assert node.data == b"%d" % offset
            assert offsets.get("group", "topic", 3) == offset
        assert offsets.get("group", "topic", 4) is None
        offsets.set("a/b", "topic", 0, 1)
        assert one.get("/consumers/a/b/offsets/topic/0") is not None


def test_another_broker_may_create_the_node_first(zookeeper: str) -> None:
    with session(zookeeper) as one:
        one.__class__ = Hurried
        ConsumerOffsets(one).set("group", "topic", 3, 9)
        assert ConsumerOffsets(one).get("group", "topic", 3) == 9


@pytest.mark.parametrize("data", [b"", b"seven", b"7 ", b"0x7", b"9223372036854775808", b"\xff"])
def test_a_node_without_a_number(zookeeper: str, data: bytes) -> None:
    with session(zookeeper) as one:
        offsets = ConsumerOffsets(one)
        offsets.set("group", "topic", 3, 1)
        one.set(PATH, data)
        with pytest.raises(MalformedError, match="/consumers/group/offsets/topic/3"):
            offsets.get("group", "topic", 3)


@pytest.mark.parametrize(
    "group", ["", ".", "..", "a/../b", "a//b", "/a", "a/", "\0", "\x1f", "\x9f", "\uf8ff"]
)
def test_groups_that_no_node_can_have_as_a_name(zookeeper: str, group: str) -> None:
    with session(zookeeper) as one:
        offsets = ConsumerOffsets(one)
        with pytest.raises(MalformedError):
            offsets.set(group, "topic", 0, 1)
        with pytest.raises(MalformedError):
            offsets.get(group, "topic", 0)
        assert one.children("/consumers") is None
