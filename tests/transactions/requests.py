"""Requests of a client to brokers, sent one by one: also those whose answer nobody waits for."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from kio.schema.index import api_key_map

from ctrlchan.peers.messages import decode_answer, encode_request, part
from tests.kafka.wire import receive_frame, send_frame

__all__ = ["VERSIONS", "Address", "Connections", "make_part"]

Address = tuple[str, int]

#: Of each API that the histories use, by kio's name, and whether its headers have tagged fields.
VERSIONS: Final[dict[str, tuple[int, bool]]] = {
    "produce": (8, False),
    "fetch": (11, False),
    "metadata": (8, False),
    "find_coordinator": (2, False),
    "init_producer_id": (4, True),
    "add_partitions_to_txn": (1, False),
    "add_offsets_to_txn": (1, False),
    "end_txn": (2, False),
    "txn_offset_commit": (3, True),
    "offset_fetch": (7, True),
}
_KEYS: Final = {name: key for key, name in api_key_map.items()}
_CLIENT_ID: Final = b"history"
#: Seconds that the answer to a request may take at least.
_LEAST_SECONDS: Final = 0.02


def make_part(api: str, kind: str, /, **fields: Any) -> Any:
    """Return a part of a request, such as "TopicProduceData"."""
    return part(api, VERSIONS[api][0], kind, **fields)


class Connections:
    """The connections of one client, one to each broker."""

    def __init__(self) -> None:
        self._sockets: dict[Address, socket.socket] = {}

    def ask(self, broker: Address, api: str, deadline: float, /, **fields: Any) -> Any:
        """Return the answer to a request. Raises OSError when there is none before the deadline."""
        frame, version, flexible = _frame(api, fields)
        try:
            connection = self._connection(broker, deadline)
            send_frame(connection, frame)
            answer = receive_frame(connection)
        except OSError:
            self._close(broker)
            raise
        return decode_answer(api, version, answer, 5 if flexible else 4)

    def send(self, broker: Address, api: str, deadline: float, /, **fields: Any) -> None:
        """Send a request and close the connection. Raises OSError when it cannot be sent."""
        frame, _, _ = _frame(api, fields)
        try:
            send_frame(self._connection(broker, deadline), frame)
        finally:
            self._close(broker)

    def close(self) -> None:
        """Close all connections; the next request opens one."""
        for broker in [*self._sockets]:
            self._close(broker)

    def _connection(self, broker: Address, deadline: float) -> socket.socket:
        seconds = max(_LEAST_SECONDS, deadline - monotonic())
        connection = self._sockets.get(broker)
        if connection is None:
            connection = self._sockets[broker] = socket.create_connection(broker, seconds)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(seconds)
        return connection

    def _close(self, broker: Address) -> None:
        with suppress(KeyError):
            self._sockets.pop(broker).close()


def _frame(api: str, fields: dict[str, Any]) -> tuple[bytes, int, bool]:
    version, flexible = VERSIONS[api]
    header = struct.pack(">hhih", _KEYS[api], version, 0, len(_CLIENT_ID)) + _CLIENT_ID
    return header + b"\0" * flexible + encode_request(api, version, **fields), version, flexible
