"""Measures TLS listeners: ours, Kafka's, a limit in C on the same libssl, and ours beside plaintext.

Command: ``python -m bench tls``, or by itself ``python -m pytest bench/test_tls.py
--benchmark-json=build/bench/tls.json`` (``--no-kafka``, ``--quick``).

TLS 1.3 with AES-256-GCM and a certificate with a key of P-256, for all sides. Our broker has a plaintext
listener too. The clients are in this process, so processor time is the broker's alone: of its process, user
and system. A round is a turn of each side.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.alternate import OURS
from bench.figures import Figures, processor_seconds_of, take_turns
from bench.peers.brokers import Kafka, Store
from bench.peers.record_load import Connection, batch_of
from ctrlchan import EmbeddedCluster
from ctrlchan.embedded.certificates import Certificates
from ctrlchan.state.brokers import parse_host_port

ROUNDS: Final = 5
_TIMEOUT: Final = 2400
_PLAIN, _KAFKA, _LIMIT = "plaintext", "kafka", "limit"
_TOPICS: Final = ("small", "middle", "large")
#: Requests before the first round, for Kafka's compiler.
_WARMUPS: Final = 10_000
_SMALL_REQUESTS: Final = 5_000
_BYTES: Final = 50_000_000
_SMALL_FETCHES: Final = 1_000
_HANDSHAKES: Final = 100
_IDLE: Final = 300
_ONE: Final = batch_of(1, 100)
_MIDDLE_RECORDS, _LARGE_RECORDS = 150, 2_400
_MIDDLE: Final = batch_of(_MIDDLE_RECORDS, 100)
_LARGE: Final = batch_of(_LARGE_RECORDS, 100)


class TlsConnection(Connection):
    """The same requests over TLS."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        super().__init__(port)
        self._socket = context.wrap_socket(self._socket, server_hostname="localhost")


@dataclass(frozen=True)
class Side:
    """A listener of a broker: its process, and what opens a connection."""

    process: psutil.Process
    connect: Callable[[], Connection]

    def seconds(self, work: Callable[[], object]) -> float:
        """Return the processor time of the broker during `work`, in seconds."""
        return processor_seconds_of(self.process, work)[0]

    def reconnect(self, times: int) -> None:
        for _ in range(times):
            with closing(self.connect()) as client:
                client.produce("small", _ONE, 1)

    def idle_kib(self, connections: int) -> float:
        """Return the memory of a connection that has sent a request and is idle."""
        before = self.process.memory_full_info().uss
        with ExitStack() as stack:
            for _ in range(connections):
                client = stack.enter_context(closing(self.connect()))
                client.produce("small", _ONE, 1)
            return float(self.process.memory_full_info().uss - before) / connections / 1024


def turn(name: str, side: Side, figures: Figures, scaled: Callable[[int], int]) -> None:
    """Measure everything once on one listener."""
    with closing(side.connect()) as client:
        count = scaled(_SMALL_REQUESTS)
        spent = side.seconds(lambda: client.produce("small", _ONE, count))
        figures.add(name, "Produce of one record of 100 B", "processor time, µs", spent / count * 1e6)
        for what, topic, batch in (("16 KiB", "middle", _MIDDLE), ("256 KiB", "large", _LARGE)):
            count = scaled(_BYTES) // len(batch)
            spent = side.seconds(lambda: client.produce(topic, batch, count))  # noqa: B023  (called at once)
            what = f"Produce of batches of {what}"
            figures.add(name, what, "processor time, s/GB", spent / (count * len(batch)) * 1e9)
        total = scaled(_BYTES) // 2
        spent = side.seconds(lambda: client.fetch("large", 1 << 20, _LARGE, _LARGE_RECORDS, total))
        figures.add(name, "Fetch of 1 MiB", "processor time, s/GB", spent / total * 1e9)
        read = 1024 // len(_ONE) * len(_ONE) * scaled(_SMALL_FETCHES)
        requests = 0

        def fetch() -> None:
            nonlocal requests
            requests = client.fetch("small", 1024, _ONE, 1, read)

        spent = side.seconds(fetch)
        figures.add(name, "Fetch of 1 KB", "processor time, µs", spent / requests * 1e6)
    times = scaled(_HANDSHAKES)
    spent = side.seconds(lambda: side.reconnect(times))
    figures.add(name, "connection with one Produce", "processor time, µs", spent / times * 1e6)


@contextmanager
def running(folder: Path, with_kafka: bool) -> Iterator[dict[str, Side]]:
    """Start the brokers."""
    (folder / "certificates").mkdir()
    certificates = Certificates(folder / "certificates")
    context = ssl.create_default_context(cafile=certificates.ca_file)
    store = Path(certificates.issue("broker", ["localhost"]))

    def over_tls(port: int) -> Callable[[], Connection]:
        return lambda: TlsConnection(port, context)

    sides: dict[str, Side] = {}
    with ExitStack() as stack:
        if with_kafka:
            (folder / _KAFKA).mkdir()
            kafka = stack.enter_context(closing(Kafka(folder / _KAFKA, tls_store=store)))
            for topic in _TOPICS:
                kafka.create_topic(topic)
            sides[_KAFKA] = Side(kafka.process, over_tls(kafka.tls_port))
        limit = stack.enter_context(closing(Store(folder / _LIMIT, tls_store=store)))
        sides[_LIMIT] = Side(limit.process, over_tls(limit.port))
        configs = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SSL",
            "ssl.keystore.location": str(store),
        }
        cluster = stack.enter_context(
            EmbeddedCluster(
                1, log_dir=folder / OURS, more_listeners={"SECURE": "127.0.0.1:0"}, configs=configs
            )
        )
        for topic in _TOPICS:
            cluster.create_topic(topic, partitions=1)
        process = psutil.Process(cluster.pid_of(1))
        plain, secure = (
            parse_host_port(cluster.bootstrap_servers_of(name))[1] for name in ("PLAINTEXT", "SECURE")
        )
        sides[_PLAIN] = Side(process, lambda: Connection(plain))
        sides[OURS] = Side(process, over_tls(secure))
        yield sides


@pytest.mark.timeout(_TIMEOUT)
def test_tls(
    benchmark: BenchmarkFixture, with_kafka: bool, scaled: Callable[[int], int], tmp_path: Path
) -> None:
    figures = Figures()
    with running(tmp_path, with_kafka) as sides:
        for side in sides.values():
            with closing(side.connect()) as client:
                for topic, batch in zip(_TOPICS, (_ONE, _MIDDLE, _LARGE), strict=True):
                    client.produce(topic, batch, scaled(_WARMUPS) * len(_ONE) // len(batch) + 1)
            # Of a new broker the first turn is the warm-up.
            turn("warm-up", side, Figures(), scaled)

        take_turns(benchmark, [*sides], scaled(ROUNDS), lambda name: turn(name, sides[name], figures, scaled))
        for name, side in sides.items():
            figures.add(name, "memory of an idle connection", "KiB", side.idle_kib(scaled(_IDLE)))
    benchmark.extra_info.update(suite="tls", figures=figures.all)
