"""A page for tests, and requests to it with headers of the test's choice."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ctrlchan.controller.status.metrics import ControllerMetrics
from ctrlchan.page.server import PageServer
from ctrlchan.peers.connection import Address

__all__ = ["Answer", "Client", "no_brokers", "serving"]


def no_brokers() -> list[Address]:
    """Return no address: whoever asks the cluster gets an error."""
    return []


@dataclass
class Answer:
    """An answer over HTTP."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.body)


class Client:
    """Sends requests to a page."""

    def __init__(self, server: PageServer) -> None:
        self.port = server.port
        self.url = server.url

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Return the answer. ``Host`` is the server's unless ``headers`` have it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        """Return the answer to GET; ``_`` in the names of headers is ``-``."""
        return self.send("GET", path, headers={name.replace("_", "-"): one for name, one in headers.items()})

    def post(self, path: str, value: Any, **headers: str) -> Answer:
        """Return the answer to a change."""
        named = {name.replace("_", "-"): one for name, one in headers.items()}
        return self.send(
            "POST", path, json.dumps(value).encode(), {"Content-Type": "application/json", **named}
        )


@contextmanager
def serving(
    bootstrap: Callable[[], Sequence[Address]] | None = no_brokers,
    describe: Callable[[], dict[str, Any]] = dict,
    host: str = "127.0.0.1",
) -> Iterator[Client]:
    """Yield a client of a page that runs meanwhile."""
    with PageServer(describe, ControllerMetrics(), bootstrap, host=host) as server:
        yield Client(server)
