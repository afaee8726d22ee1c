"""Embedded brokers in this process that record every frame and can be made to wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import ctrlchan
from ctrlchan.broker.core import BrokerCore
from ctrlchan.server.request_context import RequestContext

__all__ = ["Permits", "WatchedBroker", "numbers_of", "steps_of", "watched", "without_correlation"]

_API_AND_VERSION: Final = 4
_CORRELATION: Final = 4


class Permits:
    """Limits the answers of the brokers that share it: each answer takes a permit.

    A broker that waits for a permit takes one even if the connection of the request has closed.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._left: float = 0
        self._waiting = 0

    def give(self, count: float) -> None:
        """Add permits."""
        with self._changed:
            self._left += count
            self._changed.notify_all()

    def unlimited(self) -> None:
        """Let brokers answer without limit."""
        self.give(float("inf"))

    def take(self) -> None:
        """Wait for a permit and take it."""
        with self._changed:
            self._waiting += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._left > 0)
            self._left -= 1
            self._waiting -= 1
            self._changed.notify_all()

    def until_spent(self, timeout: float = 120.0) -> None:
        """Wait until all permits are taken and a broker waits for one."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._left <= 0 < self._waiting, timeout)


class WatchedBroker:
    """An embedded broker that records its frames.

    ``frames``: in order, without the four bytes of size and with correlation id 0. ``gate``: while it is
    closed the broker reads and does not answer. ``permits``: each answer takes one.
    """

    def __init__(self, broker_id: int, epoch: int, permits: Permits | None = None) -> None:
        self.embedded = ctrlchan.EmbeddedBroker(broker_id, epoch=epoch)
        self.frames: list[bytes] = []
        self._permits = permits
        self.gate = threading.Event()
        self.gate.set()
        self._arrived = threading.Condition()
        self.embedded.inspect(self._watch)

    @property
    def broker(self) -> ctrlchan.Broker:
        return self.embedded.broker

    def until(self, count: int, timeout: float = 60.0) -> None:
        """Wait until this many frames have arrived."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.frames) >= count, timeout), len(self.frames)

    def state(self) -> dict[str, Any]:
        """Return the broker's metadata of the cluster and its own replicas."""
        return self.embedded.inspect(_state)

    def _watch(self, core: BrokerCore) -> None:
        # Handler threads call it for each frame.
        runner: Any = self.embedded._runner
        handler = runner._service.handler
        permits = self._permits
        handle = handler.serve

        def watching(frame: bytes | memoryview, context: RequestContext) -> Any:
            with self._arrived:
                self.frames.append(without_correlation(bytes(frame)))
                self._arrived.notify_all()
            self.gate.wait(60)
            if permits is not None:
                permits.take()
            return handle(frame, context)

        handler.serve = watching


def _state(core: BrokerCore) -> dict[str, Any]:
    partitions, brokers = core.metadata.state.to_arrow()
    names = [name for name in partitions.column_names if name != "row_version"]
    replicas = core.replicas.columns
    return {
        "controller_epoch": core.controller_epoch,
        "partitions": partitions.select(names).to_pylist(),
        "brokers": brokers.select(["id", "epoch", "rack"]).to_pylist(),
        "replicas": [replicas.partition.tolist(), replicas.leader.tolist(), replicas.leader_epoch.tolist()],
    }


@contextmanager
def watched(count: int, epoch: int = 3, permits: Permits | None = None) -> Iterator[list[WatchedBroker]]:
    with ExitStack() as stack:
        brokers = []
        for broker_id in range(count):
            broker = WatchedBroker(broker_id, epoch, permits)
            stack.callback(broker.embedded.close)
            stack.callback(broker.gate.set)
            if permits is not None:
                stack.callback(permits.unlimited)
            brokers.append(broker)
        yield brokers


def without_correlation(frame: bytes) -> bytes:
    """Return a frame, given without its four bytes of size, with correlation id 0."""
    end = _API_AND_VERSION + _CORRELATION
    return frame[:_API_AND_VERSION] + bytes(_CORRELATION) + frame[end:]


def numbers_of(frames: Sequence[bytes], expected: Sequence[bytes]) -> list[int]:
    """Return the index of each frame among the expected ones; -1: not expected."""
    number_of = {frame: number for number, frame in enumerate(expected)}
    assert len(number_of) == len(expected)
    return [number_of.get(frame, -1) for frame in frames]


def steps_of(frames: Sequence[bytes], expected: Sequence[bytes], cuts: int) -> None:
    """Assert that all ``expected`` frames arrived in order, with at most ``cuts`` steps back."""
    numbers = numbers_of(frames, expected)
    assert -1 not in numbers, numbers
    back = 0
    for before, number in zip([-1, *numbers], numbers, strict=False):
        if number != before + 1:
            assert number <= before, f"{number} after {before}"
            back += 1
    assert back <= cuts, numbers
    assert numbers[-1:] == [len(expected) - 1]
