"""How long ZooKeeper takes to answer the requests of a session."""

from __future__ import annotations

from time import monotonic_ns
from typing import Any, Final

from kazoo.exceptions import AuthFailedError, ConnectionClosedError, ConnectionLoss, ZookeeperError
from kazoo.exceptions import SessionExpiredError as KazooSessionExpired
from kazoo.handlers.threading import AsyncResult

__all__ = ["RequestTimes", "TimedResult"]

#: What kazoo says itself, without an answer of ZooKeeper.
_NO_ANSWER: Final = (AuthFailedError, ConnectionClosedError, ConnectionLoss, KazooSessionExpired)


class RequestTimes:
    """How many requests were answered, and their nanoseconds from the sending to the answer.

    Written by the connection's thread alone.
    """

    __slots__ = ("count", "total_ns")

    def __init__(self) -> None:
        self.count = 0
        self.total_ns = 0


class TimedResult(AsyncResult):  # type: ignore[misc]
    """kazoo's result of a request, whose time counts when there is an answer."""

    def __init__(self, handler: Any, times: RequestTimes) -> None:
        super().__init__(handler)
        self._times = times
        self.sent_ns = 0

    def set(self, value: Any = None) -> None:
        self._count()
        super().set(value)

    def set_exception(self, exception: BaseException) -> None:
        if isinstance(exception, ZookeeperError) and not isinstance(exception, _NO_ANSWER):
            self._count()
        super().set_exception(exception)

    def _count(self) -> None:
        self._times.total_ns += monotonic_ns() - self.sent_ns
        self._times.count += 1
