"""ConsumerOffsets: offsets of groups in ZooKeeper, as consumers before Kafka 0.9 keep them.

Source: ``ConsumerOffset`` of ``ZkData.scala``, ``KafkaZkClient.setOrCreateConsumerOffset``.
"""

from __future__ import annotations

import re
from typing import Final

from ctrlchan.errors import MalformedError, NodeError, ResultCode
from ctrlchan.zookeeper import paths
from ctrlchan.zookeeper.session import ZooKeeperSession

__all__ = ["ConsumerOffsets"]

_OFFSET: Final = re.compile(rb"[+-]?[0-9]{1,19}")
_MOST: Final = 2**63 - 1
#: What no path of ZooKeeper has. Source: ``PathUtils.validatePath``.
_FORBIDDEN: Final = re.compile("//|/\\.{1,2}(/|$)|[\\x00-\\x1f\\x7f-\\x9f\\ud800-\\uf8ff\\ufff0-\\uffff]")


class ConsumerOffsets:
    """Reads and writes committed offsets. ``session``: of the broker's registration.

    Both methods raise ZooKeeperError, and MalformedError for a group whose name no path has.
    """

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session

    def get(self, group_id: str, topic: str, partition: int) -> int | None:
        """Return a committed offset, or None. Raises MalformedError also where the node has no number."""
        path = _path(group_id, topic, partition)
        node = self._session.get(path)
        if node is None:
            return None
        offset = int(node.data) if _OFFSET.fullmatch(node.data) else None
        if offset is None or not -_MOST - 1 <= offset <= _MOST:
            raise MalformedError(f"{path}: {node.data[:40]!r} is no offset")
        return offset

    def set(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """Commit an offset."""
        path, data = _path(group_id, topic, partition), b"%d" % offset
        try:
            self._session.set(path, data)
            return
        except NodeError as error:
            if error.code != ResultCode.NO_NODE:
                raise
        self._session.create_path(paths.parent(path))
        try:
            self._session.create(path, data)
        except NodeError as error:
            # Another broker has created it meanwhile.
            if error.code != ResultCode.NODE_EXISTS:
                raise
            self._session.set(path, data)


def _path(group_id: str, topic: str, partition: int) -> str:
    path = paths.consumer_offset(group_id, topic, partition)
    if _FORBIDDEN.search(path):
        raise MalformedError(f"no node can have the name of the group {group_id!r}")
    return path
