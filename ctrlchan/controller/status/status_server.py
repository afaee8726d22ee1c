"""Serves the status of a controller over HTTP: a page at ``/``, ``/status.json`` and ``/metrics``."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import Any, Final, Self, TypeAlias
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from ctrlchan.controller.status.metrics import ControllerMetrics
from ctrlchan.controller.status.page import status_page
from ctrlchan.errors import ConfigError

__all__ = ["StatusServer"]

_StartResponse: TypeAlias = Callable[[str, list[tuple[str, str]]], Any]

#: Seconds until the server notices that it is closed.
_POLL_SECONDS: Final = 0.1
#: The page needs nothing but its own styles; nothing else is loaded, also if a text were not escaped.
_PAGE_HEADERS: Final = [
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"),
    ("X-Content-Type-Options", "nosniff"),
]


class StatusServer:
    """An HTTP server on a thread of its own, from construction to ``close``.

    ``describe``: returns the status (``KafkaController.describe``, with ``recent``). ``port``: 0: a free one,
    see the attribute ``port``. Every answer is read-only. Raises ConfigError when it cannot listen.
    """

    def __init__(
        self,
        describe: Callable[[], dict[str, Any]],
        metrics: ControllerMetrics,
        port: int = 0,
        host: str = "127.0.0.1",
    ) -> None:
        self._describe = describe
        registry = CollectorRegistry()
        registry.register(metrics)
        self._metrics = make_wsgi_app(registry)
        try:
            self._server = make_server(host, port, self._answer, _Server, _Handler)
        except OSError as problem:
            raise ConfigError(f"metrics port {port}: {problem.strerror}") from None
        self.port = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": _POLL_SECONDS},
            name="status-server",
            daemon=True,
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, environment: dict[str, Any], start: _StartResponse) -> Iterable[bytes]:
        if environment["REQUEST_METHOD"] != "GET":
            return _answered(start, "405 Method Not Allowed", "text/plain", "only GET\n", [("Allow", "GET")])
        match environment["PATH_INFO"]:
            case "/":
                page = status_page(self._describe())
                return _answered(start, "200 OK", "text/html", page, _PAGE_HEADERS)
            case "/status.json":
                return _answered(start, "200 OK", "application/json", json.dumps(self._describe()) + "\n")
            case "/metrics":
                parts: Iterable[bytes] = self._metrics(environment, start)
                return parts
        return _answered(start, "404 Not Found", "text/plain", "see / , /status.json and /metrics\n")


def _answered(
    start: _StartResponse, status: str, kind: str, text: str, headers: Iterable[tuple[str, str]] = ()
) -> list[bytes]:
    # A topic's name in ZooKeeper may be no UTF-8.
    body = text.encode(errors="replace")
    start(
        status,
        [
            ("Content-Type", f"{kind}; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            *headers,
        ],
    )
    return [body]


class _Server(ThreadingMixIn, WSGIServer):
    """One thread for each request; none of them keeps the process alive."""

    daemon_threads = True
    #: A scrape that has begun when the server is closed is not waited for.
    block_on_close = False


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: standard error is for errors."""
