"""The codec: encoding and decoding 2,000 partitions in each of the three control requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from bench import workload
from bench.instructions.marks import counted
from bench.instructions.measured import Measured
from ctrlchan._codec import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    SharedBody,
    decode_request,
    encode_head,
    leader_and_isr_body,
    stop_replica_body,
    update_metadata_body,
)
from ctrlchan.protocol import API_NAMES

__all__ = ["opened"]

_BROKERS: Final = 30
_TOPICS: Final = 20
_VERSIONS: Final = {UPDATE_METADATA: 8, LEADER_AND_ISR: 7, STOP_REPLICA: 4}
_REPETITIONS: Final = 10


class _Message:
    """The columns of one request, its bytes, and memory for them."""

    def __init__(self, api_key: int) -> None:
        self.api_key = api_key
        self._version = _VERSIONS[api_key]
        self._topics = workload.topics_of(_TOPICS)
        self._rows = workload.partitions_of(_TOPICS, _BROKERS)
        self._brokers = workload.brokers_of(_BROKERS)
        self._leaders = workload.leaders_of(self._brokers)
        body = self._sized()
        self._data = encode_head(api_key, self._version, 0, 3, 1001) + body.to_bytes()
        self._out = bytearray(body.size)

    def _sized(self) -> SharedBody:
        version, topics, rows = self._version, self._topics, self._rows
        if self.api_key == UPDATE_METADATA:
            return update_metadata_body(version, topics, rows, self._brokers)
        if self.api_key == LEADER_AND_ISR:
            return leader_and_isr_body(version, topics, rows, self._leaders)
        return stop_replica_body(version, topics, rows.topic_row, rows.partition, rows.leader_epoch)

    def encode(self) -> None:
        self._sized().write_into(self._out)

    def decode(self) -> None:
        decode_request(self.api_key, self._version, self._data)


def _repeat(work: Callable[[], None], times: int) -> None:
    def run() -> None:
        for _ in range(times):
            work()

    counted(run)


@contextmanager
def opened() -> Iterator[dict[str, Measured]]:
    """Make the messages."""
    found = {}
    for message in map(_Message, _VERSIONS):
        name = API_NAMES[message.api_key]
        for what, work in (("encode", message.encode), ("decode", message.decode)):
            found[f"{what} {name}"] = Measured(partial(_repeat, work), _REPETITIONS)
    yield found
