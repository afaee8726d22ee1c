"""The ZooKeeper nodes of a cluster's metadata -> lines of text, one for each node.

``PATH<TAB>DATA<TAB>VERSION<TAB>CZXID``: the nodes that ``read_zookeeper`` reads, paths below the chroot.
"""

from __future__ import annotations

from collections.abc import Iterator

from kazoo.client import KazooClient

from ctrlchan.errors import MalformedError, SnapshotError, ZooKeeperError
from ctrlchan.state.importing.zookeeper import cluster_children
from ctrlchan.zookeeper import paths
from ctrlchan.zookeeper.client import NodeReader, Progress, Znode
from ctrlchan.zookeeper.nodes import parse_topic

__all__ = ["dump_zookeeper"]


def dump_zookeeper(
    client: KazooClient, progress: Progress = lambda what, done, total: None, timeout: float = 30.0
) -> Iterator[str]:
    """Yield lines without their ends. Each node is as it was at some time during the reading; a node that is
    deleted meanwhile is left out. Data is UTF-8; tabs and line ends in it (blanks, for JSON) become blanks.

    Raises SnapshotError when there is no cluster, and when one answer takes longer than ``timeout`` seconds.
    """
    reader = NodeReader(client, progress, timeout)
    try:
        brokers, topics = cluster_children(reader)
        deleted = sorted(reader.children(paths.DELETED_TOPICS) or ())
        cluster = [paths.CLUSTER_ID, paths.CONTROLLER, paths.CONTROLLER_EPOCH]
        yield from _lines(reader, cluster, "cluster")
        yield from _lines(reader, [paths.broker(one) for one in sorted(brokers)], "brokers")
        yield from _lines(reader, [paths.deleted_topic(one) for one in deleted], "topics being deleted")
        states: list[str] = []
        names = sorted(topics)
        found = reader.read([paths.topic(name) for name in names], "topics")
        for name, znode in zip(names, found, strict=True):
            if znode is not None:
                yield _line(paths.topic(name), znode)
                states += [paths.partition_state(name, number) for number in _partitions(znode[0])]
        yield from _lines(reader, states, "partitions")
    except ZooKeeperError as error:
        raise SnapshotError(str(error)) from error


def _lines(reader: NodeReader, node_paths: list[str], what: str) -> Iterator[str]:
    for path, znode in zip(node_paths, reader.read(node_paths, what), strict=True):
        if znode is not None:
            yield _line(path, znode)


def _line(path: str, znode: Znode) -> str:
    data, stat = znode
    text = (data or b"").decode(errors="surrogateescape")
    if any(character in text for character in "\t\r\n"):
        text = " ".join(text.split())
    return "\t".join((path, text, str(stat.version), str(stat.czxid)))


def _partitions(data: bytes) -> list[str]:
    """The partitions of a topic as its node writes them; none of a malformed node, whose line shows that."""
    try:
        return [one.key for one in parse_topic(data).assignments]
    except MalformedError:
        return []
