"""ControllerConnections: sends requests to the controller until they are answered.

A request has the highest version that the controller serves, too.
Source: ``kafka.server.NodeToControllerChannelManager`` of Kafka 3.9.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic, monotonic_ns
from typing import Final

from ctrlchan.errors import DecodeError, ErrorCode, KafkaError
from ctrlchan.peers.connection import Address, PeerConnection
from ctrlchan.peers.envelope import is_taken, unwrapped
from ctrlchan.peers.messages import is_refused
from ctrlchan.peers.requests import Answer, OutgoingRequest
from ctrlchan.peers.security import PeerSecurity, SetupError
from ctrlchan.peers.setup_time import SetupTime
from ctrlchan.rate_limit import LogRateLimit
from ctrlchan.server.api import CannotAnswer
from ctrlchan.server.api_names import api_name

__all__ = ["ControllerConnections"]

_LOG: Final = logging.getLogger("ctrlchan.broker")

#: Requests under way at once, each on a connection of its own: CreateTopics waits for its effect there.
_CONNECTIONS: Final = 8
_PAUSE_SECONDS: Final = 0.1
#: What an answer may take longer than the request allows the controller.
_MARGIN_SECONDS: Final = 5.0


class ControllerConnections:
    """Sends requests to the controller, on threads that start when they are needed.

    ``find``: returns the controller's address, None while nobody is known to be the controller; any thread
    calls it. ``client_id``: in request headers. ``security``: of the connections; None for PLAINTEXT.
    ``setup_time``: until a connection is ready; None for the defaults.
    """

    def __init__(
        self,
        find: Callable[[], Address | None],
        client_id: str,
        security: PeerSecurity | None = None,
        setup_time: SetupTime | None = None,
    ) -> None:
        self._find = find
        self._security = security
        self._setup_time = setup_time or SetupTime()
        self._refusals = LogRateLimit()
        self._client_id = client_id.encode()
        self._executor = ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="to-controller")
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._idle: list[PeerConnection] = []
        self._open: set[PeerConnection] = set()

    def send(
        self,
        request: OutgoingRequest,
        timeout: float,
        *,
        once: bool = False,
        envelope: OutgoingRequest | None = None,
    ) -> Future[Answer]:
        """Return the answer to a request.

        ``envelope``: with the request, which is sent in it to a controller that takes it.

        A request is sent again when its connection fails or the answer is NOT_CONTROLLER: the metadata still
        named a former controller. ``once``: it is sent once, on a new connection. The future fails with
        KafkaError: REQUEST_TIMED_OUT after ``timeout`` seconds without another answer, UNSUPPORTED_VERSION
        when the controller serves no version of the request, UNKNOWN_SERVER_ERROR when it refuses the
        envelope; and with CannotAnswer when it cannot read the request in the envelope.
        """
        deadline = monotonic() + timeout + _MARGIN_SECONDS
        try:
            return self._executor.submit(self._exchange, request, envelope, deadline, once)
        except RuntimeError:  # the executor is shut down
            stopped: Future[Answer] = Future()
            stopped.set_exception(_timed_out())
            return stopped

    def stop(self) -> None:
        """Close every connection; requests under way fail."""
        self._stopped.set()
        with self._lock:
            for connection in self._open:
                connection.shut_down()
        self._executor.shutdown(cancel_futures=True)
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def _exchange(
        self, request: OutgoingRequest, envelope: OutgoingRequest | None, deadline: float, once: bool
    ) -> Answer:
        while not self._stopped.is_set() and monotonic() < deadline:
            address = self._find()
            if address is not None:
                try:
                    answer = self._try(address, request, envelope, deadline, once)
                    if answer is not None and (once or not is_refused(request.api_key, *answer)):
                        return answer
                    _LOG.info("%s:%d is not the controller any more", *address)
                except DecodeError as error:
                    _LOG.warning("the answer of the controller at %s:%d: %s", *address, error)
                except SetupError as error:
                    left_out = self._refusals.admit(0, monotonic_ns())
                    if left_out is not None:
                        _LOG.error(
                            "no connection to the controller at %s:%d: %s%s", *address, error, left_out
                        )
                except OSError as error:
                    _LOG.info("no answer of the controller at %s:%d: %s", *address, error)
            if once:
                break
            self._stopped.wait(_PAUSE_SECONDS)
        raise _timed_out()

    def _try(
        self,
        address: Address,
        request: OutgoingRequest,
        envelope: OutgoingRequest | None,
        deadline: float,
        on_new: bool,
    ) -> Answer | None:
        """Send a request once; return None if this is not the controller and refuses the envelope.

        ``on_new``: on a new connection. Raises OSError, DecodeError, KafkaError, CannotAnswer.
        """
        connection = None if on_new else self._take(address)
        if connection is None:
            connection = self._connect(address)
        is_usable = is_wrapped = False
        try:
            if envelope is not None:
                connection.learn_versions(deadline)
                is_wrapped = is_taken(connection.versions)
            sent = envelope if envelope is not None and is_wrapped else request
            answer = connection.ask(sent, deadline)
            is_usable = True
        finally:
            self._give_back(connection, is_usable)
        if answer is None:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"The controller does not serve this version of {api_name(request.api_key)}.",
            )
        return _unwrapped(request, answer) if is_wrapped else answer

    def _take(self, address: Address) -> PeerConnection | None:
        """Return an idle connection to this address, or None."""
        with self._lock:
            idle, self._idle = self._idle, []
            for place, connection in enumerate(idle):
                if connection.address == address:
                    self._idle = idle[:place] + idle[place + 1 :]
                    return connection
        for connection in idle:  # of a former controller
            self._close(connection)
        return None

    def _give_back(self, connection: PeerConnection, is_usable: bool) -> None:
        """Keep a connection for the next request, or close it."""
        with self._lock:
            if is_usable and not self._stopped.is_set():
                self._idle.append(connection)
                return
        self._close(connection)

    def _connect(self, address: Address) -> PeerConnection:
        """Return a new connection. Raises OSError."""
        connection = PeerConnection(
            address, self._client_id, security=self._security, setup_time=self._setup_time
        )
        with self._lock:
            self._open.add(connection)
            stopped = self._stopped.is_set()
        if stopped:
            self._close(connection)
            raise ConnectionAbortedError("the broker stops")
        return connection

    def _close(self, connection: PeerConnection) -> None:
        with self._lock:
            self._open.discard(connection)
        connection.close()


def _unwrapped(request: OutgoingRequest, answer: Answer) -> Answer | None:
    """Return the answer in the answer to an envelope, or None if it comes from no controller.

    Raises KafkaError, CannotAnswer, DecodeError.
    """
    try:
        return unwrapped(request, answer)
    except KafkaError as error:
        if error.code == ErrorCode.NOT_CONTROLLER:
            return None
        name = api_name(request.api_key)
        if error.code == ErrorCode.UNSUPPORTED_VERSION:
            raise CannotAnswer(f"the controller cannot read {name} in an Envelope") from error
        _LOG.error(
            "the controller refuses the Envelope with %s: %s; the broker needs ClusterAction there",
            name,
            ErrorCode.name_of(error.code),
        )
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error


def _timed_out() -> KafkaError:
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The controller did not answer in time.")
