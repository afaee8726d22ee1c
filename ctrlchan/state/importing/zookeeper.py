"""The ZooKeeper nodes of a cluster -> the contents of a state.

Read are the cluster id, the controller and its epoch, the registrations of live brokers (a broker's epoch is
its node's czxid), topics with their assignments, partition states (a partition's epoch is the node's version)
and the names of topics that are queued for deletion. The leadership of a partition without a state node is
not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from kazoo.client import KazooClient

from ctrlchan.errors import InvalidStateError, MalformedError, SnapshotError, ZooKeeperError
from ctrlchan.state.brokers import Broker, Endpoint, SecurityProtocol, brokers_from
from ctrlchan.state.importing.row_builder import RowBuilder
from ctrlchan.state.parts import StateParts
from ctrlchan.text import parse_number, printable
from ctrlchan.topic_names import why_invalid
from ctrlchan.zookeeper import nodes, paths
from ctrlchan.zookeeper.client import NodeReader, Progress, Znode, connected

__all__ = ["cluster_children", "read_zookeeper"]

_T = TypeVar("_T")

#: Seconds that ZooKeeper may take to answer one read.
_ANSWER_TIMEOUT: Final = 30.0


def read_zookeeper(
    connect: str | KazooClient, progress: Progress | None = None, timeout: float = 10.0
) -> StateParts:
    """See ``ClusterState.from_zookeeper``."""
    try:
        if not isinstance(connect, str):
            return _parts(NodeReader(connect, progress or _no_progress, _ANSWER_TIMEOUT))
        with connected(connect, timeout) as client:
            return _parts(NodeReader(client, progress or _no_progress, _ANSWER_TIMEOUT))
    except ZooKeeperError as error:
        raise SnapshotError(str(error)) from error


def _no_progress(what: str, done: int, total: int) -> None:
    pass


def cluster_children(reader: NodeReader) -> tuple[list[str], list[str]]:
    """Return (broker ids, topics) as ZooKeeper lists them. Raises SnapshotError where there is no cluster."""
    brokers, topics = reader.children(paths.BROKER_IDS), reader.children(paths.TOPICS)
    if brokers is None or topics is None:
        raise SnapshotError(
            f"zookeeper: no Kafka cluster here: no {paths.BROKER_IDS} or no {paths.TOPICS} "
            "(forgot the chroot?)"
        )
    return brokers, topics


def _parts(reader: NodeReader) -> StateParts:
    broker_ids, topics = cluster_children(reader)
    brokers = _brokers(reader, broker_ids)
    rows, topic_ids = _partitions(reader, sorted(topics))
    return rows.parts(
        topic_ids,
        brokers,
        deleting=reader.children(paths.DELETED_TOPICS) or (),
        cluster_id=_single(reader, paths.CLUSTER_ID, nodes.parse_cluster_id, ""),
        controller_id=_single(reader, paths.CONTROLLER, nodes.parse_controller, -1),
        controller_epoch=_single(reader, paths.CONTROLLER_EPOCH, nodes.parse_controller_epoch, 0),
    )


def _single(reader: NodeReader, path: str, parse: Callable[[bytes], _T], absent: _T) -> _T:
    (znode,) = reader.read([path], "cluster")
    if znode is None:
        return absent
    with _naming(path):
        return parse(znode[0])


def _brokers(reader: NodeReader, ids: Sequence[str]) -> list[Broker]:
    ids = sorted((one for one in ids if one.isascii() and one.isdigit()), key=int)
    brokers = []
    found = reader.read([paths.broker(one) for one in ids], "brokers")
    for one, znode in zip(ids, found, strict=True):
        # A broker that has gone since its id was listed is not live.
        if znode is not None:
            with _naming(paths.broker(one)):
                brokers.append(_broker(parse_number("broker id", one), znode))
    return brokers


def _broker(broker_id: int, znode: Znode) -> Broker:
    data, stat = znode
    registration = nodes.parse_registration(data)
    endpoints = tuple(
        Endpoint(one.name, SecurityProtocol.of(one.security_protocol), one.host, one.port)
        for one in registration.listeners
    )
    broker = Broker(broker_id, stat.czxid, endpoints, registration.rack)
    brokers_from([broker])  # checks id and ports
    return broker


def _partitions(reader: NodeReader, topics: Sequence[str]) -> tuple[RowBuilder, dict[str, bytes]]:
    topic_ids: dict[str, bytes] = {}
    assigned: list[tuple[str, nodes.Assignment]] = []
    found = reader.read([paths.topic(one) for one in topics], "topics")
    for name, znode in zip(topics, found, strict=True):
        if znode is not None:
            with _naming(paths.topic(name)):
                topic = _topic(name, znode[0])
            assigned += [(name, one) for one in topic.assignments]
            if topic.topic_id is not None:
                topic_ids[name] = topic.topic_id
    rows = RowBuilder()
    state_paths = [paths.partition_state(name, one.key) for name, one in assigned]
    states = reader.read(state_paths, "partitions")
    for path, (name, one), state in zip(state_paths, assigned, states, strict=True):
        with _naming(path):
            _add(rows, name, one, state)
    return rows, topic_ids


def _topic(name: str, data: bytes) -> nodes.Topic:
    wrong = why_invalid(name)
    if wrong is not None:
        raise InvalidStateError(wrong)
    topic = nodes.parse_topic(data)
    for one in topic.assignments:
        if one.reasons:
            raise MalformedError(*one.reasons)
    return topic


def _add(rows: RowBuilder, topic: str, assignment: nodes.Assignment, znode: Znode | None) -> None:
    leadership: dict[str, Any] = {}
    if znode is not None:
        data, stat = znode
        leadership = {**nodes.parse_partition_state(data)._asdict(), "partition_epoch": stat.version}
    rows.add(
        topic,
        assignment.partition,
        assignment.replicas,
        adding=assignment.adding,
        removing=assignment.removing,
        **leadership,
    )


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Raise errors of the block as SnapshotError that names the node."""
    try:
        yield
    except (MalformedError, InvalidStateError) as error:
        raise SnapshotError(f"{printable(path)}: {error}") from error
