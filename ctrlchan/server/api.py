"""The types that every API file shares: a request, its reply, and the entry of an API in the table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeAlias, TypeVar

__all__ = ["Api", "Core", "Handler", "Reply", "Request"]

#: What an API answers from: ``BrokerCore`` for an embedded broker.
Core = TypeVar("Core", contravariant=True)


class Request(NamedTuple):
    """A request whose header has been decoded. The body is ``frame[offset:]``.

    ``listener`` and ``client_host``, the peer's IP address, are set by a broker that stores records.
    """

    version: int
    correlation_id: int
    client_id: bytes | None
    frame: memoryview
    offset: int
    listener: str = ""
    client_host: str = ""


class Reply(NamedTuple):
    """A response body, and the figures of it for the log and the counters."""

    body: bytes
    error_code: int = 0  # of the whole response
    partition_errors: int = 0  # partitions with an error of their own
    rows: int = 0  # partitions in the request
    sender: str = ""  # of a control request: "controller 1 epoch 7 broker epoch 42"
    is_sent: bool = True  # False: the client wants no response (Produce with acks=0)


#: Returns the reply, a function that makes the reply, may take long and must not use the core, an awaitable
#: that gives the reply (only where asyncio serves), or a Future of it (only where handler threads serve).
#: Raises ProtocolError for a body that cannot be decoded: the connection is closed, as by Kafka.
Handler: TypeAlias = Callable[[Core, Request], Reply | Callable[[], Reply] | Awaitable[Reply] | Future[Reply]]


@dataclass(frozen=True, slots=True)
class Api(Generic[Core]):
    """One API key that a broker serves, in the versions from `lowest` to `highest`.

    ``flexible_from``: first version with compact fields and tag buffers; its request header is v2, and
    its response header v1 except for ApiVersions (a client decodes that before it has the version).
    ``named_since``: first version whose request header has a client id.
    ``answers_any_version``: a version out of range is handled too, instead of closing the connection.
    ``locks_core``: a handler thread holds ``core.lock`` while it calls ``handle``.
    """

    key: int
    name: str
    lowest: int
    highest: int
    flexible_from: int
    handle: Handler[Core]
    flexible_response_header: bool = True
    answers_any_version: bool = False
    named_since: int = 0
    locks_core: bool = True

    def request_header_version(self, version: int) -> int:
        if version >= self.flexible_from:
            return 2
        return 1 if version >= self.named_since else 0

    def response_header_version(self, version: int) -> int:
        return 1 if version >= self.flexible_from and self.flexible_response_header else 0
