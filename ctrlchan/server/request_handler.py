"""From a frame to the API that answers it, and from the reply to the bytes of a response."""

from __future__ import annotations

import logging
import struct
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Set
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, cast

from kio.schema.index import api_key_map

from ctrlchan._codec import decode_request_header, encode_response_header
from ctrlchan.authorizer.interface import Authorizer
from ctrlchan.errors import DecodeError, ErrorCode, ProtocolError, UnsupportedVersionError
from ctrlchan.server.access import EVERYTHING, AuthorizedAccess
from ctrlchan.server.api import Api, Buffers, GoOn, Reply, Request, Throttled
from ctrlchan.server.api_names import api_name
from ctrlchan.server.error_responses import error_response
from ctrlchan.server.futures import then
from ctrlchan.server.kio_messages import ClientMessages, KioError
from ctrlchan.server.request_context import RequestContext
from ctrlchan.server.throttle_time import body_of

__all__ = ["ApiCounters", "RequestHandler"]

logger = logging.getLogger("ctrlchan.broker")

_KEY_AND_VERSION = struct.Struct(">hh")
_SIZE_BYTES: Final = 4  # of a frame; the counters have them
_NO_LOCK: Final = nullcontext()


@dataclass(slots=True)
class ApiCounters:
    """Requests of one API. ``errors``: of whole responses, by name. ``seconds``: spent in handling.

    ``throttled_ms``: throttle times of clients that have used too much.
    """

    requests: int = 0
    rows: int = 0
    partition_errors: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    seconds: float = 0.0
    throttled_ms: int = 0
    errors: Counter[str] = field(default_factory=Counter)

    def count(self, reply: Reply, bytes_in: int, bytes_out: int, seconds: float) -> None:
        self.requests += 1
        self.rows += reply.rows
        self.partition_errors += reply.partition_errors
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out
        self.seconds += seconds
        self.throttled_ms += reply.throttle_time_ms
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


class _ClientLimits(Protocol):
    def charge(self, api_key: int, request: Request, reply: Reply, seconds: float) -> int:
        """Return the throttle time of a request in milliseconds. ``seconds``: of a thread's work."""


C = TypeVar("C", bound=_Core)

#: What a fault makes of the answer to a request that was handled
_FaultyAnswer: TypeAlias = Callable[[Reply], Reply | Future[Reply]]
_FaultAnswer: TypeAlias = Callable[[Api[C], Request], Reply | Future[None] | _FaultyAnswer | None]


class RequestHandler(Generic[C]):
    """Answers the frames of one broker with the APIs of ``apis``, a table by API key.

    ``serve`` is called on several threads. ``lock``: is held while a handler uses the core; None where the
    core needs none. ``authorizer``: None allows everything. ``limits``: says which clients wait.
    ``is_for_brokers``: whether its listener is that of brokers (Kafka: a privileged listener).
    """

    def __init__(
        self,
        core: C,
        apis: Mapping[int, Api[C]],
        lock: AbstractContextManager[object] | None = None,
        authorizer: Authorizer | None = None,
        limits: _ClientLimits | None = None,
        is_for_brokers: bool = True,
    ) -> None:
        self.core = core
        self.counters: dict[str, ApiCounters] = {}
        # Keys of APIs with faults, and what a fault makes of a request.
        self._faults: tuple[Set[int], _FaultAnswer[C]] = frozenset(), lambda _api, _request: None
        self._apis = apis
        self._lock = _NO_LOCK if lock is None else lock
        self._authorizer = authorizer
        self._limits = limits
        self._is_for_brokers = is_for_brokers
        self._counting = threading.Lock()

    def set_faults(self, keys: Set[int], answer: _FaultAnswer[C]) -> None:
        """Ask `answer` before requests of these API keys are answered.

        It returns None when no fault hits the request, a Future, after which the request is handled, or a
        function that is given the reply and returns another one.
        """
        self._faults = keys, answer

    def describe(self) -> dict[str, Any]:
        """Return what the broker holds and, under "apis", the counters of each API that was requested."""
        with self._counting:
            counters = {name: counters.describe() for name, counters in self.counters.items()}
        return self.core.describe() | {"apis": counters}

    def serve(self, frame: bytes | memoryview, context: RequestContext) -> Buffers | Future[Buffers]:
        """Answer one frame. Raises ProtocolError when Kafka would close the connection instead.

        The Future ends on the thread that ends the API's own.
        """
        # Without hot handlers no request goes on, and without limits nobody is throttled.
        return cast(Buffers | Future[Buffers], self.serve_left(frame, context))

    def serve_left(
        self, frame: bytes | memoryview, context: RequestContext
    ) -> Buffers | Throttled | GoOn | Future[Buffers | Throttled | GoOn]:
        """Answer one frame that a hot handler has left, as ``serve``; GoOn: the hot handler goes on."""
        began = perf_counter()
        api, request = self._parse(memoryview(frame), context)
        reply = self._reply(api, request)
        # For which this thread has worked: not the time until a Future ends.
        seconds = perf_counter() - began
        if isinstance(reply, Future):
            return then(reply, lambda reply: self._limit(api, request, reply, began, seconds))
        return self._limit(api, request, reply, began, seconds)

    def _reply(self, api: Api[C], request: Request) -> Reply | Future[Reply]:
        """Return the reply of a fault, or that of the API."""
        faulty, answer_of_fault = self._faults
        fault = answer_of_fault(api, request) if api.key in faulty else None
        if isinstance(fault, Reply):
            return fault
        if isinstance(fault, Future):
            return then(fault, lambda _: self._handle(api, request))
        reply = self._handle(api, request)
        if fault is None:
            return reply
        return then(reply, fault) if isinstance(reply, Future) else fault(reply)

    def _handle(self, api: Api[C], request: Request) -> Reply | Future[Reply]:
        """Let the API handle the request."""
        if api.only_of_brokers and not self._is_for_brokers:
            listener = request.context.listener
            raise ProtocolError(f"{api.name} on the listener {listener}, which is not that of brokers")
        if self._authorizer is not None and (refusal := _refusal(api, request)) is not None:
            return refusal
        with self._lock if api.locks_core else _NO_LOCK:
            return api.handle(self.core, request)

    def _parse(self, frame: memoryview, context: RequestContext) -> tuple[Api[C], Request]:
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
        access = EVERYTHING
        if self._authorizer is not None:
            client_id = None if header.client_id is None else header.client_id.decode(errors="replace")
            access = AuthorizedAccess(self._authorizer, context, api.name, client_id)
        return api, Request(
            version,
            header.correlation_id,
            header.client_id,
            frame.toreadonly(),
            header.size,
            context,
            access,
        )

    def _limit(
        self, api: Api[C], request: Request, reply: Reply, began: float, seconds: float
    ) -> Buffers | Throttled | GoOn:
        """Return the answer, throttled if its client has used too much."""
        if reply.goes_on is not None:
            return reply.goes_on
        if self._limits is None:
            return self._finish(api, request, reply, began)
        ms = max(reply.throttle_time_ms, self._limits.charge(api.key, request, reply, seconds))
        answer = self._finish(api, request, reply._replace(throttle_time_ms=ms), began)
        return Throttled(answer, ms) if ms > 0 else answer

    def _finish(self, api: Api[C], request: Request, reply: Reply, began: float) -> Buffers:
        header = encode_response_header(api.response_header_version(request.version), request.correlation_id)
        bytes_out = _SIZE_BYTES + len(header) + len(reply.body)
        seconds = perf_counter() - began
        with self._counting:
            counters = self.counters.get(api.name)
            if counters is None:
                counters = self.counters[api.name] = ApiCounters()
            counters.count(reply, _SIZE_BYTES + len(request.frame), bytes_out, seconds)
        if reply.sender and logger.isEnabledFor(logging.INFO):
            logger.info(
                "broker %d: %s v%d correlation %d %s: %d partitions, %d bytes, %s%s, %.1f ms, from %s",
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
                request.context,
            )
        return (header, *body_of(api, request.version, reply)) if reply.is_sent else ()


def _refusal(api: Api[Any], request: Request) -> Reply | None:
    """Return the answer to a peer that may not use the API at all. Raises DecodeError."""
    if api.needs is not None and (
        api.needs.cluster is None or request.access.allows_cluster(api.needs.cluster)
    ):
        return None
    messages = ClientMessages(api_key_map[api.key], request.version)
    error = KioError.cluster_authorization_failed
    text = None if api.needs is None else api.needs.refusal
    return Reply(error_response(messages, messages.decode(request), error, text), error_code=error.value)
