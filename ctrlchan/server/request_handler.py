"""From a frame to the API that answers it, and from the reply to the bytes of a response."""

from __future__ import annotations

import logging
import struct
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Set
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from inspect import isawaitable
from time import perf_counter
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

from ctrlchan._codec import decode_request_header, encode_response_header
from ctrlchan.errors import DecodeError, ErrorCode, UnsupportedVersionError
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.api_names import api_name
from ctrlchan.server.asyncio_server import Answer, Buffers

__all__ = ["ApiCounters", "RequestHandler"]

logger = logging.getLogger("ctrlchan.broker")

_KEY_AND_VERSION = struct.Struct(">hh")
_SIZE = struct.Struct(">i")


@dataclass(slots=True)
class ApiCounters:
    """Requests of one API. ``errors``: of whole responses, by name. ``seconds``: spent in handling."""

    requests: int = 0
    rows: int = 0
    partition_errors: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    seconds: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)

    def count(self, reply: Reply, bytes_in: int, bytes_out: int, seconds: float) -> None:
        self.requests += 1
        self.rows += reply.rows
        self.partition_errors += reply.partition_errors
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out
        self.seconds += seconds
        if reply.error_code:
            self.errors[ErrorCode.name_of(reply.error_code)] += 1

    def describe(self) -> dict[str, Any]:
        return asdict(self) | {"seconds": round(self.seconds, 6), "errors": dict(self.errors)}


class _Core(Protocol):
    @property
    def id(self) -> int:
        """Broker id, for log lines."""

    def describe(self) -> dict[str, Any]:
        """Return the state, in values that JSON can carry."""


C = TypeVar("C", bound=_Core)

_FaultAnswer: TypeAlias = Callable[[Api[C], Request], Reply | Future[None] | None]


class RequestHandler(Generic[C]):
    """Answers the frames of one broker with the APIs of ``apis``, a table by API key.

    ``handle`` belongs to the thread that owns ``core``. ``serve`` may be called by any thread, and holds
    ``lock`` while a handler uses ``core``.
    """

    def __init__(
        self, core: C, apis: Mapping[int, Api[C]], lock: AbstractContextManager[object] | None = None
    ) -> None:
        self.core = core
        self.counters: dict[str, ApiCounters] = {}
        # Keys of APIs with faults, and what a fault makes of a request.
        self._faults: tuple[Set[int], _FaultAnswer[C]] = frozenset(), lambda _api, _request: None
        self._apis = apis
        self._lock = threading.RLock() if lock is None else lock
        self._counting = threading.Lock()

    def set_faults(self, keys: Set[int], answer: _FaultAnswer[C]) -> None:
        """Ask `answer` before requests of these API keys are answered.

        It returns None when no fault hits the request, or a Future, after which the request is handled.
        """
        self._faults = keys, answer

    def describe(self) -> dict[str, Any]:
        """Return what the broker holds and, under "apis", the counters of each API that was requested."""
        with self._counting:
            counters = {name: counters.describe() for name, counters in self.counters.items()}
        return self.core.describe() | {"apis": counters}

    def handle(self, frame: memoryview) -> Answer:
        """Answer one frame. Raises ProtocolError when Kafka would close the connection instead."""
        began = perf_counter()
        api, request = self._parse(frame)
        reply = api.handle(self.core, request)
        if isawaitable(reply):
            return self._when_done(api, request, reply, began)
        if callable(reply):
            return self._later(api, request, reply, began)
        return self._finish(api, request, cast(Reply, reply), began)

    def serve(self, frame: bytes, listener: str, client_host: str) -> Buffers | Future[Buffers]:
        """Answer one frame on a handler thread. Empty: nothing is sent. Raises ProtocolError as ``handle``.

        The Future ends on the thread that ends the API's own.
        """
        began = perf_counter()
        api, request = self._parse(memoryview(frame), listener, client_host)
        faulty, answer_of_fault = self._faults
        fault = answer_of_fault(api, request) if api.key in faulty else None
        if isinstance(fault, Future):
            return self._when_complete(fault, lambda _: self._reply(api, request), api, request, began)
        reply = fault or self._reply(api, request)
        if isinstance(reply, Future):
            return self._when_complete(reply, lambda reply: reply, api, request, began)
        return _without_size(self._finish(api, request, reply, began))

    def _reply(self, api: Api[C], request: Request) -> Reply | Future[Reply]:
        """Let the API handle the request on this thread."""
        if api.locks_core:
            with self._lock:
                reply = api.handle(self.core, request)
        else:
            reply = api.handle(self.core, request)
        return cast(Reply | Future[Reply], reply() if callable(reply) else reply)

    def _when_complete(
        self,
        waited_for: Future[Any],
        reply_of: Callable[[Any], Reply | Future[Reply]],
        api: Api[C],
        request: Request,
        began: float,
    ) -> Future[Buffers]:
        """Return the future answer: the reply that `reply_of` makes of the result of `waited_for`."""
        answer: Future[Buffers] = Future()

        def finish(done: Future[Any], reply_of: Callable[[Any], Reply | Future[Reply]]) -> None:
            try:
                reply = reply_of(done.result())
                if isinstance(reply, Future):
                    reply.add_done_callback(lambda done: finish(done, lambda reply: reply))
                else:
                    answer.set_result(_without_size(self._finish(api, request, reply, began)))
            except BaseException as error:  # noqa: BLE001  (who sends the answer gets it)
                answer.set_exception(error)

        waited_for.add_done_callback(lambda done: finish(done, reply_of))
        return answer

    def _parse(self, frame: memoryview, listener: str = "", client_host: str = "") -> tuple[Api[C], Request]:
        if len(frame) < _KEY_AND_VERSION.size:
            raise DecodeError(f"a frame of {len(frame)} bytes has no request header", api="RequestHeader")
        key, version = _KEY_AND_VERSION.unpack_from(frame)
        api = self._apis.get(key)
        if api is None:
            raise UnsupportedVersionError(
                f"{api_name(key)} (API key {key}) is not served",
                api="RequestHeader",
                version=version,
            )
        if not api.lowest <= version <= api.highest and not api.answers_any_version:
            raise UnsupportedVersionError(
                f"version {version} is not served ({api.lowest} to {api.highest})",
                api=api.name,
                version=version,
            )
        header = decode_request_header(frame, api.request_header_version(version))
        return api, Request(
            version,
            header.correlation_id,
            header.client_id,
            frame.toreadonly(),
            header.size,
            listener,
            client_host,
        )

    def _later(
        self, api: Api[C], request: Request, make: Callable[[], Reply], began: float
    ) -> Callable[[], Buffers]:
        return lambda: self._finish(api, request, make(), began)

    async def _when_done(
        self, api: Api[C], request: Request, reply: Awaitable[Reply], began: float
    ) -> Buffers:
        return self._finish(api, request, await reply, began)

    def _finish(self, api: Api[C], request: Request, reply: Reply, began: float) -> Buffers:
        header = encode_response_header(api.response_header_version(request.version), request.correlation_id)
        size = len(header) + len(reply.body)
        seconds = perf_counter() - began
        with self._counting:
            self.counters.setdefault(api.name, ApiCounters()).count(
                reply, len(request.frame) + _SIZE.size, size + _SIZE.size, seconds
            )
        if reply.sender and logger.isEnabledFor(logging.INFO):
            logger.info(
                "broker %d: %s v%d correlation %d %s: %d partitions, %d bytes, %s%s, %.1f ms",
                self.core.id,
                api.name,
                request.version,
                request.correlation_id,
                reply.sender,
                reply.rows,
                len(request.frame),
                ErrorCode.name_of(reply.error_code),
                f", {reply.partition_errors} partition errors" if reply.partition_errors else "",
                seconds * 1000,
            )
        return (_SIZE.pack(size) + header, reply.body) if reply.is_sent else ()


def _without_size(answer: Buffers) -> Buffers:
    """Return the answer as a SocketServer takes it: without its first four bytes."""
    return (answer[0][_SIZE.size :], *answer[1:]) if answer else ()
