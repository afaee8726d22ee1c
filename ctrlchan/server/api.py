"""The types that every API file shares: a request, its reply, and the entry of an API in the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from ctrlchan.errors import ProtocolError
from ctrlchan.server.access import EVERYTHING, Access, Needs
from ctrlchan.server.request_context import RequestContext

__all__ = ["Api", "Buffers", "CannotAnswer", "Core", "GoOn", "Handler", "Reply", "Request", "Throttled"]

#: A response in parts, without the size before it. Empty: nothing is sent.
Buffers: TypeAlias = Sequence[bytes | bytearray | memoryview]

#: What an API answers from: ``BrokerCore`` for an embedded broker.
Core = TypeVar("Core", contravariant=True)


class GoOn(NamedTuple):
    """In the place of an answer: the hot handler that has left the request goes on, and sees ``answer``.

    ``identity``: the number of the peer, for which decisions were added.
    """

    answer: int
    identity: int


class Throttled(NamedTuple):
    """An answer to a client that has used too much: its next request is not handled for ``mute_ms``."""

    answer: Buffers
    mute_ms: int


class Request(NamedTuple):
    """A request whose header has been decoded. The body is ``frame[offset:]``.

    ``context``: who sends it, and from where. ``access``: what he may do.
    """

    version: int
    correlation_id: int
    client_id: bytes | None
    frame: memoryview
    offset: int
    context: RequestContext
    access: Access = EVERYTHING


class Reply(NamedTuple):
    """A response body, and the figures of it for the log and the counters."""

    body: bytes
    error_code: int = 0  # of the whole response
    partition_errors: int = 0  # partitions with an error of their own
    rows: int = 0  # partitions in the request
    sender: str = ""  # of a control request: "controller 1 epoch 7 broker epoch 42"
    is_sent: bool = True  # False: the client wants no response (Produce with acks=0)
    throttle_time_ms: int = 0  # for which the client shall wait; the body has 0
    tags_size: int = 1  # bytes of the tagged fields that end a flexible body; 1: there are none
    goes_on: GoOn | None = None  # of a request that the hot handler answers after all


#: Returns the reply or a Future of it. A handler does not wait for what another request does.
#: Raises ProtocolError for a body that cannot be decoded: the connection is closed, as by Kafka.
Handler: TypeAlias = Callable[[Core, Request], Reply | Future[Reply]]


class CannotAnswer(ProtocolError):
    """The server cannot answer this request now: the connection is closed, and the peer asks another one."""


@dataclass(frozen=True, slots=True)
class Api(Generic[Core]):
    """One API key that a broker serves, in the versions from `lowest` to `highest`.

    ``flexible_from``: first version with compact fields and tag buffers; its request header is v2, and
    its response header v1 except for ApiVersions (a client decodes that before it has the version).
    ``named_since``: first version whose request header has a client id.
    ``answers_any_version``: a version out of range is handled too, instead of closing the connection.
    ``locks_core``: ``core.lock`` is held while ``handle`` runs, where the core has one.
    ``only_of_brokers``: who asks on a listener that is not that of brokers loses the connection.
    ``needs``: what the peer must be allowed; None: it was forgotten, and nobody may use the API where there
    is an authorizer.
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
    only_of_brokers: bool = False
    needs: Needs | None = None

    def request_header_version(self, version: int) -> int:
        if version >= self.flexible_from:
            return 2
        return 1 if version >= self.named_since else 0

    def response_header_version(self, version: int) -> int:
        return 1 if version >= self.flexible_from and self.flexible_response_header else 0
