"""What passes between the server's frames and the handlers: one request in, one reply out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from ctrlchan.broker.core import BrokerCore

__all__ = ["Api", "Handler", "Reply", "Request"]


class Request(NamedTuple):
    """A request whose header has been read. The body is ``frame[offset:]``."""

    version: int
    correlation_id: int
    client_id: bytes | None
    frame: memoryview
    offset: int


class Reply(NamedTuple):
    """A response body, and what the log and the counters say about it."""

    body: bytes
    error_code: int = 0  # of the whole response
    partition_errors: int = 0  # partitions with an error of their own
    rows: int = 0  # partitions in the request
    about: str = ""  # "controller 1 epoch 7 broker epoch 42"


class Handler(Protocol):
    def __call__(self, core: BrokerCore, request: Request) -> Reply | Callable[[], Reply]:
        """The reply, or a function that makes it, may take long and must not look at ``core``.

        Raises ProtocolError for a body that cannot be read.
        """


@dataclass(frozen=True, slots=True)
class Api:
    """One API key that a broker serves, in one file of its own.

    ``flexible_from``: first version with compact fields and tag buffers; its request header is v2, and
    its response header v1 except for ApiVersions (a client reads that before it knows the version).
    """

    key: int
    name: str
    lowest: int
    highest: int
    flexible_from: int
    handle: Handler
    flexible_response_header: bool = True

    def request_header_version(self, version: int) -> int:
        return 2 if version >= self.flexible_from else 1

    def response_header_version(self, version: int) -> int:
        return 1 if version >= self.flexible_from and self.flexible_response_header else 0
