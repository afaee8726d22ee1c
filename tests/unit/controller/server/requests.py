"""Requests to a server of a controller, in every version, as bytes of one connection."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from kio.index import load_request_schema
from kio.static.primitive import i32Timedelta

from tests.unit.broker.local_broker import client_frame, read_client_response

__all__ = ["Connection", "connection", "part", "timeout"]


def timeout(seconds: float = 0.0) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(seconds=seconds))


def part(api_key: int, version: int, kind: str, **fields: Any) -> Any:
    """A part of a request, such as one topic, with those of `fields` that the version has."""
    schema = load_request_schema(api_key, version)
    entity = getattr(sys.modules[schema.__module__], kind)
    return entity(**{name: value for name, value in fields.items() if name in entity.__dataclass_fields__})


class Connection:
    """Sends one request after the other."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def ask(self, api_key: int, version: int, fields: Mapping[str, Any]) -> Any:
        """Return the body of the response. `fields` may have more than the version has."""
        schema: Any = load_request_schema(api_key, version)
        known = {name: value for name, value in fields.items() if name in schema.__dataclass_fields__}
        frame = client_frame(api_key, version, **known)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        return read_client_response(api_key, version, self._exactly(int.from_bytes(self._exactly(4), "big")))

    def _exactly(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            more = self._socket.recv(size - len(got))
            if not more:
                raise ConnectionError("the server has closed the connection")
            got += more
        return got


@contextmanager
def connection(address: str) -> Iterator[Connection]:
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=60) as sock:
        yield Connection(sock)
