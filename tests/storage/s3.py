"""An S3 server (moto's) in this process, whose answers can fail, be late or be lost."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

__all__ = ["S3Server", "serving_s3"]

_BUSY: Final = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message></Error>"
)


class Request(NamedTuple):
    """A request: PUT, GET, HEAD, DELETE or POST; bucket and key; whether it is a conditional put."""

    method: str
    path: str
    conditional: bool


#: What happens to a request: "busy": 503 and nothing is done; "lost": it is done, and the answer is 503; a
#: number: it waits for so many seconds.
Fault = Callable[[Request], str | float | None]


class S3Server:
    """The server. ``requests``: all that came. ``fault``: asked for each of them."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.fault: Fault | None = None
        self._application = DomainDispatcherApplication(create_backend_app)
        # moto looks for the object and puts it in two steps.
        self._one_put = threading.Lock()
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables by which s3fs and Spark find the server."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_REGION": "us-east-1",
        }

    def bucket(self, name: str) -> str:
        """Make a bucket and return its URL."""
        made = urllib.request.Request(f"{self.url}/{name}", method="PUT")
        urllib.request.urlopen(made).close()
        return f"s3://{name}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = Request(environ["REQUEST_METHOD"], environ["PATH_INFO"], "HTTP_IF_NONE_MATCH" in environ)
        self.requests.append(request)
        fault = None if self.fault is None else self.fault(request)
        if isinstance(fault, float):
            time.sleep(fault)
        if fault == "busy":
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            return self._busy(start_response)
        if request.method == "PUT":
            with self._one_put:
                answer = list(self._application(environ, start_response if fault != "lost" else _nothing))
        else:
            answer = self._application(environ, start_response if fault != "lost" else _nothing)
        return self._busy(start_response) if fault == "lost" else answer

    @staticmethod
    def _busy(start_response: Any) -> Iterable[bytes]:
        start_response(
            "503 Slow Down", [("Content-Type", "application/xml"), ("Content-Length", str(len(_BUSY)))]
        )
        return [_BUSY]


def _nothing(*_: object) -> None:
    return None


@contextmanager
def serving_s3() -> Iterator[S3Server]:
    server = S3Server()
    try:
        yield server
    finally:
        server.close()
