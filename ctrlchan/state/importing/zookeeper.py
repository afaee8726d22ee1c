"""The znodes of a ZooKeeper-mode cluster -> a state.

Read are ``/cluster/id``, ``/controller``, ``/controller_epoch``, ``/brokers/ids/*`` (a broker's epoch is its
znode's czxid), ``/brokers/topics/*`` (assignments, and topic ids since 2.8),
``/brokers/topics/T/partitions/N/state`` (a partition's epoch is this znode's version) and
``/admin/delete_topics/*``. Source: ``kafka.zk.ZkData`` (Kafka 3.9). The leadership of a partition without a
state znode is not known.
"""

from __future__ import annotations

import json
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from ctrlchan.errors import InvalidStateError, SnapshotError
from ctrlchan.state.brokers import Broker, Endpoint, SecurityProtocol, parse_host_port
from ctrlchan.state.cluster_state import ClusterState
from ctrlchan.state.importing.row_builder import RowBuilder
from ctrlchan.topic_names import id_from_text, why_invalid

__all__ = ["Progress", "ZnodeReader", "connected", "import_zookeeper"]

_T = TypeVar("_T")
#: Told what is being read, how many of it are done, and of how many.
Progress: TypeAlias = Callable[[str, int, int], None]
#: A znode's data and stat.
Znode: TypeAlias = tuple[bytes, Any]

#: Reads that are under way at once; the server answers one connection's requests in order.
_IN_FLIGHT: Final = 1_000
#: Reads between two calls of ``Progress``.
_PROGRESS_STEP: Final = 1_000


@contextmanager
def connected(hosts: str, timeout: float = 10.0) -> Iterator[KazooClient]:
    """A client connected to ``HOST:PORT[,HOST:PORT…][/chroot]``; SnapshotError after ``timeout`` seconds."""
    client = KazooClient(hosts=hosts, timeout=timeout)
    try:
        try:
            with warnings.catch_warnings():
                # A chroot that is not there has an error of its own in import_zookeeper.
                warnings.filterwarnings("ignore", "No chroot path exists")
                client.start(timeout=timeout)
        except (KazooTimeoutError, KazooException, OSError, ValueError) as error:
            raise SnapshotError(f"zookeeper {hosts}: no connection within {timeout:g} s ({error})") from error
        yield client
    finally:
        client.stop()
        client.close()


def import_zookeeper(
    client: KazooClient, progress: Progress = lambda what, done, total: None, timeout: float = 30.0
) -> ClusterState:
    """The state of the cluster under the client's chroot.

    Partitions change while they are read; each one is as it was at some moment of the reading. Raises
    SnapshotError for a znode that cannot be read, naming its path, and when one answer takes longer than
    ``timeout`` seconds.
    """
    return _Import(client, progress, timeout).state()


class ZnodeReader:
    """Reads znodes through a client. Raises SnapshotError, naming the path, for what cannot be read."""

    def __init__(self, client: KazooClient, progress: Progress, timeout: float) -> None:
        self._client = client
        self._progress = progress
        self._timeout = timeout

    def children(self, path: str) -> list[str] | None:
        """Names below the path, None where there is no such znode."""
        with self._zookeeper(path):
            try:
                children: list[str] = self._client.get_children_async(path).get(timeout=self._timeout)
            except NoNodeError:
                return None
            return children

    def read(self, paths: Sequence[str], what: str) -> Iterator[Znode | None]:
        """Each znode in the order of ``paths``, None where there is none. Reads are pipelined."""
        waiting: deque[tuple[str, Any]] = deque()
        sent = 0
        for done in range(len(paths)):
            while sent < len(paths) and len(waiting) < _IN_FLIGHT:
                waiting.append((paths[sent], self._client.get_async(paths[sent])))
                sent += 1
            path, answer = waiting.popleft()
            if done % _PROGRESS_STEP == 0:
                self._progress(what, done, len(paths))
            with self._zookeeper(path):
                try:
                    znode: Znode | None = answer.get(timeout=self._timeout)
                except NoNodeError:
                    znode = None
            yield znode
        self._progress(what, len(paths), len(paths))

    @contextmanager
    def _zookeeper(self, path: str) -> Iterator[None]:
        try:
            yield
        except KazooTimeoutError as error:
            raise SnapshotError(f"{path}: no answer within {self._timeout:g} s") from error
        except KazooException as error:
            raise SnapshotError(f"{path}: cannot be read ({type(error).__name__}: {error})") from error


class _Import(ZnodeReader):
    def state(self) -> ClusterState:
        broker_ids = self.children("/brokers/ids")
        topics = self.children("/brokers/topics")
        if broker_ids is None or topics is None:
            raise SnapshotError(
                "zookeeper: no Kafka cluster here: no /brokers/ids or no /brokers/topics (forgot the chroot?)"
            )
        brokers = self._brokers(broker_ids)
        rows, topic_ids = self._partitions(sorted(topics))
        state = rows.state(
            topic_ids,
            brokers,
            cluster_id=self._value("/cluster/id", lambda data: str(_object(data)["id"]), ""),
            controller_id=self._value("/controller", lambda data: int(_object(data)["brokerid"]), -1),
            controller_epoch=self._value("/controller_epoch", lambda data: _number(data.decode()), 0),
        )
        known = state.topics.names.to_list()
        state.mark_topics_deleting(set(self.children("/admin/delete_topics") or ()).intersection(known))
        return state

    def _value(self, path: str, decode: Callable[[bytes], _T], absent: _T) -> _T:
        for znode in self.read([path], "cluster"):
            if znode is not None:
                with _about(path):
                    return decode(znode[0])
        return absent

    def _brokers(self, ids: Sequence[str]) -> list[Broker]:
        ids = sorted((one for one in ids if one.isascii() and one.isdigit()), key=int)
        paths = [f"/brokers/ids/{one}" for one in ids]
        # A broker that has gone since its id was listed is not live.
        found = zip(ids, paths, self.read(paths, "brokers"), strict=True)
        return [_broker(path, int(one), znode) for one, path, znode in found if znode is not None]

    def _partitions(self, topics: Sequence[str]) -> tuple[RowBuilder, dict[str, bytes]]:
        topic_ids: dict[str, bytes] = {}
        assigned: list[tuple[str, int, dict[str, Any]]] = []
        paths: list[str] = []
        topic_paths = [f"/brokers/topics/{topic}" for topic in topics]
        for topic, path, znode in zip(topics, topic_paths, self.read(topic_paths, "topics"), strict=True):
            if znode is None:
                continue
            with _about(path):
                for partition, assignment in _assignments(topic, znode, topic_ids):
                    assigned.append((topic, partition, assignment))
                    paths.append(f"{path}/partitions/{partition}/state")
        rows = RowBuilder()
        states = self.read(paths, "partitions")
        for path, (topic, partition, assignment), state in zip(paths, assigned, states, strict=True):
            with _about(path):
                rows.add(topic, partition, **assignment, **({} if state is None else _leadership(state)))
        return rows, topic_ids


@contextmanager
def _about(path: str) -> Generator[None, None, None]:
    """Refusals inside are about this znode."""
    try:
        yield
    except KeyError as error:
        raise SnapshotError(f"{path}: no field {error}") from error
    except (InvalidStateError, ValueError, TypeError) as error:
        raise SnapshotError(f"{path}: {error}") from error


# -- znodes


def _broker(path: str, broker_id: int, znode: Znode) -> Broker:
    """Registrations of version 1 (host and port) to 5 (endpoints by listener)."""
    data, stat = znode
    with _about(path):
        registration = _object(data)
        rack = registration.get("rack")
        if rack is not None and not isinstance(rack, str):
            raise InvalidStateError(f"rack {rack!r} is no text")
        if "endpoints" not in registration:
            plaintext = SecurityProtocol.PLAINTEXT
            endpoint = Endpoint(
                plaintext.name, plaintext, str(registration["host"]), int(registration["port"])
            )
            return Broker(broker_id, stat.czxid, (endpoint,), rack)
        protocols = registration.get("listener_security_protocol_map") or {}
        endpoints = []
        for text in registration["endpoints"]:
            listener, scheme, address = str(text).partition("://")
            if not scheme:
                raise InvalidStateError(f"{text!r} is no endpoint (LISTENER://HOST:PORT)")
            # Before version 4 listeners are named after their protocols.
            protocol = SecurityProtocol.of(protocols.get(listener, listener))
            endpoints.append(Endpoint(listener, protocol, *parse_host_port(address)))
        return Broker(broker_id, stat.czxid, tuple(endpoints), rack)


def _assignments(
    topic: str, znode: Znode, topic_ids: dict[str, bytes]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(partition, its assignment by ``RowBuilder.add``'s names); the topic's id goes to ``topic_ids``."""
    wrong = why_invalid(topic)
    if wrong is not None:
        raise InvalidStateError(wrong)
    described = _object(znode[0])
    if described.get("topic_id") is not None:
        topic_ids[topic] = id_from_text(described["topic_id"])
    by_partition: dict[str, dict[str, Any]] = {}
    for name in ("partitions", "adding_replicas", "removing_replicas"):
        by_partition[name] = described.get(name) or {}
        if not isinstance(by_partition[name], dict):
            raise InvalidStateError(f"{name} is no JSON object")
    partitions, adding, removing = by_partition.values()
    for number, replicas in partitions.items():
        yield (
            _number(number),
            {"replicas": replicas, "adding": adding.get(number, []), "removing": removing.get(number, [])},
        )


def _leadership(znode: Znode) -> dict[str, Any]:
    """What a partition's state znode says, by ``RowBuilder.add``'s names."""
    data, stat = znode
    state = _object(data)
    return {
        "leader": state["leader"],
        "isr": state["isr"],
        "leader_epoch": state["leader_epoch"],
        "controller_epoch": state["controller_epoch"],
        "recovery_state": state.get("leader_recovery_state", 0),
        "partition_epoch": stat.version,
    }


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InvalidStateError(f"{text!r} is not a number")
    return int(text)


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise InvalidStateError(f"not JSON ({error})") from error
    if not isinstance(value, dict):
        raise InvalidStateError("not a JSON object")
    return value
