"""PageServer: serves the page over HTTP, on a thread for each of a bounded number of connections."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from socketserver import ThreadingMixIn
from time import monotonic
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client.registry import Collector

from ctrlchan.closing import Closing
from ctrlchan.errors import ConfigError
from ctrlchan.page.application import PageApplication
from ctrlchan.page.brokers import Brokers
from ctrlchan.peers.connection import Address
from ctrlchan.state.brokers import format_host_port

__all__ = ["PageServer"]

_LOG: Final = logging.getLogger("ctrlchan.page")

#: Seconds until the server notices that it is closed, or that a connection is too old.
_POLL_SECONDS: Final = 0.1
#: A browser opens six connections for each tab; more than these are closed at once.
_MAX_CONNECTIONS: Final = 64
#: Seconds without a byte, and seconds from the first byte of a request to the last one of its answer.
_IDLE_SECONDS: Final = 10.0
_CONNECTION_SECONDS: Final = 60.0


class PageServer(Closing):
    """An HTTP server on a thread of its own, from construction to ``close``.

    ``describe``: returns the status of a controller (``KafkaController.describe``, with ``recent``).
    ``bootstrap`` returns the addresses of brokers, on listeners without TLS and SASL; without it the page
    shows the controller alone and changes nothing. ``port``: 0 takes a free one, see the attribute ``port``.
    Raises ConfigError when it cannot listen.
    """

    def __init__(
        self,
        describe: Callable[[], dict[str, Any]],
        metrics: Collector,
        bootstrap: Callable[[], Sequence[Address]] | None = None,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
    ) -> None:
        self._brokers = None if bootstrap is None else Brokers(bootstrap)
        application = PageApplication(describe, metrics, self._brokers, host)
        try:
            self._server = make_server(host, port, application, _Server, _Handler)
        except OSError as problem:
            if self._brokers is not None:
                self._brokers.close()
            where = format_host_port(host, port)
            raise ConfigError(f"the page cannot listen on {where}: {problem.strerror}") from None
        self.port = self._server.server_port
        self.url = f"http://{format_host_port(host, self.port)}/"
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": _POLL_SECONDS},
            name="page-server",
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        """End the server and its connections."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server.end_connections(0.0)
        if self._brokers is not None:
            self._brokers.close()


class _Server(ThreadingMixIn, WSGIServer):
    """One thread for each connection; none of them keeps the process alive."""

    daemon_threads = True
    #: A request that has begun when the server is closed is not waited for.
    block_on_close = False
    request_queue_size = _MAX_CONNECTIONS

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._lock = threading.Lock()
        #: The sockets of open connections, and since when each is open.
        self._open: dict[Any, float] = {}

    def verify_request(self, request: Any, client_address: Any) -> bool:
        with self._lock:
            if len(self._open) >= _MAX_CONNECTIONS:
                return False
            self._open[request] = monotonic()
        return True

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        self.end_connections(_CONNECTION_SECONDS)

    def end_connections(self, age: float) -> None:
        """End the connections that are older, in seconds. Their threads close the sockets."""
        with self._lock:
            for connection, since in self._open.items():
                if monotonic() - since >= age:
                    with suppress(OSError):
                        connection.shutdown(2)  # both directions

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a browser that has gone is no error
            _LOG.exception("a request of %s", client_address)


class _Handler(WSGIRequestHandler):
    timeout = _IDLE_SECONDS

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: standard error is for errors."""
