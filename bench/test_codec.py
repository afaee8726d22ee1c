"""Measures encoding and decoding beside memcpy of the same bytes, and beside other codecs.

Command: ``python -m bench codec``, or by itself ``python -m pytest bench/test_codec.py
--benchmark-json=build/bench/codec.json`` (``--no-kafka``, ``--quick``, ``-k UpdateMetadata``).

Encoding sizes a message and writes it into memory that was written before, as memcpy does; decoding allocates
its columns. Buffers of both sides are either

*same*: the same buffers in every call, and each timed call follows an untimed one, so that everything that
fits into the last-level cache is in it; or

*rotating*: one of many sets of buffers after the other, so that neither side finds its buffers in the cache.
A push is like that: the copies of 30 brokers have gone through the caches since the push before.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench import workload
from bench.alternate import OURS, Side, milliseconds, side_by_side
from bench.peers.codecs import Codec, KafkaClients, KafkaPython, Kio
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

BROKERS: Final = 30
CONTROLLER_ID: Final = 0
CONTROLLER_EPOCH: Final = 3
BROKER_EPOCH: Final = 1001
VERSIONS: Final = {UPDATE_METADATA: 8, LEADER_AND_ISR: 7, STOP_REPLICA: 4}
#: Bytes of all rotating buffers of one side, read and written.
ROTATED_BYTES: Final = 2 * 128 * 2**20
#: Bytes encoded, copied or decoded in one benchmark: enough rounds for a steady median.
BYTES_PER_BENCHMARK: Final = 400_000_000
FEWEST_ROUNDS: Final = 15
PEER_PARTITIONS: Final = 100_000
PEER_ROUNDS: Final = 10
#: Calls until the JVM has compiled the codec.
JAVA_WARMUPS: Final = 60


def sized(api_key: int, topics: int) -> Callable[[], SharedBody]:
    """Return a call that sizes a new shared body, as each push does, from its own columns."""
    version = VERSIONS[api_key]
    names, rows = workload.topics_of(topics), workload.partitions_of(topics, BROKERS)
    brokers = workload.brokers_of(BROKERS)
    if api_key == UPDATE_METADATA:
        return lambda: update_metadata_body(version, names, rows, brokers)
    if api_key == LEADER_AND_ISR:
        leaders = workload.leaders_of(brokers)
        return lambda: leader_and_isr_body(version, names, rows, leaders)
    return lambda: stop_replica_body(version, names, rows.topic_row, rows.partition, rows.leader_epoch)


def body_of(shared_body: SharedBody) -> bytes:
    head = encode_head(
        shared_body.api_key, shared_body.version, CONTROLLER_ID, CONTROLLER_EPOCH, BROKER_EPOCH
    )
    return head + shared_body.to_bytes()


@dataclass
class Sets:
    """Several sets of the columns and buffers of one message."""

    shared_bodies: list[Callable[[], SharedBody]]
    bodies: list[bytes]
    outs: list[bytearray]
    decoded: list[object]

    @staticmethod
    def of(api_key: int, topics: int, count: int) -> Sets:
        shared_bodies = [sized(api_key, topics) for _ in range(count)]
        bodies = [body_of(shared_body()) for shared_body in shared_bodies]
        return Sets(shared_bodies, bodies, [bytearray(body) for body in bodies], [None] * count)

    def encode(self, index: int) -> None:
        self.shared_bodies[index]().write_into(self.outs[index])

    def decode(self, index: int, api_key: int) -> None:
        # Kept until the next turn of this set, so that new columns do not reuse the memory of the last ones.
        self.decoded[index] = decode_request(api_key, VERSIONS[api_key], self.bodies[index])

    def copy(self, index: int) -> None:
        # Half a rotation away from the others: a buffer that was just used would be in the cache.
        other = (index + len(self.bodies) // 2) % len(self.bodies)
        np.copyto(_bytes_of(self.outs[other]), _bytes_of(self.bodies[other]))


@pytest.mark.parametrize("buffers", ["same", "rotating"])
@pytest.mark.parametrize("direction", ["encode", "decode"])
@pytest.mark.parametrize("partitions", [100_000, 1_000_000])
@pytest.mark.parametrize("api_key", VERSIONS, ids=API_NAMES.get)
def test_codec(
    benchmark: BenchmarkFixture,
    scaled: Callable[[int], int],
    api_key: int,
    partitions: int,
    direction: str,
    buffers: str,
) -> None:
    topics = partitions // workload.PARTITIONS_PER_TOPIC
    size = len(body_of(sized(api_key, topics)()))
    sets = Sets.of(api_key, topics, count=1 if buffers == "same" else max(2, ROTATED_BYTES // (2 * size)))

    def decode(index: int) -> None:
        sets.decode(index, api_key)

    side_by_side(
        benchmark,
        {
            OURS: _turns(sets.encode if direction == "encode" else decode, len(sets.bodies)),
            "memcpy": _turns(sets.copy, len(sets.bodies)),
        },
        scaled(max(FEWEST_ROUNDS, BYTES_PER_BENCHMARK // size)),
        suite="codec",
        api_key=api_key,
        version=VERSIONS[api_key],
        direction=direction,
        buffers=buffers,
        partitions=partitions,
        bytes=size,
    )


def _turns(work: Callable[[int], None], count: int) -> Side:
    """Return a side that works on one set after the other; one set alone gets an untimed call before each."""
    turn = 0

    def call() -> float:
        nonlocal turn
        if count == 1:
            work(0)
        turn = (turn + 1) % count
        return milliseconds(lambda: work(turn))

    # One call for each set, so that the system has mapped every page.
    return Side(call=call, warmups=count)


def _bytes_of(buffer: bytes | bytearray) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(buffer, dtype=np.uint8)


@pytest.mark.parametrize("direction", ["encode", "decode"])
@pytest.mark.parametrize("api_key", VERSIONS, ids=API_NAMES.get)
def test_codec_peers(
    benchmark: BenchmarkFixture, scaled: Callable[[int], int], with_kafka: bool, api_key: int, direction: str
) -> None:
    version = VERSIONS[api_key]
    sets = Sets.of(api_key, PEER_PARTITIONS // workload.PARTITIONS_PER_TOPIC, count=1)
    body = sets.bodies[0]
    peers: dict[str, Codec] = {"kio": Kio(api_key, version, body)}
    if with_kafka:
        peers["kafka-python"] = KafkaPython(api_key, version, body)
        peers["kafka-clients"] = KafkaClients(api_key, version, body)

    def ours() -> None:
        if direction == "encode":
            sets.encode(0)
        else:
            sets.decode(0, api_key)

    with ExitStack() as stack:
        for peer in peers.values():
            stack.enter_context(peer)
        sides = {
            name: Side(
                call=peer.encode if direction == "encode" else peer.decode,
                warmups=scaled(JAVA_WARMUPS) if name == "kafka-clients" else 1,
            )
            for name, peer in peers.items()
        }
        side_by_side(
            benchmark,
            {OURS: Side(call=lambda: milliseconds(ours)), **sides},
            scaled(PEER_ROUNDS),
            suite="peers",
            api_key=api_key,
            version=version,
            direction=direction,
            partitions=PEER_PARTITIONS,
            bytes=len(body),
        )
