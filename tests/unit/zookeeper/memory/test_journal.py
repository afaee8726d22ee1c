"""The file of a NodeTree: snapshots, and writes that a full disk refuses."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ctrlchan.errors import ConfigError
from ctrlchan.zookeeper.memory import journal
from ctrlchan.zookeeper.memory.journal import TreeJournal
from ctrlchan.zookeeper.memory.tree import NodeTree, TreeNode
from ctrlchan.zookeeper.operations import Create, Delete, Operation, SetData

SESSION = 7


@contextmanager
def opened(path: Path) -> Iterator[NodeTree]:
    """A tree with the nodes of the file."""
    tree = NodeTree()
    file = TreeJournal(path, tree)
    try:
        yield tree
    finally:
        file.close()


def write(tree: NodeTree, *operations: Operation) -> None:
    assert isinstance(tree.apply(operations, SESSION), list)


def lasting(tree: NodeTree) -> dict[str, TreeNode]:
    return {path: node for path, node in tree.nodes.items() if not node.owner}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nodes.jsonl"


def test_a_file_of_many_writes_becomes_a_snapshot(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_SMALL_BYTES", 1000)
    with opened(path) as tree:
        write(tree, Create("/a", bytes(range(256))), Create("/a/b", b"0"), Create("/e", ephemeral=True))
        write(
            tree,
            Create("/a/n-", sequential=True),
            Create("/a/n-", sequential=True),
            Delete("/a/n-0000000001"),
        )
        for number in range(1000):
            write(tree, SetData("/a/b", b"%d" % number))
            assert path.stat().st_size < 4000
        before, zxid = lasting(tree), tree.zxid
        assert path.read_bytes().startswith(b'{"zxid":')
    for _ in range(2):
        with opened(path) as tree:
            assert tree.zxid == zxid
            assert lasting(tree).pop("/a") == before["/a"]
            assert tree.nodes.keys() == before.keys()
            assert (tree.nodes["/a/b"].data, tree.nodes["/a/b"].version) == (b"999", 1000)
    with opened(path) as tree:
        write(tree, Create("/a/n-", sequential=True))
        assert "/a/n-0000000003" in tree.nodes
    with opened(path) as tree:
        assert "/a/n-0000000003" in tree.nodes
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name, f"{path.name}.lock"]


def test_a_long_file_becomes_a_snapshot_when_it_is_opened(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as tree:
        write(tree, Create("/a", b""))
        for _ in range(100):
            write(tree, SetData("/a", b"x"))
    size = path.stat().st_size
    monkeypatch.setattr(journal, "_SMALL_BYTES", 1000)
    with opened(path) as tree:
        assert path.stat().st_size < size / 10
        assert tree.nodes["/a"].version == 100


def test_a_full_disk_loses_nothing_once_there_is_room_again(path: Path) -> None:
    with opened(path) as tree:
        write(tree, Create("/a", b"1"))
        with size_limit(path.stat().st_size + 10):
            for number in range(3):
                with pytest.raises(OSError, match="File too large"):
                    write(tree, Create(f"/not written {number}"))
        with opened(path.with_name("copy")) as other:
            assert other.zxid == 0
        path.with_name("copy").write_bytes(path.read_bytes())
        with opened(path.with_name("copy")) as other:
            assert sorted(other.nodes) == ["/", "/a"]
        write(tree, Create("/b"))
        write(tree, Create("/c"))
    with opened(path) as tree:
        assert sorted(tree.nodes) == ["/", "/a", "/b", "/c", *(f"/not written {one}" for one in range(3))]


def test_a_snapshot_that_a_full_disk_refuses_is_written_later(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(journal, "_SMALL_BYTES", 200)
    with opened(path) as tree:
        monkeypatch.setattr(Path, "replace", refuse)
        write(tree, Create("/a", b"x" * 300))
        assert "no snapshot can be written" in caplog.text
        write(tree, Create("/b"))
        monkeypatch.undo()
        for _ in range(20):
            write(tree, SetData("/b", b"x"))
        assert path.read_bytes().startswith(b"{")
    with opened(path) as tree:
        assert sorted(tree.nodes) == ["/", "/a", "/b"]
        assert tree.nodes["/b"].version == 20


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b'{"zxid":1}',
        b'{"zxid":1,"nodes":[["/a/b","",1,1,0,0,1]]}',
        b'{"zxid":1,"nodes":[["/a"]]}',
        b'{"zxid":1,"nodes":[["/a",2,1,1,0,0,1]]}',
        b'[1,[["set","/none",""]]]',
        b"[1]",
        b"1",
    ],
)
def test_a_line_of_something_else_is_an_error(path: Path, line: bytes) -> None:
    path.write_bytes(line + b"\n")
    with pytest.raises(ConfigError, match="line 1 is no transaction"):
        TreeJournal(path, NodeTree())


def test_two_trees_do_not_use_one_file(path: Path) -> None:
    with opened(path) as tree:
        write(tree, Create("/a", b"1"))
        before = path.read_bytes()
        with pytest.raises(ConfigError, match="another cluster uses this file"):
            TreeJournal(path, NodeTree())
        assert path.read_bytes() == before
    with opened(path) as tree:
        assert "/a" in tree.nodes


@contextmanager
def size_limit(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def refuse(*_: object) -> None:
    raise OSError("No space left on device")
