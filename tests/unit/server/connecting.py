"""Acceptors of several listeners on one stopped clock, which only the waits of ``run`` move."""

from __future__ import annotations

import heapq
import ipaddress
from collections import Counter
from collections.abc import Generator, Sequence
from math import isnan
from typing import Final

from ctrlchan.server._connection_quotas import Admission, ConnectionQuotas
from tests.simulation._operating_system import SimulatedClock

UNLIMITED: Final = 2**31 - 1
EXTERNAL, ADMIN, REPLICATION = range(3)
LISTENERS: Final = (EXTERNAL, ADMIN, REPLICATION)


def packed(host: str) -> bytes:
    address = ipaddress.ip_address(host)
    return address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed


#: From which connections to each listener come, where no other address is named.
IPS: Final = tuple(packed(f"192.168.1.{1 + listener}") for listener in LISTENERS)
KNOWN, UNKNOWN = packed("192.168.10.0"), packed("192.168.2.0")

Acceptor = Generator[int, None, None]


class Connecting:
    """Three listeners, of which REPLICATION is protected; two samples of a second, as in Kafka's tests."""

    def __init__(self, *, listeners: int = 3, samples: int = 2) -> None:
        self.clock = SimulatedClock(1_000_000)
        protected = REPLICATION if listeners > 2 else -1
        self.quotas = ConnectionQuotas(listeners, protected=protected, samples=samples, clock=self.clock)
        #: For how many milliseconds connections of each listener have waited.
        self.waited: Counter[int] = Counter()
        #: Connections that were not admitted, by listener, with the Admission.
        self.refused: Counter[tuple[int, Admission]] = Counter()
        self.wait_times: list[int] = []

    def limit(
        self,
        *,
        most: int = UNLIMITED,
        rate: int = UNLIMITED,
        own_most: int | None = None,
        own_rate: int | None = None,
    ) -> None:
        """Limit the server, and each listener: as the server without a limit of its own."""
        own = (most if own_most is None else own_most, rate if own_rate is None else own_rate)
        self.quotas.limit(most, rate, [own] * self.quotas.listener_count)

    def acceptor(self, listener: int, number: int, every_ms: int = 0, ip: bytes | None = None) -> Acceptor:
        """Accept connections that come every so many milliseconds; a wait delays those that come later."""
        ip = ip or IPS[listener]
        next_ms = self.clock.now_ms + every_ms
        for _ in range(number):
            wait_ms = self.quotas.arrive(listener)
            self.wait_times.append(wait_ms)
            if wait_ms:
                self.waited[listener] += wait_ms
                yield wait_ms
            admission, _ = self.quotas.admit(listener, ip)
            while admission is Admission.NO_SLOT:
                # It stands until somebody calls ``release``.
                yield -1
                admission, _ = self.quotas.admit(listener, ip)
            if admission is not Admission.ADMITTED:
                self.refused[listener, admission] += 1
            if next_ms > self.clock.now_ms:
                yield next_ms - self.clock.now_ms
            next_ms += every_ms

    def run(self, *acceptors: Acceptor) -> None:
        """Let acceptors run at the same time, until all have ended."""
        due = [(self.clock.now_ms, number) for number in range(len(acceptors))]
        heapq.heapify(due)
        while due:
            at_ms, number = heapq.heappop(due)
            self.clock.advance((at_ms - self.clock.now_ms) * 1_000_000)
            wait_ms = next(acceptors[number], None)
            if wait_ms is not None:
                assert wait_ms >= 0, "a connection waits for another one to be closed"
                heapq.heappush(due, (at_ms + wait_ms, number))

    def accept(self, listener: int, number: int, every_ms: int = 0, ip: bytes | None = None) -> None:
        self.run(self.acceptor(listener, number, every_ms, ip))

    def stuck(self, listener: int) -> Acceptor:
        """Return the acceptor of a connection for which there is no room."""
        acceptor = self.acceptor(listener, 1)
        assert not self.goes_on(acceptor)
        return acceptor

    def goes_on(self, acceptor: Acceptor) -> bool:
        """Return whether a connection that had no room has some now."""
        return next(acceptor, None) != -1

    def open(self, listener: int) -> int:
        return self.quotas.open_of_ip(IPS[listener])

    def all_open(self) -> list[int]:
        return [self.open(listener) for listener in LISTENERS]

    def release(self, listener: int, number: int = 1) -> None:
        for _ in range(number):
            self.quotas.release(listener, IPS[listener])

    def seconds(self, since_ms: int) -> float:
        return (self.clock.now_ms - since_ms) / 1000

    def average_waits(self) -> list[float]:
        """Return the average throttle time of each listener; 0: no connection has waited."""
        return [0 if isnan(wait) else wait for _, wait, _ in self.quotas.rates_now()[1]]

    def average_closes(self) -> list[float]:
        """The same of connections that are closed for their address."""
        return [0 if isnan(close) else close for _, _, close in self.quotas.rates_now()[1]]

    def rates(self) -> Sequence[float]:
        """Return the rate of the server, then those of the listeners."""
        server, listeners = self.quotas.rates_now()
        return [server, *(rate for rate, _, _ in listeners)]
