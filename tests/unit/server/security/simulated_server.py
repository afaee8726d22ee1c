"""A SASL listener on a simulated clock, connections in memory, and one thread that does everything."""

from __future__ import annotations

from typing import Any

from ctrlchan.server._processor import HotHandler, NetworkThreads, TakenRequest
from ctrlchan.server.security.authentication import authenticate
from ctrlchan.server.security.sasl_server import SaslListener, SaslServer
from ctrlchan.server.socket_server import ProcessorCounters
from tests.simulation._operating_system import OperatingSystem, SimulatedClock
from tests.unit.broker.local_broker import client_frame, read_client_response
from tests.unit.server._echo import EchoHandler
from tests.unit.server.security.sasl_clients import AUTHENTICATE, HANDSHAKE
from tests.unit.server.serving import sized

ALICE = b"\0alice\0alice-secret"


class SimulatedServer:
    """One processor. Requests that no hot handler answers get the principal and the frame as answers.

    ``clock``: of the server; None for a new one.
    """

    def __init__(
        self,
        listener: SaslListener | None,
        hot: HotHandler | None = None,
        clock: SimulatedClock | None = None,
        **settings: Any,
    ) -> None:
        self.clock = clock or SimulatedClock(1_000_000)
        self.system = OperatingSystem(0)
        self.system.calm()
        self.lines: list[str] = []
        #: Requests that ``run`` does not take are left here, when it is a list.
        self.held: list[TakenRequest] | None = None
        values: dict[str, Any] = {
            "processors": 1,
            "max_request_bytes": 1 << 20,
            "queue_capacity": 500,
            "idle_ns": 600 * 10**9,
            "send_buffer": -1,
            "authenticators": [None if listener is None else lambda *_: SaslServer(listener)],
            "clock": self.clock,
            "poller": self.system,
        }
        listeners = [("SASL_PLAINTEXT", self.system.listener)]
        self.threads = NetworkThreads(listeners, hot or EchoHandler(), **values | settings)
        self.threads.turn(0)
        self.threads.accept(0)

    def run(self, seconds: float = 0.0) -> None:
        """Do all that is due now and for ``seconds``, a millisecond at a time."""
        for step in range(round(seconds * 1000) + 1):
            if step:
                self.clock.advance(1_000_000)
            while self._turn():
                pass

    def skip(self, seconds: float) -> None:
        """Let time pass at once, then do all that is due."""
        self.clock.advance(round(seconds * 1e9))
        self.run()

    def _turn(self) -> bool:
        """Take a turn of everybody; return whether there was work."""
        self.threads.accept(0)
        self.threads.turn(0)
        request = self.threads.take(0)
        if request is not None:
            if self.held is not None:
                self.held.append(request)
            else:
                self.handle(request)
        # The mail of a handler is opened in the next turn.
        return request is not None or self.threads.turn(0) == 0

    def handle(self, request: TakenRequest) -> None:
        if request.authenticator is None or not authenticate(request, self.lines.append):
            self.serve(request)

    def serve(self, request: TakenRequest) -> None:
        """Answer the request of a peer that may send it."""
        request.answer(f"{request.context.principal} ".encode() + request.frame)

    @property
    def counters(self) -> ProcessorCounters:
        return ProcessorCounters(*self.threads.counters()[0][0])


class SimulatedClient:
    """A connection to a SimulatedServer."""

    def __init__(self, server: SimulatedServer, room: int = 1 << 20) -> None:
        self.server = server
        self.number = server.system.connect(room)
        server.run()

    def send(self, *frames: bytes) -> None:
        self.send_bytes(b"".join(map(sized, frames)))

    def send_bytes(self, data: bytes) -> None:
        self.server.system.write(self.number, data)
        self.server.run()

    def answers(self) -> list[bytes]:
        """Return the answers that have come."""
        system, found = self.server.system, []
        data = system.read(self.number, system.pending(self.number))
        while data:
            size = int.from_bytes(data[:4], "big")
            found.append(data[4 : 4 + size])
            data = data[4 + size :]
        return found

    def answer(self) -> bytes:
        (one,) = self.answers()
        return one

    @property
    def is_closed(self) -> bool:
        return self.server.system.is_closed(self.number)

    def handshake(self, mechanism: str = "PLAIN") -> Any:
        self.send(client_frame(HANDSHAKE, 1, mechanism=mechanism))
        return read_client_response(HANDSHAKE, 1, self.answer())

    def authenticate(self, token: bytes = ALICE) -> Any:
        self.send(client_frame(AUTHENTICATE, 2, auth_bytes=token))
        return read_client_response(AUTHENTICATE, 2, self.answer())

    def log_in(self) -> None:
        self.handshake()
        assert self.authenticate().error_code.value == 0
