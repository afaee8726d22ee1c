"""The threads that answer the requests of a SocketServer's request queue: ``KafkaRequestHandlerPool``."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from ctrlchan.errors import ProtocolError
from ctrlchan.rate_limit import LogRateLimit
from ctrlchan.server._processor import TakenRequest
from ctrlchan.server.afterwards import Answering
from ctrlchan.server.api import Buffers, CannotAnswer, GoOn, Throttled
from ctrlchan.server.request_context import RequestContext
from ctrlchan.server.security.authentication import authenticate
from ctrlchan.server.socket_server import RequestQueue

__all__ = ["HandlerPool", "ListenerHandler"]

logger = logging.getLogger("ctrlchan.broker")

#: How long a thread waits for a request before it looks whether the server has stopped, in seconds.
_WAIT: Final = 3600.0

#: Kinds of log lines: of requests that closed their connection, of peers that did not prove who they are.
_CLOSED: Final = 0
_REFUSED: Final = 1

_Answer: TypeAlias = Buffers | Throttled | GoOn
#: A frame and who has sent it → answer; empty: nothing is sent.
Serve: TypeAlias = Callable[[bytes | memoryview, RequestContext], _Answer | Future[Buffers] | Future[_Answer]]


class ListenerHandler(NamedTuple):
    """What answers the requests of a listener. ``owner``: whose listener it is, for log lines: "broker 1"."""

    owner: str
    serve: Serve


class _HandlerThread:
    """One thread, and for how many seconds it had no request (less than 0 while it waits for one)."""

    def __init__(self, run: Callable[[int], object], name: str, number: int) -> None:
        self.started = time.perf_counter()
        self.idle = 0.0
        self.thread = threading.Thread(target=run, args=[number], name=f"{name}-{number}", daemon=True)


class HandlerPool:
    """Threads that take requests and send the answers to them, then do the work of ``after_answer``.

    ``handlers``: of each listener of the server, in their order. The threads also answer peers that
    authenticate themselves (``security/authentication.py``). An exception of ``serve`` closes the connection.
    ``do_left_work``: called when requests that a hot handler has answered have left work. The threads end
    when the server has stopped. ``resize`` starts and ends some. ``name``: of the threads, before a number.
    """

    def __init__(
        self,
        requests: RequestQueue,
        handlers: Sequence[ListenerHandler],
        threads: int,
        do_left_work: Callable[[], object] | None = None,
        name: str = "kafka-request-handler",
    ) -> None:
        self._requests = requests
        self._name = name
        self._do_left_work = do_left_work
        self._handlers = tuple(handlers)
        self._log_limit = LogRateLimit()
        self._logging = threading.Lock()
        #: Guards the number of threads. Whoever holds it waits for nothing.
        self._sizing = threading.Lock()
        self._wanted = threads
        self._is_started = False
        self._threads: dict[int, _HandlerThread] = {}

    def start(self) -> None:
        """Start the threads."""
        with self._sizing:
            self._is_started = True
            self._start_missing()

    def resize(self, threads: int) -> None:
        """Have another number of threads (num.io.threads). A thread ends after the request it handles."""
        with self._sizing:
            self._wanted = threads
            if self._is_started:
                self._start_missing()
        self._requests.wake()

    def _start_missing(self) -> None:
        """Start threads until there are enough. The lock is held."""
        for number in range(self._wanted):
            if number not in self._threads and len(self._threads) < self._wanted:
                made = self._threads[number] = _HandlerThread(self._run, self._name, number)
                made.thread.start()

    def _may_end(self, number: int) -> bool:
        """Return whether a thread is one too many; it counts no more then."""
        if len(self._threads) <= self._wanted:
            return False
        with self._sizing:
            if len(self._threads) <= self._wanted:
                return False
            del self._threads[number]
            return True

    @property
    def size(self) -> int:
        """The number of threads."""
        return len(self._threads)

    def join(self, timeout: float) -> bool:
        """Wait until the threads have ended: the server has stopped. Return whether they did."""
        deadline = time.monotonic() + timeout
        with self._sizing:
            self._is_started = False
            threads = [one.thread for one in self._threads.values()]
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    @property
    def idle_share(self) -> float:
        """The share of time in which the threads had no request (RequestHandlerAvgIdlePercent).

        It is no more than the share of time in which no request waited: a thread that waits for
        its turn is not idle.
        """
        with self._sizing:
            threads = list(self._threads.values())
        now = time.perf_counter()
        seconds = sum(now - one.started for one in threads)
        if not seconds:
            return 1.0
        # Of a thread that waits, the time is to be added.
        idle = sum(one.idle if one.idle >= 0 else one.idle + now for one in threads)
        without_requests = self._requests.idle_ns / 1e9 / max(now - one.started for one in threads)
        return max(0.0, min(1.0, idle / seconds, without_requests))

    def _run(self, number: int) -> None:
        own = self._threads[number]
        while not self._may_end(number):
            own.idle -= time.perf_counter()
            request = self._requests.take(_WAIT)
            own.idle += time.perf_counter()
            if request is not None:
                with Answering():
                    self._handle(request)
                # Its connection is closed when it was not ended: not only with the next request.
                del request
            elif self._requests.take_work():
                self._work()
            elif self._requests.closed:
                return

    def _work(self) -> None:
        if self._do_left_work is not None:
            try:
                self._do_left_work()
            except Exception:
                logger.exception("work that answered requests have left failed")

    def _handle(self, request: TakenRequest) -> None:
        try:
            if request.authenticator is not None and authenticate(
                request, partial(self._log_refused, request)
            ):
                return
            answer = self._handlers[request.listener].serve(request.frame, request.context)
            if not isinstance(answer, Future):
                _send(request, answer)
                return
        except BaseException as error:  # noqa: BLE001  (one request that fails must not end the thread)
            self._fail(request, error)
            return
        # What ends the Future may need memory that this request has.
        request.return_memory()
        answer.add_done_callback(lambda done: self._send_later(request, done))

    def _send_later(self, request: TakenRequest, done: Future[Buffers] | Future[_Answer]) -> None:
        try:
            _send(request, done.result())
        except BaseException as error:  # noqa: BLE001  (as above; also a Future that was cancelled)
            self._fail(request, error)

    def _fail(self, request: TakenRequest, error: BaseException) -> None:
        if isinstance(error, ProtocolError):
            level = logging.INFO if isinstance(error, CannotAnswer) else logging.WARNING
            self._log(request, level, "closing the connection of %s: %s", request.context, error)
        else:
            self._log(
                request,
                logging.ERROR,
                "closing the connection of %s: %r",
                request.context,
                error,
                exc_info=error,
            )
        request.close()

    def _log_refused(self, request: TakenRequest, text: str) -> None:
        self._log(request, logging.INFO, "%s", text, key=_REFUSED)

    def _log(
        self,
        request: TakenRequest,
        level: int,
        message: str,
        *arguments: object,
        exc_info: BaseException | None = None,
        key: int = _CLOSED,
    ) -> None:
        """Write a line about a client, unless there were too many of its kind (``key``) lately."""
        if not logger.isEnabledFor(level):
            return
        with self._logging:
            left_out = self._log_limit.admit(key, time.monotonic_ns())
        if left_out is not None:
            owner = self._handlers[request.listener].owner
            logger.log(level, f"%s: {message}%s", owner, *arguments, left_out, exc_info=exc_info)


def _send(request: TakenRequest, answer: _Answer) -> None:
    mute_ms = 0
    if isinstance(answer, Throttled):
        answer, mute_ms = answer
    if isinstance(answer, GoOn):
        request.go_on(answer.answer, answer.identity)
    elif answer:
        request.answer(answer, mute_ms)
    else:
        request.skip(mute_ms)
