"""Was a multi applied whose answer was lost? Read from the nodes that it would have changed.

A multi is applied as a whole or not at all, so one operation that shows it decides for all. The caller has
reconnected with the same session and has asked ZooKeeper to synchronize: after that a request of the old
connection is applied already, or never (the leader refuses it: the session has moved to another connection).

Source: the same question in ``KafkaZkClient`` (``CheckedEphemeral.getAfterNodeExists``,
``registerControllerAndIncrementControllerEpoch``), there for two kinds of writes.
"""

from __future__ import annotations

from ctrlchan.zookeeper.operations import ANY_VERSION, Check, Create, Delete, Node, Operation, SetData

__all__ = ["was_applied"]


def was_applied(operation: Operation, node: Node | None, sent_zxid: int, session_id: int) -> bool | None:
    """Return whether the operation was applied; None when its node does not show it.

    ``node``: as it is now. ``sent_zxid``: the last transaction that was known when the request was sent: what
    the request did is later. A write that was not applied, or is undecided, may be sent again: its expected
    version, or the node that exists, prevents a second application. A Delete is decided by ``None`` for every
    operation: see ``ZooKeeperSession.multi``.
    """
    match operation:
        case Create(_, _, _, sequential=True) | Check():
            return None
        case Create(_, data, ephemeral, _):
            if node is None or node.czxid <= sent_zxid:
                return False
            return node.data == (data or b"") and node.ephemeral_owner == (session_id if ephemeral else 0)
        case SetData(_, data, version):
            if node is None or node.mzxid <= sent_zxid:
                return False
            if version == ANY_VERSION:
                return True if node.data == data else None
            return node.data == data if node.version == version + 1 else None
        case Delete():
            return False if node is not None and node.czxid <= sent_zxid else None
