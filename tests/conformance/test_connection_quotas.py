"""Connections that come and go under random limits, beside Kafka's own ConnectionQuotas on the same clock."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan, nan
from random import Random
from typing import Final

import pytest

from ctrlchan.server._connection_quotas import Admission, ConnectionQuotas
from tests.conformance.java_process import JavaProcess
from tests.kafka.requirement import require_kafka
from tests.simulation._operating_system import SimulatedClock
from tests.unit.server.connecting import UNLIMITED, packed

NAMES: Final = ("EXTERNAL", "ADMIN", "REPLICATION")
ADDRESSES: Final = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "192.168.1.1")
CONNECTIONS: Final = (3, 10, 25, UNLIMITED)
RATES: Final = (1, 2, 5, UNLIMITED)
STEPS_MS: Final = (0, 0, 0, 1, 9, 100, 500, 1_000, 1_001, 4_000, 60_000)
STEPS: Final = 250
SEEDS: Final = 6
WORDS: Final = {
    Admission.ADMITTED: "admitted",
    Admission.NO_SLOT: "full",
    Admission.TOO_MANY_OF_IP: "many",
    Admission.IP_THROTTLED: "throttled",
}


@pytest.fixture(scope="module")
def process() -> Iterator[JavaProcess]:
    """Kafka's own class; skipped without Java or Maven, failed in CI."""
    require_kafka()
    process = JavaProcess("ConnectionOracle", "StoppedTime", shows_errors=True)
    yield process
    process.close()


class Both:
    """The limits of both sides, and their connections."""

    def __init__(self, process: JavaProcess, random: Random, listeners: int) -> None:
        samples = random.choice((2, 11))
        self._process = process
        self._random = random
        self._listeners = listeners
        self._server = [UNLIMITED, UNLIMITED]
        self._own = [(UNLIMITED, UNLIMITED)] * listeners
        self._ip_rates: dict[str, int] = {}
        self._others = UNLIMITED
        self._open: list[tuple[int, str]] = []
        self.clock = SimulatedClock(1_000_000)
        self.quotas = ConnectionQuotas(listeners, protected=listeners - 1, samples=samples, clock=self.clock)
        self._ask("begin", listeners, samples)

    def _ask(self, *words: object) -> str:
        return self._process.ask("\t".join(map(str, words)))

    def change_limits(self) -> None:
        """Change one of them."""
        random = self._random
        kind = random.choice(("server", "listener", "ips", "ip rate", "ip rate"))
        if kind == "server":
            self._server = [random.choice(CONNECTIONS), random.choice(RATES)]
            self._ask("broker", *self._server)
        elif kind == "listener":
            listener = random.randrange(self._listeners)
            self._own[listener] = random.choice(CONNECTIONS), random.choice(RATES)
            self._ask("listener", NAMES[listener], *self._own[listener])
        elif kind == "ips":
            others = random.choice(CONNECTIONS)
            limits = {one: random.choice((0, *CONNECTIONS)) for one in random.sample(ADDRESSES, 2)}
            self._ask("ips", others, *(word for limit in limits.items() for word in limit))
            self.quotas.limit_ips(others, [(packed(one), limit) for one, limit in limits.items()])
        else:
            address, rate = random.choice(("-", *ADDRESSES)), random.choice(RATES)
            self._ask("ip_rate", address, "-" if rate == UNLIMITED else rate)
            if address == "-":
                self._others = rate
            elif rate == UNLIMITED:
                self._ip_rates.pop(address, None)
            else:
                self._ip_rates[address] = rate
            self.quotas.limit_ip_rates(self._others, [(packed(a), r) for a, r in self._ip_rates.items()])
        self.quotas.limit(self._server[0], self._server[1], self._own)

    def connect(self) -> str:
        """Let a connection come; return what became of it."""
        listener, address = self._random.randrange(self._listeners), self._random.choice(ADDRESSES)
        theirs = self._ask("connect", self.clock.now_ms, NAMES[listener], address)
        waited = self.quotas.arrive(listener)
        self.clock.advance(waited * 1_000_000)
        admission, value = self.quotas.admit(listener, packed(address))
        shown = value if admission in (Admission.TOO_MANY_OF_IP, Admission.IP_THROTTLED) else 0
        assert f"{waited} {WORDS[admission]} {shown}" == theirs
        if admission == Admission.ADMITTED:
            self._open.append((listener, address))
        return f"{WORDS[admission]} after a wait" if waited else WORDS[admission]

    def end(self) -> None:
        """End one of the connections."""
        if self._open:
            listener, address = self._open.pop(self._random.randrange(len(self._open)))
            self._ask("end", NAMES[listener], address)
            self.quotas.release(listener, packed(address))

    def compare(self) -> None:
        """Compare the numbers of connections and all metrics."""
        address = self._random.choice(ADDRESSES)
        count, excess, *values = self._ask("numbers", self.clock.now_ms, address).split()
        assert self.quotas.open_of_ip(packed(address)) == int(count)
        if self._listeners > 1:
            assert (self.quotas.excess > 0) == (excess == "true")
        server, rows = self.quotas.rates_now()
        of_address = dict(self.quotas.ip_rates_now()).get(packed(address), nan)
        ours = [server, of_address, *(value for row in rows for value in row)]
        for mine, other in zip(ours, map(float, values), strict=True):
            assert mine == other or (isnan(mine) and isnan(other)), (ours, values)


@pytest.mark.parametrize("listeners", [1, 2, 3])
def test_connections(process: JavaProcess, listeners: int) -> None:
    seen = set()
    for seed in range(SEEDS):
        random = Random(seed)
        both = Both(process, random, listeners)
        for number in range(STEPS):
            if number % 15 == 0:
                both.change_limits()
            both.clock.advance(random.choice(STEPS_MS) * 1_000_000)
            if random.random() < 0.6:
                seen.add(both.connect())
            else:
                both.end()
            if number % 5 == 0:
                both.compare()
    assert {"admitted", "full", "many", "throttled", "admitted after a wait"} <= seen
