"""What becomes of a request: ``Sent`` is the promise, ``Outcome`` its one and only end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from ctrlchan.channel.records import R_ATTEMPTS, R_CORRELATION, R_FIRST_BYTE, R_LAST_BYTE, R_RESPONSE, Report

if TYPE_CHECKING:
    from ctrlchan._codec import ControlResponse
    from ctrlchan.channel.request import ControlRequest

__all__ = ["LISTENING", "Listener", "Outcome", "OutcomeCallback", "OutcomeKind", "Sent", "Verdict"]

#: Held while an outcome is published and while somebody begins to listen for one, so that nobody misses it.
LISTENING: Final = threading.Lock()


class OutcomeKind(Enum):
    """How a request ended; every request ends in exactly one of these."""

    #: The broker applied all of it.
    ACKNOWLEDGED = "acknowledged"
    #: The broker applied the request; some partitions have an error of their own.
    PARTITION_ERRORS = "partition errors"
    #: Stale controller epoch (11), or stale broker epoch (77); also what was not sent because of an 11.
    FENCED = "fenced"
    #: The broker is not, or is no longer, among those of the channel, or the channel was shut down.
    BROKER_GONE = "broker gone"
    #: Larger than ``max_request_bytes``; nothing was sent.
    TOO_LARGE = "too large"
    #: The broker answered with any other error.
    REFUSED = "refused"


class Verdict(NamedTuple):
    """The end of a request without its circumstances; equal answers share one."""

    kind: OutcomeKind
    error_code: int = 0
    response: ControlResponse | None = None
    detail: str = ""


class Outcome:
    """The end of one request to one broker."""

    __slots__ = (
        "_report",
        "_verdict",
        "broker_id",
        "completed_ns",
        "enqueued_ns",
        "request",
        "sender_deaths",
    )

    def __init__(
        self,
        broker_id: int,
        request: ControlRequest,
        verdict: Verdict,
        report: Report | None,
        enqueued_ns: int,
        completed_ns: int,
        sender_deaths: int,
    ) -> None:
        self.broker_id = broker_id
        self.request = request
        #: Monotonic nanoseconds: when ``send_request`` took it, and when its end was known here.
        self.enqueued_ns = enqueued_ns
        self.completed_ns = completed_ns
        #: How many sender processes ended with this request on their hands.
        self.sender_deaths = sender_deaths
        self._verdict = verdict
        self._report = report

    @property
    def kind(self) -> OutcomeKind:
        return self._verdict.kind

    @property
    def error_code(self) -> int:
        """The response's own error code; 0 when there was no response."""
        return self._verdict.error_code

    @property
    def response(self) -> ControlResponse | None:
        """The decoded response. Equal responses may be one object: treat it as read-only."""
        return self._verdict.response

    @property
    def detail(self) -> str:
        """Why it ended so, where neither kind nor error code says it."""
        return self._verdict.detail

    @property
    def api_key(self) -> int:
        return self.request.api_key

    @property
    def version(self) -> int:
        return self.request.version

    @property
    def rows(self) -> int:
        """Partitions the request spoke of."""
        return self.request.rows

    @property
    def bytes(self) -> int:
        """Size of the whole frame, sent or not."""
        return self.request.size

    @property
    def attempts(self) -> int:
        """How often the request was tried: 0 when it never left the queue."""
        return self.sender_deaths + (0 if self._report is None else self._report[R_ATTEMPTS])

    @property
    def correlation_id(self) -> int:
        """On the connection that brought the response; -1 without a response."""
        return -1 if self._report is None else self._report[R_CORRELATION]

    @property
    def first_byte_ns(self) -> int:
        """Monotonic nanoseconds when the last attempt's first byte was written; 0 without a response."""
        return 0 if self._report is None else self._report[R_FIRST_BYTE]

    @property
    def last_byte_ns(self) -> int:
        """Monotonic nanoseconds when the last attempt's last byte was written; 0 without a response."""
        return 0 if self._report is None else self._report[R_LAST_BYTE]

    @property
    def response_ns(self) -> int:
        """Monotonic nanoseconds when the response was complete; 0 without a response."""
        return 0 if self._report is None else self._report[R_RESPONSE]

    def __repr__(self) -> str:
        error = f" error_code={self.error_code}" if self.error_code else ""
        detail = f" ({self.detail})" if self.detail else ""
        return f"<Outcome broker {self.broker_id}: {self.kind.value}{error}{detail} {self.request!r}>"


OutcomeCallback: TypeAlias = Callable[[Outcome], None]


class Listener(Protocol):
    """Is told once, on the channel's thread, that a request has its outcome."""

    def finished(self, sent: Sent) -> None: ...


class Sent:
    """A request on its way to one broker. Cheap on purpose: a future is made only when it is asked for.

    ``outcome`` is None until the request has ended and its callback, if any, has returned or failed.
    """

    __slots__ = (
        "_future",
        "broker_id",
        "callback",
        "enqueued_ns",
        "listeners",
        "outcome",
        "request",
        "sender_deaths",
        "sequence",
    )

    def __init__(
        self, broker_id: int, request: ControlRequest, callback: OutcomeCallback | None, enqueued_ns: int
    ) -> None:
        self.broker_id = broker_id
        self.request = request
        self.callback = callback
        self.enqueued_ns = enqueued_ns
        self.sequence = 0
        self.sender_deaths = 0
        self.outcome: Outcome | None = None
        #: Changed only while LISTENING is held.
        self.listeners: list[Listener] | None = None
        self._future: Future[Outcome] | None = None

    @property
    def api_key(self) -> int:
        return self.request.api_key

    @property
    def done(self) -> bool:
        return self.outcome is not None

    @property
    def future(self) -> Future[Outcome]:
        """Resolves to the Outcome; it never holds an exception and cannot be cancelled."""
        with LISTENING:
            future = self._future
            if future is None:
                future = self._future = Future()
                future.set_running_or_notify_cancel()
                if self.outcome is None:
                    self.listen(_Resolve(future))
                else:
                    future.set_result(self.outcome)
            return future

    def listen(self, listener: Listener) -> None:
        """The caller holds LISTENING and has seen that there is no outcome yet."""
        if self.listeners is None:
            self.listeners = [listener]
        else:
            self.listeners.append(listener)

    def __repr__(self) -> str:
        end = "unfinished" if self.outcome is None else self.outcome.kind.value
        return f"<Sent to broker {self.broker_id}: {end} {self.request!r}>"


class _Resolve:
    """Hands an outcome on to a future."""

    __slots__ = ("_future",)

    def __init__(self, future: Future[Outcome]) -> None:
        self._future = future

    def finished(self, sent: Sent) -> None:
        if sent.outcome is not None:
            self._future.set_result(sent.outcome)
