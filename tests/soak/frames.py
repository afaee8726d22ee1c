"""``python -m tests.soak.frames [seconds] [--seed N]``: mutated requests to a cluster that stores records.

Real requests of all APIs and versions (those of ``tests/acceptance/same_answers``) are cut, spliced and
changed, and sent on many connections: broken off, in pieces, without reading the answers. Meanwhile another
client must be served. Afterwards nothing has ended or grown, and what the broker logged is shown.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import struct
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

import psutil
from kio.index import load_request_schema
from kio.serial import entity_reader

import ctrlchan
from ctrlchan._codec import decode_request_header
from ctrlchan.kio_input import check_array_lengths
from tests.acceptance.same_answers import administration, grouping, producing, reading
from tests.acceptance.same_answers.messages import Messages
from tests.acceptance.same_answers.recorder import Broker
from tests.acceptance.same_answers.topics import create_topic, plain, produce
from tests.kafka.jars import kafka_jars
from tests.kafka.wire import exchange_on
from tests.soak.mutations import NUMBERS, mutate, signed
from tests.soak.processes import GROWTH, PATIENCE, figures, logged_to, show_log, wait_for_rest

CONFIGS: Final = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "log.retention.ms": "-1",
    # The connection of a request that waits for ever.
    "connections.max.idle.ms": "5000",
}
SCRIPTS: Final = (
    producing.stored_records,
    producing.refused_records,
    producing.idempotent_producers,
    reading.fetched_records,
    reading.fetch_sessions,
    reading.listed_offsets,
    reading.leader_epochs,
    reading.deleted_records,
    grouping.coordinators,
    grouping.members,
    grouping.committed_offsets,
    grouping.group_administration,
    administration.topics,
    administration.altered_configs,
    administration.described_configs,
    administration.log_directories,
    administration.metadata,
    administration.cluster,
)
TOPIC: Final = "served"
#: Of a controller: one with a later epoch than the true one's would end that one's term.
CONTROL: Final = frozenset({4, 5, 6})
#: Partitions that a client wants, and gets: more of them are no harm that a broker could refuse.
MOST_PARTITIONS: Final = 20
COUNTED: Final = {19: "num_partitions", 37: "count"}
CLIENTS: Final = 8


class Recorder(Broker):
    """Keeps each frame that it makes."""

    frames: set[bytes]

    def frame(self, *arguments: Any, **more: Any) -> bytes:
        made = super().frame(*arguments, **more)
        self.frames.add(made)
        return made


class Mutations:
    """Makes frames of other frames."""

    def __init__(self, frames: Sequence[bytes], seed: int) -> None:
        self._frames = frames
        self._random = random.Random(seed)

    def next(self) -> bytes:
        """Return a frame without its size."""
        while True:
            frame = bytearray(self._random.choice(self._frames))
            for _ in range(self._random.choice((0, 1, 1, 1, 2, 3, 8))):
                self._mutate(frame)
            if not is_harmful(bytes(frame)):
                return bytes(frame)

    def size_of(self, frame: bytes) -> int:
        """Return the size to send before a frame: sometimes a wrong one."""
        chance = self._random.random()
        if chance < 0.01:
            return self._random.choice(NUMBERS)
        return len(frame) + (self._random.randrange(-3, 4) if chance < 0.03 else 0)

    def _mutate(self, frame: bytearray) -> None:
        chance = self._random
        if chance.randrange(7) == 0 and len(frame) >= 4:
            # Another version or another API with the same body.
            frame[chance.choice((1, 3))] = chance.randrange(80)
        else:
            mutate(frame, chance, self._frames)


def is_harmful(frame: bytes) -> bool:
    """Return whether a broker that does what is asked would be spoilt, as Kafka would."""
    if len(frame) < 4:
        return False
    key, version = struct.unpack_from(">hh", frame)
    if key in CONTROL:
        return True
    if key not in COUNTED:
        return False
    with suppress(Exception):
        entity: Any = load_request_schema(key, version)
        # As the broker reads it: a mutated header may have tagged fields.
        begin = decode_request_header(frame, 2 if entity.__flexible__ else 1).size
        data = memoryview(frame)[begin:]
        check_array_lengths(entity, data)
        body, _ = entity_reader(entity)(data, 0)
        return any(
            getattr(topic, COUNTED[key]) > MOST_PARTITIONS or len(topic.assignments or ()) > MOST_PARTITIONS
            for topic in body.topics
        )
    # What kio cannot read is refused by the broker, too.
    return False


@dataclass
class Storm:
    """Sends mutated requests from several threads until ``stop``."""

    addresses: list[tuple[str, int]]
    frames: list[bytes]
    seed: int

    def __post_init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=[number], name=f"fuzzer-{number}")
            for number in range(CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        mutations = Mutations(self.frames, self.seed + number)
        chance = random.Random(self.seed - number)
        while not self._stopped.is_set():
            with suppress(OSError), socket.create_connection(chance.choice(self.addresses), 10) as connection:
                connection.settimeout(0.05)
                for _ in range(chance.choice((1, 3, 30))):
                    self._send(connection, mutations, chance)

    def _send(self, connection: socket.socket, mutations: Mutations, chance: random.Random) -> None:
        frame = mutations.next()
        data = signed(mutations.size_of(frame)).to_bytes(4, signed=True) + frame
        end = chance.randrange(len(data)) if chance.random() < 0.01 else len(data)
        self.sent["frames"] += 1
        if chance.random() < 0.05:
            # In two pieces, and then perhaps not the whole.
            cut = chance.randrange(len(data))
            connection.sendall(data[:cut])
            sleep(0.001)
            connection.sendall(data[cut:end])
        else:
            connection.sendall(data[:end])
        if chance.random() < 0.9:
            try:
                if not connection.recv(1 << 16):
                    self.sent["closed"] += 1
                    raise ConnectionError
                self.sent["answered"] += 1
            except TimeoutError:
                self.sent["waiting"] += 1


def record_frames(address: tuple[str, int]) -> list[bytes]:
    """Return the requests of the scripts, which a broker answers meanwhile."""
    messages = Messages(next(kafka_jars().glob("kafka-clients-*.jar")))
    recorder = Recorder(messages, address)
    recorder.frames = set()
    recorder.versions = recorder.announced()
    create_topic(recorder, TOPIC)
    for script in SCRIPTS:
        script(recorder)
        print(f"{script.__name__}: {len(recorder.frames)} requests", flush=True)
    for api, versions in recorder.versions.items():
        for version in versions:
            recorder.frame(api, version, recorder.sample(api, version))
    recorder.close()
    return sorted(frame for frame in recorder.frames if not is_harmful(frame))


def check_served(broker: Broker) -> None:
    """Let a client write a record and read it back. Raises AssertionError."""
    produce(broker, TOPIC, plain("served"))
    broker.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.soak.frames", description=__doc__)
    parser.add_argument("seconds", nargs="?", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = int.from_bytes(os.urandom(4)) if arguments.seed is None else arguments.seed
    print(f"{arguments.seconds:g} s, --seed {seed}", flush=True)
    log = Path(tempfile.gettempdir(), f"ctrlchan-frames-{seed}.log")
    with (
        logged_to(log),
        ctrlchan.EmbeddedCluster(1, log_dir=ctrlchan.TEMPORARY, configs=CONFIGS) as cluster,
    ):
        addresses = [(one.endpoints[0].host, one.endpoints[0].port) for one in cluster.brokers]
        frames = record_frames(addresses[0])
        processes = [psutil.Process(pid) for pid in cluster.pids]
        client = Broker(Messages(next(kafka_jars().glob("kafka-clients-*.jar"))), addresses[0])
        # One round before the figures are taken: what is imported and kept with first use is there.
        for seconds in (min(20.0, arguments.seconds / 5), arguments.seconds):
            before = figures(processes)
            storm = Storm(addresses, frames, seed)
            end = monotonic() + seconds
            try:
                while monotonic() < end:
                    sleep(1.0)
                    assert all(one.is_running() for one in processes), "a broker has ended"
                    check_served(client)
            finally:
                storm.stop()
            print(f"{dict(storm.sent)}; {figures(processes)}", flush=True)
        wait_for_rest(processes, before)
        for then, now in zip(before, figures(processes), strict=True):
            print(f"{then}, then {now}")
            assert now.private_bytes < then.private_bytes + GROWTH, "memory has grown"
        with socket.create_connection(addresses[0], PATIENCE) as connection:
            exchange_on(connection, client.frame("ApiVersions", 0, {}))
    show_log(log)
    print("every client was served, nothing has grown", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
