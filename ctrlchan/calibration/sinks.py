"""Sinks: the brokers of a measurement, in a process of their own."""

from __future__ import annotations

from typing import NamedTuple

from ctrlchan.calibration.child import ChildProcess

__all__ = ["SinkReport", "Sinks"]


class SinkReport(NamedTuple):
    """What the sinks have done until now. ``last_answer_ns``: ``time.monotonic_ns``, 0: nothing answered."""

    last_answer_ns: int
    bytes: int
    requests: int


class Sinks(ChildProcess):
    """A process with ``count`` listening ports; any number of brokers can share a port."""

    def __init__(self, count: int) -> None:
        super().__init__("the process that stands for brokers", "ctrlchan.calibration.sink", str(count))
        self.ports = [int(port) for port in self.first_line.split()]

    def report(self) -> SinkReport:
        """Return what the sinks have done."""
        return SinkReport(*map(int, self.ask("report").split()))
