"""The types that every API file shares: a request, its reply, and the entry of an API in the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ctrlchan.broker.core import BrokerCore

__all__ = ["Api", "Handler", "Reply", "Request"]


class Request(NamedTuple):
    """A request whose header has been decoded. The body is ``frame[offset:]``."""

    version: int
    correlation_id: int
    client_id: bytes | None
    frame: memoryview
    offset: int


class Reply(NamedTuple):
    """A response body, and the figures of it for the log and the counters."""

    body: bytes
    error_code: int = 0  # of the whole response
    partition_errors: int = 0  # partitions with an error of their own
    rows: int = 0  # partitions in the request
    sender: str = ""  # of a control request: "controller 1 epoch 7 broker epoch 42"


#: Returns the reply, or a function that makes the reply, may take long and must not use the core.
#: Raises ProtocolError for a body that cannot be decoded: the connection is closed, as by Kafka.
Handler: TypeAlias = Callable[[BrokerCore, Request], Reply | Callable[[], Reply]]


@dataclass(frozen=True, slots=True)
class Api:
    """One API key that a broker serves, in the versions from `lowest` to `highest`.

    ``flexible_from``: first version with compact fields and tag buffers; its request header is v2, and
    its response header v1 except for ApiVersions (a client decodes that before it has the version).
    ``answers_any_version``: a version out of range is handled too, instead of closing the connection.
    """

    key: int
    name: str
    lowest: int
    highest: int
    flexible_from: int
    handle: Handler
    flexible_response_header: bool = True
    answers_any_version: bool = False

    def request_header_version(self, version: int) -> int:
        return 2 if version >= self.flexible_from else 1

    def response_header_version(self, version: int) -> int:
        return 1 if version >= self.flexible_from and self.flexible_response_header else 0
