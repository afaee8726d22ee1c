"""PageApplication: the files, the answers in JSON and the metrics of the page, as a WSGI application."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from importlib.resources import files
from time import monotonic
from typing import Any, Final, NamedTuple, TypeAlias

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.registry import Collector

from ctrlchan.errors import KafkaError
from ctrlchan.page.brokers import Brokers
from ctrlchan.page.groups import describe_group, list_groups
from ctrlchan.page.messages import MAX_MESSAGES, Start, read_message, read_messages
from ctrlchan.page.parameters import (
    MAX_INT32,
    MAX_INT64,
    Parameters,
    parameters_of_body,
    parameters_of_query,
)
from ctrlchan.page.problems import PageError, page_error
from ctrlchan.page.producing import produce
from ctrlchan.page.request_checks import check_change, check_host, check_site
from ctrlchan.page.topics import create_topic, delete_topic, describe_topic, list_topics

__all__ = ["PageApplication"]

_LOG: Final = logging.getLogger("ctrlchan.page")

StartResponse: TypeAlias = Callable[[str, list[tuple[str, str]]], Any]
#: Answers a request about the cluster: its brokers and the parameters → what JSON can carry.
_Answer: TypeAlias = Callable[[Brokers, Parameters], Any]

#: Seconds until a body is there.
_BODY_SECONDS: Final = 10.0
_CHUNK: Final = 2**16
_MAX_INT16: Final = 2**15 - 1
_KINDS: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # A browser that knows it refuses text as HTML or script, also by mistake.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
#: Of every answer.
_HEADERS: Final = [
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
]


class _File(NamedTuple):
    kind: str
    body: bytes


class PageApplication:
    """Answers requests. Thread-safe.

    ``describe``: returns the status of a controller. ``metrics``: shown at ``/metrics``. ``brokers``: of the
    cluster whose topics, messages and groups are shown; without them only the controller is shown. ``host``:
    the name under which the page may be opened, besides IP addresses and localhost.
    """

    def __init__(
        self, describe: Callable[[], dict[str, Any]], metrics: Collector, brokers: Brokers | None, host: str
    ) -> None:
        self._describe = describe
        self._brokers = brokers
        self._host = host
        registry = CollectorRegistry(support_collectors_without_names=True)
        registry.register(metrics)
        self._metrics = make_wsgi_app(registry)
        self._files = _files()

    def __call__(self, environment: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        try:
            return self._answer(environment, start)
        except PageError as problem:
            return _json(start, {"error": str(problem)}, problem.status)
        except Exception:  # noqa: BLE001 - the page shows it, and the server goes on
            _LOG.exception("%s %s", environment["REQUEST_METHOD"], environment["PATH_INFO"])
            problem_here = {"error": "an error in the page itself: its log has it"}
            return _json(start, problem_here, HTTPStatus.INTERNAL_SERVER_ERROR)

    def _answer(self, environment: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        check_host(environment, self._host)
        path, method = environment["PATH_INFO"], environment["REQUEST_METHOD"]
        # A link on another site may lead to the page itself, which shows that site nothing.
        if path != "/" or method != "GET":
            check_site(environment)
        if path in _CHANGES:
            _check_method(method, ("GET", "POST") if path in _READS else ("POST",))
        else:
            _check_method(method, ("GET",))
        if method == "POST":
            body = _read_body(environment, check_change(environment))
            return self._ask(start, _CHANGES[path], parameters_of_body(body))
        if path in _READS:
            return self._ask(start, _READS[path], parameters_of_query(environment.get("QUERY_STRING", "")))
        if path in self._files:
            file = self._files[path]
            return _respond(start, HTTPStatus.OK, file.kind, file.body)
        match path:
            case "/api/views":
                return _json(start, self._views())
            case "/status.json":
                return _json(start, self._describe() | {"now": time.time()})
            case "/metrics":
                parts: Iterable[bytes] = self._metrics(
                    environment, lambda status, headers: start(status, [*headers, *_HEADERS])
                )
                return parts
        raise PageError(HTTPStatus.NOT_FOUND, "there is nothing here: the page is at /")

    def _views(self) -> dict[str, Any]:
        """Return what the page shows."""
        if self._brokers is None:
            return {"views": ["controller"], "bootstrap_servers": None}
        return {
            "views": ["topics", "groups", "controller"],
            "bootstrap_servers": self._brokers.bootstrap_servers,
        }

    def _ask(self, start: StartResponse, answer: _Answer, parameters: Parameters) -> list[bytes]:
        if self._brokers is None:
            raise PageError(HTTPStatus.NOT_FOUND, "this page shows a controller alone")
        try:
            return _json(start, answer(self._brokers, parameters))
        except KafkaError as error:
            raise page_error(error) from error


def _topics(brokers: Brokers, given: Parameters) -> Any:
    return list_topics(brokers, given.text("query", ""), given.choice("internal", ("no", "yes")) == "yes")


def _topic(brokers: Brokers, given: Parameters) -> Any:
    return describe_topic(brokers, given.topic())


def _messages(brokers: Brokers, given: Parameters) -> Any:
    kind = given.choice("from", ("newest", "oldest", "offset", "time"))
    at = given.number("at", 0, MAX_INT64) if kind in ("offset", "time") else 0
    return read_messages(
        brokers,
        given.topic(),
        given.optional_number("partition", 0, MAX_INT32),
        Start(kind, at, given.positions("positions")),
        given.number("limit", 1, MAX_MESSAGES, 50),
    )


def _message(brokers: Brokers, given: Parameters) -> Any:
    partition, offset = given.number("partition", 0, MAX_INT32), given.number("offset", 0, MAX_INT64)
    return read_message(brokers, given.topic(), partition, offset)


def _groups(brokers: Brokers, given: Parameters) -> Any:
    return list_groups(brokers, given.text("query", ""))


def _group(brokers: Brokers, given: Parameters) -> Any:
    return describe_group(brokers, given.text("group"))


def _produce(brokers: Brokers, given: Parameters) -> Any:
    return produce(
        brokers,
        given.topic(),
        given.optional_number("partition", 0, MAX_INT32),
        given.data("key"),
        given.data("value"),
        given.headers(),
    )


def _create_topic(brokers: Brokers, given: Parameters) -> Any:
    partitions = given.number("partitions", 1, MAX_INT32, -1)
    return create_topic(
        brokers, given.topic(), partitions, given.number("replicas", 1, _MAX_INT16, -1), given.configs()
    )


def _delete_topic(brokers: Brokers, given: Parameters) -> Any:
    return delete_topic(brokers, given.topic())


_READS: Final[Mapping[str, _Answer]] = {
    "/api/topics": _topics,
    "/api/topic": _topic,
    "/api/messages": _messages,
    "/api/message": _message,
    "/api/groups": _groups,
    "/api/group": _group,
}
_CHANGES: Final[Mapping[str, _Answer]] = {
    "/api/messages": _produce,
    "/api/topics": _create_topic,
    "/api/topics/delete": _delete_topic,
}


def _files() -> dict[str, _File]:
    """Return the files of ``assets`` by their paths in URLs; they are small."""
    found = {}
    for file in (files("ctrlchan.page") / "assets").iterdir():
        kind = _KINDS.get(file.name.rpartition(".")[2])
        if kind is not None:
            path = "/" if file.name == "index.html" else f"/{file.name}"
            found[path] = _File(f"{kind}; charset=utf-8", file.read_bytes())
    return found


def _check_method(method: str, allowed: tuple[str, ...]) -> None:
    if method not in allowed:
        raise PageError(HTTPStatus.METHOD_NOT_ALLOWED, f"only {' and '.join(allowed)} here")


def _read_body(environment: Mapping[str, Any], size: int) -> bytes:
    """Return the whole body. Raises PageError when it does not come in time."""
    deadline = monotonic() + _BODY_SECONDS
    parts: list[bytes] = []
    left = size
    try:
        while left and monotonic() < deadline:
            part = environment["wsgi.input"].read1(min(left, _CHUNK))
            if not part:
                break
            parts.append(part)
            left -= len(part)
    except TimeoutError:
        pass
    if left:
        raise PageError(HTTPStatus.REQUEST_TIMEOUT, f"{left} bytes of the body are missing")
    return b"".join(parts)


def _json(start: StartResponse, value: Any, status: HTTPStatus = HTTPStatus.OK) -> list[bytes]:
    # ASCII: names may have halves of surrogate pairs, which UTF-8 has not.
    body = json.dumps(value, separators=(",", ":")).encode() + b"\n"
    return _respond(start, status, "application/json; charset=utf-8", body)


def _respond(start: StartResponse, status: HTTPStatus, kind: str, body: bytes) -> list[bytes]:
    headers = [("Content-Type", kind), ("Content-Length", str(len(body))), *_HEADERS]
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers.append(("Allow", "GET, POST"))
    start(f"{status.value} {status.phrase}", headers)
    return [body]
