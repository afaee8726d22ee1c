"""TokenNodes: the delegation tokens of a cluster in ZooKeeper, as ``kafka.zk.KafkaZkClient`` of Kafka 3.9.

Each token has a node. Whoever changes one creates a sequential node that names it, in the same transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from ctrlchan.errors import MalformedError, NodeError, ResultCode
from ctrlchan.server.delegation_tokens.token import Token, token_of_node
from ctrlchan.text import quoted
from ctrlchan.zookeeper import nodes, paths
from ctrlchan.zookeeper.change_notifications import ChangeNotifications
from ctrlchan.zookeeper.operations import Create, Delete, Node, SetData
from ctrlchan.zookeeper.session import ZooKeeperSession

__all__ = ["MOST_BYTES", "TokenNodes"]

_LOG: Final = logging.getLogger("ctrlchan.broker")

#: Of a token's node. ZooKeeper closes the connection of a request of 1 MiB.
MOST_BYTES: Final = 1_000_000


class TokenNodes:
    """Reads, writes and watches the nodes of tokens. All methods raise ZooKeeperError."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._notifications = ChangeNotifications(session, [paths.DELEGATION_TOKEN_CHANGES])

    def create_parents(self) -> None:
        """Create the nodes above the tokens where they are missing."""
        self._notifications.create_parents()
        self._session.create_path(paths.DELEGATION_TOKENS)

    def ids(self) -> list[str]:
        """Return the ids of all tokens."""
        return sorted(self._session.children(paths.DELEGATION_TOKENS) or [])

    def read(self, ids: Sequence[str]) -> list[Token | None]:
        """Return each token; None where there is none, or none that can be used, which is logged."""
        found = self._session.get_many([paths.delegation_token(one) for one in ids])
        return [_token(token_id, node) for token_id, node in zip(ids, found, strict=True)]

    def create(self, token: Token) -> None:
        """Create the node of a token, and tell all brokers."""
        path, data = _path_and_data(token)
        self._session.multi([Create(path, data), _change(token.token_id)])

    def replace(self, token: Token) -> bool:
        """Write a token in the place of its former state, and tell all brokers; return False if it is gone.

        Kafka creates the node again where another broker has just deleted it.
        """
        path, data = _path_and_data(token)
        return self._apply(SetData(path, data), token.token_id)

    def delete(self, token_id: str) -> bool:
        """Delete a token, and tell all brokers; return False if it is gone already."""
        return self._apply(Delete(paths.delegation_token(token_id)), token_id)

    def watch(self, changed: Callable[[str], object]) -> None:
        """Set the watch, and take all notifications so far as read."""
        self._notifications.watch(changed)

    def read_changes(self, changed: Callable[[str], object]) -> list[str]:
        """Return the ids of tokens that new notifications name, and set the watch again."""
        found = []
        for path, data in self._notifications.read_new(changed):
            try:
                found.append(nodes.parse_delegation_token_change(data))
            except MalformedError as error:
                _LOG.error("%s: %s: it names no token that has changed", path, error)
        return list(dict.fromkeys(found))

    def _apply(self, operation: SetData | Delete, token_id: str) -> bool:
        try:
            self._session.multi([operation, _change(token_id)])
        except NodeError as error:
            if error.code == ResultCode.NO_NODE and error.index == 0:
                return False
            raise
        return True


def _path_and_data(token: Token) -> tuple[str, bytes]:
    """Return the node of a token. Raises ValueError for a token that ZooKeeper cannot take."""
    data = nodes.encode_delegation_token(token.to_node())
    if len(data) > MOST_BYTES:
        raise ValueError(f"a token of {len(data):,} bytes, more than {MOST_BYTES:,}")
    return paths.delegation_token(token.token_id), data


def _change(token_id: str) -> Create:
    data = nodes.encode_delegation_token_change(token_id)
    return Create(paths.delegation_token_change(), data, sequential=True)


def _token(token_id: str, node: Node | None) -> Token | None:
    if node is None:
        return None
    path = paths.delegation_token(token_id)
    try:
        token = token_of_node(nodes.parse_delegation_token(node.data))
    except MalformedError as error:
        _LOG.error("%s: %s: nobody can use the token", path, error)
        return None
    if token.token_id != token_id:
        # Its HMAC is that of another id.
        _LOG.error("%s: tokenId is %s: nobody can use the token", path, quoted(token.token_id))
        return None
    return token
