"""Columns <-> bytes against memcpy of the same bytes, UpdateMetadata v8 and LeaderAndIsr v7.

Command: ``python -m pytest bench/test_codec.py --benchmark-json=build/bench/codec.json``, then
``python -m bench.report build/bench/codec.json``; ``make bench`` runs everything.

Encoding is sizing and writing into memory that was written before, as memcpy does; decoding allocates its
columns. "cold": before each side more memory is read than the caches hold, as 30 brokers' copies do between
two pushes; "hot": nothing but the two sides runs. A million partitions are more than the caches hold anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench import workload
from bench.alternate import empty_caches, milliseconds, side_by_side
from ctrlchan._codec import (
    LEADER_AND_ISR,
    UPDATE_METADATA,
    Tail,
    decode_request,
    encode_head,
    leader_and_isr_tail,
    update_metadata_tail,
)

BROKERS: Final = 30
CONTROLLER_ID: Final = 0
CONTROLLER_EPOCH: Final = 3
BROKER_EPOCH: Final = 1001
#: Bytes encoded, copied or decoded in one benchmark: enough rounds for a steady median.
BYTES_PER_BENCHMARK: Final = 400_000_000
FEWEST_ROUNDS: Final = 15


@pytest.fixture(scope="module", params=[100_000, 1_000_000], ids=["100k", "1M"])
def partitions(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(
    scope="module", params=[(UPDATE_METADATA, 8), (LEADER_AND_ISR, 7)], ids=["UpdateMetadata", "LeaderAndIsr"]
)
def sized(request: pytest.FixtureRequest, partitions: int) -> Callable[[], Tail]:
    """A call that sizes the tail anew, as each push does."""
    api_key, version = request.param
    count = partitions // workload.PARTITIONS_PER_TOPIC
    topics, rows = workload.topics_of(count), workload.partitions_of(count, BROKERS)
    brokers = workload.brokers_of(BROKERS)
    if api_key == UPDATE_METADATA:
        return lambda: update_metadata_tail(version, topics, rows, brokers)
    leaders = workload.leaders_of(brokers)
    return lambda: leader_and_isr_tail(version, topics, rows, leaders)


@pytest.fixture(scope="module")
def body(sized: Callable[[], Tail]) -> bytes:
    tail = sized()
    head = encode_head(tail.api_key, tail.version, CONTROLLER_ID, CONTROLLER_EPOCH, BROKER_EPOCH)
    return head + tail.to_bytes()


@pytest.mark.parametrize("caches", ["cold", "hot"])
@pytest.mark.parametrize("direction", ["encode", "decode"])
def test_codec(
    benchmark: BenchmarkFixture, sized: Callable[[], Tail], body: bytes, direction: str, caches: str
) -> None:
    tail = sized()
    out = bytearray(tail.size)
    source = np.frombuffer(body, dtype=np.uint8)
    copy = source.copy()

    def encode() -> None:
        sized().write_into(out)

    def decode() -> None:
        decode_request(tail.api_key, tail.version, body)

    side_by_side(
        benchmark,
        encode if direction == "encode" else decode,
        lambda: milliseconds(lambda: np.copyto(copy, source)),
        rounds=max(FEWEST_ROUNDS, BYTES_PER_BENCHMARK // len(body)),
        peer_name="memcpy",
        before_each=empty_caches if caches == "cold" else None,
        suite="codec",
        api_key=tail.api_key,
        version=tail.version,
        direction=direction,
        caches=caches,
        partitions=tail.rows,
        bytes=len(body),
    )
    if direction == "encode":
        assert body.endswith(out)
