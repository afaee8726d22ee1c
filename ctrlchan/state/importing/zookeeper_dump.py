"""What ZooKeeper holds of a cluster's metadata -> lines of text, a znode each.

``PATH<TAB>DATA<TAB>VERSION<TAB>CZXID``: the znodes that ``import_zookeeper`` reads, paths below the chroot.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kazoo.client import KazooClient

from ctrlchan.errors import SnapshotError
from ctrlchan.state.importing.zookeeper import Progress, ZnodeReader

__all__ = ["dump_zookeeper"]


def dump_zookeeper(
    client: KazooClient, progress: Progress = lambda what, done, total: None, timeout: float = 30.0
) -> Iterator[str]:
    """Lines without their ends. Each znode is as it was at some moment of the reading; those that went away
    meanwhile are not there. Data is UTF-8; tabs and line ends in it, which JSON takes for blanks, are blanks.

    Raises SnapshotError when there is no cluster, or when one answer takes longer than ``timeout`` seconds.
    """
    reader = ZnodeReader(client, progress, timeout)
    brokers, topics = reader.children("/brokers/ids"), reader.children("/brokers/topics")
    if brokers is None or topics is None:
        raise SnapshotError(
            "zookeeper: no Kafka cluster here: no /brokers/ids or no /brokers/topics (forgot the chroot?)"
        )
    facts = ["/cluster/id", "/controller", "/controller_epoch"]
    deleted = sorted(reader.children("/admin/delete_topics") or ())
    yield from _lines(reader, facts, "cluster")
    yield from _lines(reader, [f"/brokers/ids/{one}" for one in sorted(brokers)], "brokers")
    yield from _lines(reader, [f"/admin/delete_topics/{one}" for one in deleted], "topics being deleted")
    states: list[str] = []
    paths = [f"/brokers/topics/{one}" for one in sorted(topics)]
    for path, znode in zip(paths, reader.read(paths, "topics"), strict=True):
        if znode is not None:
            yield _line(path, znode)
            states += [f"{path}/partitions/{number}/state" for number in _partitions(znode[0])]
    yield from _lines(reader, states, "partitions")


def _lines(reader: ZnodeReader, paths: list[str], what: str) -> Iterator[str]:
    for path, znode in zip(paths, reader.read(paths, what), strict=True):
        if znode is not None:
            yield _line(path, znode)


def _line(path: str, znode: tuple[bytes, Any]) -> str:
    data, stat = znode
    text = (data or b"").decode(errors="surrogateescape")
    return "\t".join(
        (path, " ".join(text.split()) if _breaks(text) else text, str(stat.version), str(stat.czxid))
    )


def _breaks(text: str) -> bool:
    return any(character in text for character in "\t\r\n")


def _partitions(data: bytes) -> list[str]:
    """Of a topic that cannot be read none: its line says so to whoever reads the dump."""
    try:
        partitions = json.loads(data)["partitions"]
    except (ValueError, KeyError, TypeError):
        return []
    return list(partitions) if isinstance(partitions, dict) else []
