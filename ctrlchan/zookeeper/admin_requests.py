"""Requests that are put into ZooKeeper: deletions, reassignments, preferred replica elections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ctrlchan.errors import MalformedError, NodeError, ResultCode
from ctrlchan.zookeeper import nodes, paths
from ctrlchan.zookeeper.bulk import delete_nodes
from ctrlchan.zookeeper.guarded import GuardedNodes
from ctrlchan.zookeeper.operations import Create, SetData
from ctrlchan.zookeeper.values import PartitionsNamed, Reassignments

__all__ = ["AdminRequestNodes"]


class AdminRequestNodes(GuardedNodes):
    """Reads the nodes below ``/admin``, and deletes them when they are done."""

    def topic_deletions(self, changed: Callable[[str], object] | None = None) -> list[str]:
        """Return the names of the topics that are queued for deletion. ``changed``: called once."""
        if changed is None:
            return sorted(self.session.children(paths.DELETED_TOPICS) or [])
        return sorted(self.session.watch_children(paths.DELETED_TOPICS, changed) or [])

    def queue_topic_deletions(self, names: Sequence[str]) -> list[int]:
        """Queue topics for deletion; return 0 or NODE_EXISTS for each. Raises ControllerMovedError."""
        self.create_missing([paths.DELETED_TOPICS])
        codes = []
        for name in names:
            try:
                self.write([Create(paths.deleted_topic(name))])
            except NodeError as error:
                if error.code != ResultCode.NODE_EXISTS:
                    raise
                codes.append(int(error.code))
            else:
                codes.append(int(ResultCode.OK))
        return codes

    def delete_topic_requests(self, names: Iterable[str]) -> None:
        """Take topics out of the queue of deletions. Raises ControllerMovedError."""
        delete_nodes(self, (paths.deleted_topic(name) for name in names))

    def read_reassign_partitions(
        self, changed: Callable[[str], object] | None = None
    ) -> Reassignments | None:
        """Return the reassignments that were asked for, None without the node. ``changed``: called once."""
        data = self._data(paths.REASSIGN_PARTITIONS, changed)
        if data is None:
            return None
        try:
            return Reassignments(nodes.parse_reassignments(data))
        except MalformedError as error:
            return Reassignments({}, error.reasons)

    def write_reassign_partitions(self, reassignments: Mapping[tuple[str, int], Sequence[int]]) -> None:
        """Set or create the node. Raises ControllerMovedError."""
        data = nodes.encode_reassignments(reassignments)
        try:
            self.write([SetData(paths.REASSIGN_PARTITIONS, data)])
        except NodeError as error:
            if error.code != ResultCode.NO_NODE:
                raise
            self.write([Create(paths.REASSIGN_PARTITIONS, data)])

    def delete_reassign_partitions(self) -> None:
        """Delete the node, if it is there. Raises ControllerMovedError."""
        self.delete_if_there(paths.REASSIGN_PARTITIONS)

    def read_preferred_election(
        self, changed: Callable[[str], object] | None = None
    ) -> PartitionsNamed | None:
        """Return the partitions to elect preferred leaders for, None without the node."""
        path = paths.PREFERRED_REPLICA_ELECTION
        data = self._data(path, changed)
        if data is None:
            return None
        try:
            return PartitionsNamed(list(dict.fromkeys(nodes.parse_partitions(data))))
        except MalformedError as error:
            return PartitionsNamed([], {path: str(error)})

    def delete_preferred_election(self) -> None:
        """Delete the node, if it is there. Raises ControllerMovedError."""
        self.delete_if_there(paths.PREFERRED_REPLICA_ELECTION)

    def _data(self, path: str, changed: Callable[[str], object] | None) -> bytes | None:
        node = self.session.get(path) if changed is None else self.session.watch_node(path, changed)
        return None if node is None else node.data
