"""A broker with 1, 1,000, 10,000 and 50,000 partitions: its start, its memory, and what requests cost."""

from __future__ import annotations

from itertools import cycle, islice
from pathlib import Path
from time import perf_counter
from typing import Final

from bench.peers.record_load import batch_of
from bench.scale import messages
from bench.scale.crowd import Crowd
from bench.scale.record import Record
from bench.scale.sides import MeasuredBroker, create_topics, running, wait_for_topics

__all__ = ["ask"]

_PER: Final = "partitions"
#: Partitions of a topic, at most.
_PER_TOPIC: Final = 100
_REQUESTS: Final = 5_000
_LARGE_REQUESTS: Final = 50
_METADATA_REQUESTS: Final = 5
_FETCH_BYTES: Final = 1_024


def ask(side: str, size: int, folder: Path, record: Record) -> None:
    """Measure one side with ``size`` partitions."""
    with running(side, folder) as broker:
        before, descriptors = broker.needed_bytes(), broker.descriptors()
        _Partitions(broker, size, record).measure(before, descriptors)


class _Partitions:
    """One broker with ``size`` partitions, which are created, loaded again and used."""

    def __init__(self, broker: MeasuredBroker, size: int, record: Record) -> None:
        self._broker = broker
        self._size = size
        self._record = record
        whole, rest = divmod(size, _PER_TOPIC)
        self._topics = {f"topic-{number:04}": _PER_TOPIC for number in range(whole)}
        if rest:
            self._topics["rest"] = rest

    def measure(self, memory: float, descriptors: int) -> None:
        """``memory``, ``descriptors``: of the broker without a partition."""
        self._create(memory, descriptors)
        self._start()
        self._write()
        self._read()
        self._describe()

    def _create(self, memory: float, descriptors: int) -> None:
        began, cpu = perf_counter(), self._broker.processor_seconds()
        create_topics(self._broker.port, self._topics)
        self._add("Partitions: creation of all", "s", perf_counter() - began)
        self._each("Partitions: creation", cpu)
        grown = self._broker.needed_bytes() - memory
        self._record.add_each("Partitions: memory of each", _PER, self._broker.side, self._size, grown)
        opened = self._broker.descriptors() - descriptors
        self._add("Partitions: descriptors of each", "descriptors", opened / self._size)

    def _start(self) -> None:
        self._broker.stop()
        began = perf_counter()
        self._broker.start()
        wait_for_topics(self._broker.port, self._topics)
        self._add("Partitions: start of the broker until all have leaders", "s", perf_counter() - began)
        self._add("Partitions: start of the broker", "processor s", self._broker.processor_seconds())
        self._add("Partitions: memory of the broker after a start", "MiB", self._broker.pss_mib())

    def _write(self) -> None:
        batch = batch_of(1, 100)
        each = [
            messages.produce({topic: [n]}, batch) for topic, many in self._topics.items() for n in range(many)
        ]
        with Crowd(self._broker.port, 5) as crowd:
            crowd.ask_in_turn(islice(cycle(each), _REQUESTS))
            cpu = self._broker.processor_seconds()
            crowd.ask_in_turn(islice(cycle(each), _REQUESTS))
            self._each("Partitions: Produce to one after the other", cpu, _REQUESTS)
            topic, many = next(iter(self._topics.items()))
            frame = messages.produce({topic: range(many)}, batch)
            cpu = self._broker.processor_seconds()
            crowd.ask_in_turn([frame] * _LARGE_REQUESTS)
            self._each("Partitions: Produce to 100 at once, each", cpu, _LARGE_REQUESTS * many)

    def _read(self) -> None:
        each = [
            messages.fetch({topic: [n]}, max_bytes=_FETCH_BYTES, max_wait_ms=0)
            for topic, many in self._topics.items()
            for n in range(many)
        ]
        with Crowd(self._broker.port, 5) as crowd:
            crowd.ask_in_turn(islice(cycle(each), _REQUESTS))
            cpu = self._broker.processor_seconds()
            crowd.ask_in_turn(islice(cycle(each), _REQUESTS))
            self._each("Partitions: Fetch from one after the other", cpu, _REQUESTS)

    def _describe(self) -> None:
        with Crowd(self._broker.port, 1) as crowd:
            one = messages.metadata([next(iter(self._topics))])
            crowd.ask_in_turn([one] * _LARGE_REQUESTS)
            cpu = self._broker.processor_seconds()
            crowd.ask_in_turn([one] * _REQUESTS)
            self._each("Partitions: Metadata of one topic", cpu, _REQUESTS)
            every = messages.metadata(None)
            crowd.ask_in_turn([every] * 2)
            cpu = self._broker.processor_seconds()
            crowd.ask_in_turn([every] * _METADATA_REQUESTS)
            self._each("Partitions: Metadata of all, each", cpu, _METADATA_REQUESTS * self._size)

    def _each(self, question: str, cpu: float, count: int | None = None) -> None:
        used = self._broker.processor_seconds() - cpu
        self._add(question, "processor µs", used / (count or self._size) * 1e6)

    def _add(self, question: str, unit: str, sample: float) -> None:
        self._record.add(question, unit, _PER, self._broker.side, self._size, sample)
