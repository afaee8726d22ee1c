"""Measures an event from outside, for both controllers alike: from its cause to the last answered request.

The sink reports when it has answered its last request. An event is over when no request has come for
``QUIET_SECONDS``, neither the controller nor ZooKeeper works, and ZooKeeper shows what the event has to
leave there. This waiting is not part of the measured time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, monotonic_ns, sleep
from typing import Final

from bench.memory import cpu_seconds
from bench.peers.native import Sink, SinkReport

__all__ = ["EVENT_SECONDS", "Measured", "Watch"]

QUIET_SECONDS: Final = 1.5
#: A controller and a ZooKeeper that use less than this share of a core together are idle.
_IDLE: Final = 0.1
_SAMPLE_SECONDS: Final = 0.1
EVENT_SECONDS: Final = 600.0


@dataclass(frozen=True)
class Measured:
    """One event: milliseconds, and seconds of processor time until it was over.

    ``received``: the bytes of all requests to all brokers.
    """

    ms: float
    controller_cpu: float
    zookeeper_cpu: float
    received: int


class Watch:
    """Watches the sink and the processes of one controller. ``limit``: seconds that an event may take."""

    def __init__(self, sink: Sink, zookeeper_pid: int, limit: float = EVENT_SECONDS) -> None:
        self._sink = sink
        self._zookeeper_pid = zookeeper_pid
        self._limit = limit

    def measure(
        self,
        controller_pid: int,
        cause: Callable[[], object],
        problem: Callable[[], str | None],
        ports: frozenset[int] = frozenset(),
    ) -> Measured:
        """Cause an event and return what it took.

        ``problem`` returns what ZooKeeper does not show yet, None when all is as it has to be. ``ports``: the
        positions in ``Sink.ports`` of brokers that must have been sent a request. Raises TimeoutError.
        """
        before = self._sink.report()
        begin, cpu = monotonic_ns(), self._cpu(controller_pid)
        cause()
        report, cpu_now = self._wait(controller_pid, before, problem, ports)
        controller, zookeeper = (now - then for now, then in zip(cpu_now, cpu, strict=True))
        ms = (report.last_answer_ns - begin) / 1e6
        return Measured(ms, controller, zookeeper, report.received - before.received)

    def settle(self, controller_pid: int) -> None:
        """Wait until a controller has nothing to do. Raises TimeoutError."""
        self._wait(controller_pid, None, lambda: None, frozenset())

    def answered(self) -> SinkReport:
        return self._sink.report()

    def _wait(
        self,
        controller_pid: int,
        before: SinkReport | None,
        problem: Callable[[], str | None],
        ports: frozenset[int],
    ) -> tuple[SinkReport, tuple[float, float]]:
        """Return the last report, and the processor time of controller and ZooKeeper before the checks."""
        deadline = monotonic() + self._limit
        cpu = self._cpu(controller_pid)
        samples = deque([(monotonic(), sum(cpu))])
        found: str | None = "the controller works"
        while monotonic() < deadline:
            sleep(_SAMPLE_SECONDS)
            report = self._sink.report()
            cpu = self._cpu(controller_pid)
            samples.append((monotonic(), sum(cpu)))
            while samples[-1][0] - samples[1][0] >= QUIET_SECONDS:
                samples.popleft()
            seconds = samples[-1][0] - samples[0][0]
            if seconds < QUIET_SECONDS or samples[-1][1] - samples[0][1] > _IDLE * seconds:
                continue
            if monotonic_ns() - report.last_answer_ns < QUIET_SECONDS * 1e9:
                continue
            found = _missing(before, report, ports) or problem()
            if found is None:
                return report, cpu
        raise TimeoutError(f"not over after {self._limit:g} s: {found}")

    def _cpu(self, controller_pid: int) -> tuple[float, float]:
        return cpu_seconds(controller_pid), cpu_seconds(self._zookeeper_pid)


def _missing(before: SinkReport | None, now: SinkReport, ports: frozenset[int]) -> str | None:
    if before is not None:
        for port in sorted(ports):
            if before.ports[port] == now.ports[port]:
                return f"the broker at position {port} was sent no request"
    return None
