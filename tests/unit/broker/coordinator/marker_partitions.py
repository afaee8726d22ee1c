"""Partitions of this broker that take markers, with errors and appends that wait."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from ctrlchan.broker.coordinator.marker_appends import Marker
from ctrlchan.broker.coordinator.transaction.requests import ProducerIdentity
from ctrlchan.broker.replica._partitions import ProduceResult

__all__ = ["LaterCalls", "MarkedPartition", "MarkedPartitions"]

TIMEOUT_MS: Final = 4_321
_ALL: Final = -1


class MarkedPartition:
    """A partition. ``errors``: of the next appends; ``held``: appends that wait, when it is not None."""

    def __init__(self) -> None:
        self.log: object | None = object()
        self.is_leader = True
        self.markers: list[Marker] = []
        self.errors: list[int | Exception] = []
        self.held: list[Callable[[], None]] | None = None

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        *,
        required_acks: int,
        timeout_ms: int,
    ) -> Future[ProduceResult]:
        assert (required_acks, timeout_ms) == (_ALL, TIMEOUT_MS)
        self.markers.append(Marker(ProducerIdentity(producer_id, producer_epoch), commit, coordinator_epoch))
        error = self.errors.pop(0) if self.errors else 0
        appended: Future[ProduceResult] = Future()

        def end() -> None:
            if isinstance(error, Exception):
                appended.set_exception(error)
            else:
                appended.set_result(ProduceResult(error))

        if self.held is None:
            end()
        else:
            self.held.append(end)
        return appended

    def release(self) -> None:
        """End the appends that wait."""
        held, self.held = self.held or [], None
        for end in held:
            end()


class MarkedPartitions:
    """The partitions of a broker, by topic and number."""

    def __init__(self, *names: tuple[str, int]) -> None:
        self.by_name = {name: MarkedPartition() for name in names}

    def __getitem__(self, name: tuple[str, int]) -> MarkedPartition:
        return self.by_name[name]

    def find(self, topic: str, partition: int) -> MarkedPartition | None:
        return self.by_name.get((topic, partition))


class LaterCalls:
    """Calls functions when the test says so, one after the other."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def __call__(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def run(self) -> None:
        """Call all functions, and those that these add."""
        while self.calls:
            self.calls.pop(0)()
