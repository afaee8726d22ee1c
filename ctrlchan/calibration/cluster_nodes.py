"""The nodes of a measured cluster in ZooKeeper, all of them below one node that is deleted at the end."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic, perf_counter, sleep
from typing import Final

import numpy as np

from ctrlchan.errors import ZooKeeperError
from ctrlchan.state import Broker, ClusterState
from ctrlchan.zookeeper import nodes, paths
from ctrlchan.zookeeper.client import connected
from ctrlchan.zookeeper.cluster import ClusterNodes
from ctrlchan.zookeeper.operations import Create, Delete, Operation
from ctrlchan.zookeeper.session import ZooKeeperSession
from ctrlchan.zookeeper.settings import ZooKeeperSettings

__all__ = ["MeasuredNodes", "measured_nodes"]

#: The node that everything is below has this name and a random number.
_ROOT: Final = "ctrlchan-calibrate-"
#: Operations of one request: under a megabyte in all.
_OPERATIONS: Final = 500
_CREATED_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.1


@contextmanager
def measured_nodes(server: str, state: ClusterState) -> Iterator[MeasuredNodes]:
    """Yield the nodes of a cluster below a new node of ``server`` (``HOST:PORT[,...][/chroot]``).

    All of them are deleted at the end. Raises ConfigError, ZooKeeperError.
    """
    # Lines about sockets: errors say what a lost connection means.
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    root = f"/{_ROOT}{secrets.token_hex(4)}"
    with connected(server) as client:
        client.create(root, makepath=True)
        session = ZooKeeperSession(ZooKeeperSettings(connect=f"{server.rstrip('/')}{root}"))
        try:
            with session:
                measured = MeasuredNodes(session, state)
                try:
                    yield measured
                finally:
                    measured.delete()
        finally:
            client.delete(root, recursive=True)


class MeasuredNodes:
    """``address``: for a controller of this cluster."""

    def __init__(self, session: ZooKeeperSession, state: ClusterState) -> None:
        self.address = session.servers
        self._session = session
        self._names = [state.topic_name(row) for row in range(len(state.topics))]
        columns = state.partitions
        starts = np.searchsorted(columns.topic_row, np.arange(len(self._names) + 1))
        self._sizes = np.diff(starts).tolist()
        self._topic_row, self._partition = columns.topic_row.copy(), columns.partition.copy()
        for path in paths.PERSISTENT:
            session.create_path(path)
        replicas = columns.replicas.to_lists()
        self._apply(
            [
                Create(
                    paths.topic(name),
                    nodes.encode_topic(
                        state.topics.ids[row].tobytes(),
                        dict(enumerate(replicas[int(starts[row]) : int(starts[row + 1])])),
                    ),
                )
                for row, name in enumerate(self._names)
            ]
        )
        for broker_id in state.broker_ids.tolist():
            self.register(state.broker(broker_id))

    def wait_until_created(self) -> None:
        """Wait until the controller has created all state nodes. Raises ZooKeeperError after two minutes."""
        deadline = monotonic() + _CREATED_SECONDS
        while monotonic() < deadline:
            if (self._read() >= 0).all():
                return
            sleep(_POLL_SECONDS)
        raise ZooKeeperError(f"the controller has not created all partitions in {_CREATED_SECONDS:g} s")

    def read_seconds(self) -> float:
        """Return the seconds that it takes to read one of the state nodes, all of them at once."""
        begin = perf_counter()
        self._read()
        return (perf_counter() - begin) / len(self._partition)

    def depose(self) -> None:
        """Delete the node of the active controller, so that it is elected again."""
        self._session.multi([Delete(paths.CONTROLLER)])

    def register(self, broker: Broker) -> None:
        """Create the registration of a broker."""
        endpoint = broker.endpoints[0]
        listener = nodes.Listener(
            endpoint.listener, endpoint.security_protocol.name, endpoint.host, endpoint.port
        )
        self._session.create(paths.broker(broker.id), nodes.encode_registration([listener]), ephemeral=True)

    def unregister(self, broker_id: int) -> None:
        """Delete the registration of a broker."""
        self._session.multi([Delete(paths.broker(broker_id))])

    def delete(self) -> None:
        """Delete the topics, whose nodes are most of all; nodes that are missing are no error."""
        numbers = [
            (name, number)
            for name, size in zip(self._names, self._sizes, strict=True)
            for number in range(size)
        ]
        for wanted in (
            [paths.partition_state(*one) for one in numbers],
            [paths.partition(*one) for one in numbers],
            [paths.partitions(name) for name in self._names],
        ):
            there = self._session.get_many(wanted)
            self._apply([Delete(path) for path, node in zip(wanted, there, strict=True) if node is not None])

    def _read(self) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        names = [name.encode() for name in self._names]
        read = ClusterNodes(self._session).read_partition_states(names, self._topic_row, self._partition)
        return read.version

    def _apply(self, operations: Sequence[Operation]) -> None:
        for begin in range(0, len(operations), _OPERATIONS):
            self._session.multi(operations[begin : begin + _OPERATIONS])
