"""Registrations of live brokers, the id of the cluster, and the nodes that Kafka expects to be there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from ctrlchan.errors import MalformedError, NodeError, ResultCode, ZooKeeperError
from ctrlchan.protocol import SECURITY_PROTOCOLS
from ctrlchan.text import parse_number, quoted
from ctrlchan.zookeeper import nodes, paths
from ctrlchan.zookeeper.guarded import GuardedNodes
from ctrlchan.zookeeper.values import BrokersRead, RegisteredBroker

__all__ = ["BrokerNodes"]

_MAX_INT32 = 2**31 - 1
_MAX_PORT = 65_535
#: Registrations that are kept parsed.
_PARSED = 1_000


class BrokerNodes(GuardedNodes):
    """Reads brokers; makes the nodes of a new cluster."""

    def broker_ids(self) -> list[int]:
        """Return the ids of the registered brokers, ascending. Names that are no ids are left out."""
        return sorted(_ids(self.session.children(paths.BROKER_IDS) or [])[0])

    def read_brokers(
        self, changed: Callable[[str], object] | None = None, names: Sequence[str] | None = None
    ) -> BrokersRead:
        """Return the live brokers. ``changed(path)``: called once when a registration changes.

        ``names``: the children of ``/brokers/ids``, None reads them.
        """
        if names is None:
            names = self.session.children(paths.BROKER_IDS) or []
        ids, malformed = _ids(names)
        ids.sort()
        node_paths = [paths.broker(one) for one in ids]
        if changed is None:
            found = self.session.get_many(node_paths)
        else:
            found = self.session.watch_nodes(node_paths, changed)
        brokers = []
        for broker_id, path, node in zip(ids, node_paths, found, strict=True):
            # A broker that has gone since its id was listed is not live.
            if node is not None:
                try:
                    brokers.append(_broker(broker_id, node.data, node.czxid))
                except MalformedError as error:
                    malformed[path] = str(error)
        return BrokersRead(brokers, malformed)

    def read_broker(self, broker_id: int) -> RegisteredBroker | None:
        """Return one broker, None when it is not live. Raises ZooKeeperError for a malformed registration."""
        path = paths.broker(broker_id)
        node = self.session.get(path)
        if node is None:
            return None
        try:
            return _broker(broker_id, node.data, node.czxid)
        except MalformedError as error:
            raise ZooKeeperError(f"{path}: {error}") from error

    def read_cluster_id(self) -> str | None:
        """Return the id of the cluster, None before its first broker has started."""
        found = self.read_one(paths.CLUSTER_ID, nodes.parse_cluster_id)
        return None if found is None else found[1]

    def create_cluster_id(self, cluster_id: str) -> str:
        """Give the cluster an id unless it has one; return the id that it has."""
        self.session.create_path(paths.parent(paths.CLUSTER_ID))
        try:
            self.session.create(paths.CLUSTER_ID, nodes.encode_cluster_id(cluster_id))
        except NodeError as error:
            if error.code != ResultCode.NODE_EXISTS:
                raise
        return self.read_cluster_id() or cluster_id

    def create_persistent_nodes(self) -> None:
        """Create the nodes that Kafka expects, where they are missing. Source: ``createTopLevelPaths``."""
        found = self.session.get_many(paths.PERSISTENT)
        for path, node in zip(paths.PERSISTENT, found, strict=True):
            if node is None:
                self.session.create_path(path)


def _ids(names: Sequence[str]) -> tuple[list[int], dict[str, str]]:
    """Return (broker ids, path -> reason of the names that are none)."""
    ids, malformed = [], {}
    for name in names:
        try:
            number = parse_number("broker id", name)
        except MalformedError as error:
            malformed[paths.broker(name)] = str(error)
            continue
        if str(number) != name or number > _MAX_INT32:
            malformed[paths.broker(name)] = f"{quoted(name)} is no broker id"
        else:
            ids.append(number)
    return ids, malformed


# An event of one broker reads the registrations of all, which are the same as before.
@lru_cache(_PARSED)
def _broker(broker_id: int, data: bytes, czxid: int) -> RegisteredBroker:
    registration = nodes.parse_registration(data)
    reasons = []
    for one in registration.listeners:
        if one.security_protocol not in SECURITY_PROTOCOLS:
            reasons.append(f"listener {quoted(one.name)} has no security protocol of Kafka")
        if not 0 <= one.port <= _MAX_PORT:
            reasons.append(f"port {one.port} is not in 0 .. {_MAX_PORT}")
    if reasons:
        raise MalformedError(*reasons)
    features = dict(registration.features)
    return RegisteredBroker(broker_id, czxid, tuple(registration.listeners), registration.rack, features)
