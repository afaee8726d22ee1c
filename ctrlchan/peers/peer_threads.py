"""PeerThreads: a thread for each other node, which sends it one request at a time.

A request is made when it can be sent, so it carries everything that has gathered meanwhile. A node that is
slow or dead delays its own requests alone. A request whose connection ends before the answer comes may be
sent twice: requests must allow that.
Source: ``org.apache.kafka.server.util.InterBrokerSendThread`` of Kafka 3.9, which has one thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Generic, TypeVar

from ctrlchan.errors import CtrlchanError, ErrorCode, KafkaError
from ctrlchan.peers.connection import Address, PeerConnection
from ctrlchan.peers.requests import Answer, OutgoingRequest
from ctrlchan.peers.security import PeerSecurity
from ctrlchan.peers.setup_time import SetupTime
from ctrlchan.server.api_names import api_name

__all__ = ["PeerRequest", "PeerThreads"]

T = TypeVar("T")

logger = logging.getLogger("ctrlchan.broker")

#: Seconds after which a thread without requests closes its connection and ends.
_IDLE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class PeerRequest(Generic[T]):
    """A request, and who hears of its answer: one of ``answered`` and ``failed`` is called, once.

    ``decode`` returns what is in the answer; it raises DecodeError. ``failed`` gets OSError for a connection
    that failed or a node without an address, DecodeError for an answer that cannot be read, and KafkaError
    UNSUPPORTED_VERSION if the node serves no version of the request.
    """

    request: OutgoingRequest
    decode: Callable[[Answer], T]
    answered: Callable[[T], None]
    failed: Callable[[Exception], None]


class PeerThreads:
    """Sends requests to nodes. All methods are thread-safe.

    ``name``: begins the names of the threads, which the node's number ends. ``client_id``: in request
    headers. ``find_address`` returns where a node listens, or None. ``next_request`` returns the request that
    a node gets now, or None; the node's thread calls it when ``wake`` was called, and after each answer.
    ``timeout``: seconds that an answer may take. ``security``: of the connections; None for PLAINTEXT.
    ``setup_time``: makes the times for the connections to one node.
    """

    def __init__(
        self,
        name: str,
        client_id: str,
        find_address: Callable[[int], Address | None],
        next_request: Callable[[int], PeerRequest[Any] | None],
        timeout: float,
        *,
        idle_seconds: float = _IDLE_SECONDS,
        security: PeerSecurity | None = None,
        setup_time: Callable[[], SetupTime] = SetupTime,
    ) -> None:
        self._name = name
        self._client_id = client_id.encode()
        self._find_address = find_address
        self._next_request = next_request
        self._timeout = timeout
        self._idle_seconds = idle_seconds
        self._security = security
        self._setup_time = setup_time
        #: Guards the threads and what each of them waits for.
        self._lock = threading.Lock()
        self._threads: dict[int, _PeerThread] = {}
        self._stopped = False

    def wake(self, node: int) -> None:
        """Have the thread of a node ask for its next request; start the thread if there is none."""
        with self._lock:
            if self._stopped:
                return
            thread = self._threads.get(node)
            if thread is None:
                thread = _PeerThread(
                    f"{self._name}-{node}",
                    node,
                    self._lock,
                    self._forget,
                    self._client_id,
                    self._find_address,
                    self._next_request,
                    self._timeout,
                    self._idle_seconds,
                    self._security,
                    self._setup_time(),
                )
                # It waits for the lock before it does anything. Without a thread the next call tries again.
                thread.start()
                self._threads[node] = thread
            thread.wake()

    @property
    def is_busy(self) -> bool:
        """Whether there are threads, each with a request under way or idle for a short time."""
        return bool(self._threads)

    def check_addresses(self) -> None:
        """Let requests under way fail whose node listens elsewhere now, or has no address any more.

        A node that was stopped answers nothing and closes nothing, so that its requests would wait for their
        timeout.
        """
        with self._lock:
            threads = list(self._threads.items())
        for node, thread in threads:
            address = self._find_address(node)
            with self._lock:
                thread.check_address(address)

    def stop(self) -> None:
        """Close every connection and end the threads; requests under way fail."""
        with self._lock:
            self._stopped = True
            threads = list(self._threads.values())
            for thread in threads:
                thread.end()
        for thread in threads:
            thread.join()

    def _forget(self, node: int) -> None:
        """Forget a thread that ends. Requires the lock."""
        self._threads.pop(node, None)


class _PeerThread(threading.Thread):
    """Sends the requests of one node."""

    def __init__(
        self,
        name: str,
        node: int,
        lock: threading.Lock,
        forget: Callable[[int], None],
        client_id: bytes,
        find_address: Callable[[int], Address | None],
        next_request: Callable[[int], PeerRequest[Any] | None],
        timeout: float,
        idle_seconds: float,
        security: PeerSecurity | None,
        setup_time: SetupTime,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._node = node
        self._changed = threading.Condition(lock)
        self._forget = forget
        self._client_id = client_id
        self._find_address = find_address
        self._next_request = next_request
        self._timeout = timeout
        self._idle_seconds = idle_seconds
        self._security = security
        self._setup_time = setup_time
        self._woken = False
        self._ended = False
        self._connection: PeerConnection | None = None

    # -- called with the lock held

    def wake(self) -> None:
        self._woken = True
        self._changed.notify()

    def end(self) -> None:
        self._ended = True
        self._changed.notify()
        if self._connection is not None:
            self._connection.shut_down()

    def check_address(self, address: Address | None) -> None:
        if self._connection is not None and self._connection.address != address:
            self._connection.shut_down()

    # -- the thread

    def run(self) -> None:
        try:
            while self._wait():
                self._send_all()
        finally:
            self._close()

    def _wait(self) -> bool:
        """Wait until the thread is woken; return False when it ends."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._woken or self._ended, self._idle_seconds):
                self._ended = True
            self._woken = False
            if self._ended:
                self._forget(self._node)
            return not self._ended

    def _send_all(self) -> None:
        while not self._ended:
            try:
                request = self._next_request(self._node)
            except Exception:
                logger.exception("%s: no request can be made", self.name)
                return
            if request is None:
                return
            self._send(request)

    def _send(self, one: PeerRequest[Any]) -> None:
        answer, failure = None, None
        try:
            answer = one.decode(self._exchange(one.request))
        except Exception as error:
            failure = error
            if not (isinstance(error, KafkaError) and error.code == ErrorCode.UNSUPPORTED_VERSION):
                # Of a connection with an answer that cannot be read, nothing is known any more.
                self._close()
            if not isinstance(error, OSError | CtrlchanError):
                logger.exception("%s: %s", self.name, api_name(one.request.api_key))
        try:
            if failure is None:
                one.answered(answer)
            else:
                one.failed(failure)
        except Exception:
            logger.exception("%s: after a %s", self.name, api_name(one.request.api_key))

    def _exchange(self, request: OutgoingRequest) -> Answer:
        """Return the answer to a request. Raises OSError, DecodeError, KafkaError."""
        deadline = monotonic() + self._timeout
        connection, is_new = self._connect()
        try:
            return self._ask(connection, request, deadline)
        except ConnectionError:
            # The node may have closed the connection while it was idle.
            self._close()
            if is_new or self._ended:
                raise
        connection, _ = self._connect()
        return self._ask(connection, request, deadline)

    def _ask(self, connection: PeerConnection, request: OutgoingRequest, deadline: float) -> Answer:
        answer = connection.ask(request, deadline)
        if answer is None:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"broker {self._node} serves no version of {api_name(request.api_key)} that can be sent",
            )
        return answer

    def _connect(self) -> tuple[PeerConnection, bool]:
        """Return the connection to where the node listens now, and whether it is new. Raises OSError."""
        address = self._find_address(self._node)
        if address is None:
            raise ConnectionError(f"broker {self._node} has no address")
        connection = self._connection
        if connection is not None:
            if connection.address == address:
                return connection, False
            self._close()
        connection = PeerConnection(
            address, self._client_id, security=self._security, setup_time=self._setup_time
        )
        with self._changed:
            self._connection = connection
            if self._ended:
                raise ConnectionAbortedError("the broker stops")
        return connection, True

    def _close(self) -> None:
        with self._changed:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
