"""What becomes of a request: ``Sent`` is the promise, ``Outcome`` its one and only end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from ctrlchan.channel.records import R_ATTEMPTS, R_CORRELATION, R_FIRST_BYTE, R_LAST_BYTE, R_RESPONSE, Report

if TYPE_CHECKING:
    from ctrlchan._codec import ControlResponse
    from ctrlchan.channel.request import ControlRequest

__all__ = [
    "LISTENING",
    "Canceller",
    "Listener",
    "Outcome",
    "OutcomeCallback",
    "OutcomeKind",
    "Sent",
    "Verdict",
]

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
    #: Cancelled, or its time limit was over, while it was queued: nothing of it was sent.
    CANCELLED = "cancelled"


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
        "merged",
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
        merged: int = 1,
    ) -> None:
        self.broker_id = broker_id
        self.request = request
        #: Monotonic nanoseconds: when ``send_request`` took it, and when its end was known here.
        self.enqueued_ns = enqueued_ns
        self.completed_ns = completed_ns
        #: How many sender processes ended with this request on their hands.
        self.sender_deaths = sender_deaths
        #: How many requests went to this broker as one, this among them, and share its response.
        self.merged = merged
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


class Canceller(Protocol):
    """What can cancel requests: the channel they were sent through."""

    def cancel(self, sent: Iterable[Sent]) -> int: ...


class Sent:
    """A request on its way to one broker. Cheap on purpose: a future is made only when it is asked for.

    ``outcome`` is None until the request has ended and its callback, if any, has returned or failed.
    ``await sent`` gives the Outcome; a task that is cancelled there cancels the request while it is queued.
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

    #: Stands for others (``rewriting/joint.py``); never one that users hold.
    joint = False

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
        self._future: _SentFuture | None = None

    @property
    def api_key(self) -> int:
        return self.request.api_key

    @property
    def done(self) -> bool:
        return self.outcome is not None

    @property
    def future(self) -> Future[Outcome]:
        """Resolves to the Outcome; it never holds an exception. ``future.cancel()`` cancels the request when
        it is still queued; other ways to cancel it resolve the future to an Outcome of kind CANCELLED."""
        with LISTENING:
            future = self._future
            if future is None:
                future = self._future = _SentFuture(self)
                if self.outcome is None:
                    self.listen(future)
                else:
                    future.finished(self)
            return future

    def cancel(self) -> bool:
        """True when the request was still queued: it ends as CANCELLED, and nothing of it was or is sent.
        False when a sender process had it in hand, or it had ended. ``channel.cancel`` for many at once."""
        channel = self.request.channel
        return channel is not None and channel.cancel((self,)) == 1

    def __await__(self) -> Generator[Any, None, Outcome]:
        from ctrlchan.channel.aio import outcomes_of

        return (yield from outcomes_of([self]).__await__())[0]

    def listen(self, listener: Listener) -> None:
        """The caller holds LISTENING and has seen that there is no outcome yet."""
        if self.listeners is None:
            self.listeners = [listener]
        else:
            self.listeners.append(listener)

    def __repr__(self) -> str:
        end = "unfinished" if self.outcome is None else self.outcome.kind.value
        return f"<Sent to broker {self.broker_id}: {end} {self.request!r}>"


class _SentFuture(Future[Outcome]):
    """Pending until the request ends; cancelled only where ``cancel`` could cancel the request."""

    def __init__(self, sent: Sent) -> None:
        super().__init__()
        self._sent = sent
        self._to_be_cancelled = False

    def cancel(self) -> bool:
        if self.done():
            return self.cancelled()
        # Before the channel's thread can publish the end.
        self._to_be_cancelled = True
        if not self._sent.cancel():
            self._to_be_cancelled = False
            return self.cancelled()
        return super().cancel()

    def finished(self, sent: Sent) -> None:
        outcome = sent.outcome
        assert outcome is not None
        if self._to_be_cancelled and outcome.kind is OutcomeKind.CANCELLED:
            super().cancel()
        if self.set_running_or_notify_cancel():
            self.set_result(outcome)
