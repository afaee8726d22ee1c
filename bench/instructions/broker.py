"""A broker without threads for its requests: processor and handlers take their turns on this thread.

Everything is the product's: listener, processor, logs, coordinators. One connection sends requests that are
all in the kernel's buffers before the first turn, so each run reads and answers them in the same steps.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol

from bench.instructions.marks import counted
from ctrlchan._codec import LEADER_AND_ISR, UPDATE_METADATA
from ctrlchan.broker.config.broker_config import BrokerConfig
from ctrlchan.broker.server import BrokerServer
from ctrlchan.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.unit.broker.local_broker import LiveBroker, Part, control_frame

__all__ = ["TOPIC", "Client", "TurnedBroker", "connected", "connected_securely", "serving"]

TOPIC: Final = "measured"
_ID: Final = 1
_HOST: Final = "127.0.0.1"
#: One partition of each topic; records have a fixed time and stay; a first member does not wait for others.
_CONFIGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
_RECEIVE: Final = 1 << 20


class _Socket(Protocol):
    """A socket, or one of Python's ssl."""

    def sendall(self, data: bytes) -> None: ...
    def recv(self, size: int) -> bytes: ...
    def setblocking(self, flag: bool) -> None: ...
    def close(self) -> None: ...


class TurnedBroker:
    """Takes the turns of a broker that was started and does not serve by itself."""

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        self._threads = server.server.threads

    def accept(self, listener: int = 0) -> None:
        """Accept what has connected to a listener."""
        self._threads.accept(listener)

    def turn(self, processor: int = 0) -> None:
        """Wait until a processor has something to do; then handle what it has queued for handler threads."""
        self._threads.turn(processor)
        while (request := self._threads.take(0)) is not None:
            # A handler thread does the same.
            self.server.pool._handle(request)
        if self._threads.take_work():
            self.server.end_txn.settle()


class Client:
    """A connection whose requests the turns of a broker answer. ``processor``: the one of its listener."""

    def __init__(self, broker: TurnedBroker, connection: _Socket, processor: int = 0) -> None:
        self._broker = broker
        self._connection = connection
        self._processor = processor
        self._received = bytearray()
        connection.setblocking(False)

    def close(self) -> None:
        self._connection.close()

    def ask(self, frame: bytes) -> bytes:
        """Send a request, and return the answer. Nothing is counted."""
        return self._exchange([frame], lambda work: work())[0]

    def measure(self, frames: Sequence[bytes]) -> list[bytes]:
        """Send requests, all at once; count what the broker does until it has answered them.

        Return the answers. The bytes must fit into the buffers of the connection.
        """
        return self._exchange(frames, counted)

    def _exchange(self, frames: Sequence[bytes], call: Callable[[Callable[[], None]], object]) -> list[bytes]:
        self._connection.sendall(b"".join(len(one).to_bytes(4, "big") + one for one in frames))
        answers: list[bytes] = []
        while len(answers) < len(frames):
            call(lambda: self._broker.turn(self._processor))
            answers += self._take()
        return answers

    def _take(self) -> list[bytes]:
        """Return the whole answers that have come."""
        try:
            while data := self._connection.recv(_RECEIVE):
                self._received += data
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        else:
            raise ConnectionError("the broker has closed the connection")
        answers = []
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                break
            answers.append(bytes(self._received[4:end]))
            del self._received[:end]
        return answers


@contextmanager
def serving(secure_listener: Mapping[str, str] | None = None) -> Iterator[TurnedBroker]:
    """Start a broker that leads TOPIC and the internal topics.

    ``secure_listener``: the configs of a second listener, SECURE; None: there is none.
    """
    more = [] if secure_listener is None else [("SECURE", _HOST, 0)]
    with TemporaryDirectory() as folder:
        config = BrokerConfig(
            id=_ID,
            log_dirs=(folder,),
            more_listeners=more,
            configs=_CONFIGS | dict(secure_listener or {}),
        )
        server = BrokerServer(config)
        server.start()
        try:
            server.core.groups.start()
            server.core.transactions.start()
            broker = TurnedBroker(server)
            with connected(broker) as client:
                _lead(client, [TOPIC, OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
            yield broker
        finally:
            server.stop()


def _lead(client: Client, topics: Sequence[str]) -> None:
    """Do what a controller does when topics are created."""
    parts = [Part(topic, 0) for topic in topics]
    live = [LiveBroker(_ID)]
    for api_key, version in ((UPDATE_METADATA, 8), (LEADER_AND_ISR, 7)):
        client.ask(control_frame(api_key, version, parts, broker_epoch=-1, live=live))


@contextmanager
def connected(broker: TurnedBroker) -> Iterator[Client]:
    """Connect to the first listener."""
    with closing(Client(broker, _socket_to(broker, 0))) as client:
        yield client


@contextmanager
def connected_securely(broker: TurnedBroker, ca_file: Path) -> Iterator[Client]:
    """Connect to the listener SECURE, and end the handshake."""
    context = ssl.create_default_context(cafile=ca_file)
    with context.wrap_socket(
        _socket_to(broker, 1), server_hostname="localhost", do_handshake_on_connect=False
    ) as connection:
        connection.setblocking(False)
        while True:
            try:
                connection.do_handshake()
                break
            except ssl.SSLWantReadError:
                broker.turn(1)
        yield Client(broker, connection, 1)


def _socket_to(broker: TurnedBroker, listener: int) -> socket.socket:
    connection = socket.create_connection((_HOST, broker.server.server.listener_ports[listener]))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    broker.accept(listener)
    return connection
