"""A transaction of one record: AddPartitionsToTxn, Produce and EndTxn, each sent after the answer before it.

Its markers are written within it, and the processor ends it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.instructions.broker import TOPIC, Client, TurnedBroker, connected, serving
from bench.instructions.measured import Measured
from bench.instructions.requests import TRANSACTIONAL, batch_of, check, header, one_partition, produce, text
from tests.kafka.waiting import wait_until

__all__ = ["opened"]

_ID: Final = "an-id"
_END_TXN: Final = 26
#: Of responses: correlation id, tagged fields, throttle time.
_ERROR_AT: Final = 9


class _Producer:
    """A transactional producer."""

    def __init__(self, broker: TurnedBroker, client: Client) -> None:
        self._broker = broker
        self._client = client
        self._sequence = 0
        self._answer = b""
        init = header(22, 4) + text(_ID) + struct.pack(">iqhb", 600_000, -1, -1, 0)

        def is_loaded() -> bool:
            self._answer = client.ask(init)
            return self._answer[_ERROR_AT : _ERROR_AT + 2] == b"\0\0"

        wait_until(is_loaded, timeout=60, what="a producer id")
        self._id, self._epoch = struct.unpack_from(">qh", self._answer, _ERROR_AT + 2)
        producer = text(_ID) + struct.pack(">qh", self._id, self._epoch)
        self._adds = header(24, 3) + producer + one_partition(TOPIC) + b"\0\0"
        self._ends = header(_END_TXN, 3) + producer + b"\1\0"

    def run(self, times: int) -> None:
        before = self._ended()
        for _ in range(times):
            batch = batch_of(
                1,
                attributes=TRANSACTIONAL,
                producer_id=self._id,
                producer_epoch=self._epoch,
                base_sequence=self._sequence,
            )
            self._sequence += 1
            (added,) = self._client.measure([self._adds])
            check(added, TOPIC, begins_with_time=True)
            (produced,) = self._client.measure([produce(TOPIC, batch, _ID)])
            check(produced, TOPIC)
            (ended,) = self._client.measure([self._ends])
            if ended[_ERROR_AT : _ERROR_AT + 2] != b"\0\0":
                raise RuntimeError(f"EndTxn: {ended!r}")
        if self._ended() - before != times:
            raise RuntimeError(f"the processor ended {self._ended() - before} of {times} transactions")

    def _ended(self) -> int:
        """Return how many transactions the processor has ended."""
        return self._broker.server.hot.totals()[_END_TXN][0]


@contextmanager
def opened() -> Iterator[dict[str, Measured]]:
    """Start a broker, and a producer."""
    with serving() as broker, connected(broker) as client:
        yield {"transaction": Measured(_Producer(broker, client).run, 50)}
