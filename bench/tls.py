"""Measures what TLS costs a broker: processor time beside plaintext, and the memory of a connection.

Command: ``python -m bench.tls``. One broker with a plaintext and a TLS listener (TLS 1.3, AES-256-GCM, a
certificate with a key of P-256), in turns. The client is in this process, so processor time is the broker's
alone.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import psutil
import trustme

from bench.figures import Figures, processor_seconds_of, rotated
from bench.peers.record_load import Connection, batch_of
from ctrlchan import EmbeddedCluster
from ctrlchan.state.brokers import parse_host_port

_ROUNDS: Final = 3
_SMALL_REQUESTS: Final = 3_000
_BYTES: Final = 20_000_000
_HANDSHAKES: Final = 100
_IDLE: Final = 300
_ONE: Final = batch_of(1, 100)
_MIDDLE_RECORDS, _LARGE_RECORDS = 150, 2_400
_MIDDLE: Final = batch_of(_MIDDLE_RECORDS, 100)
_LARGE: Final = batch_of(_LARGE_RECORDS, 100)
PLAIN, TLS = "plaintext", "TLS"


class TlsConnection(Connection):
    """The same requests over TLS."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        super().__init__(port)
        self._socket = context.wrap_socket(self._socket, server_hostname="localhost")


def turn(side: str, connect: Callable[[], Connection], process: psutil.Process, figures: Figures) -> None:
    """Measure everything once on one listener."""

    def seconds(work: Callable[[], object]) -> float:
        return processor_seconds_of(process, work)[0]

    with closing(connect()) as client:
        spent = seconds(lambda: client.produce("small", _ONE, _SMALL_REQUESTS))
        figures.add(side, "Produce of one record of 100 B", "µs", spent / _SMALL_REQUESTS * 1e6)
        for what, topic, batch in (("16 KiB", "middle", _MIDDLE), ("256 KiB", "large", _LARGE)):
            count = _BYTES // len(batch)
            spent = seconds(lambda: client.produce(topic, batch, count))  # noqa: B023  (called at once)
            figures.add(side, f"Produce of batches of {what}", "s/GB", spent / (count * len(batch)) * 1e9)
        spent = seconds(lambda: client.fetch("large", 1 << 20, _LARGE, _LARGE_RECORDS, _BYTES))
        figures.add(side, "Fetch of 1 MiB", "s/GB", spent / _BYTES * 1e9)

    def reconnect() -> None:
        for _ in range(_HANDSHAKES):
            connect().close()

    figures.add(side, "connect and close", "µs", seconds(reconnect) / _HANDSHAKES * 1e6)


def idle_kib(connect: Callable[[], Connection], process: psutil.Process) -> float:
    """Return the memory of a connection that has sent a request and is idle."""
    before = process.memory_full_info().uss
    with ExitStack() as stack:
        for _ in range(_IDLE):
            client = stack.enter_context(closing(connect()))
            client.produce("small", _ONE, 1)
        return float(process.memory_full_info().uss - before) / _IDLE / 1024


def main() -> None:
    authority = trustme.CA()
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with TemporaryDirectory() as folder:
        store = Path(folder, "broker.pem")
        store.write_bytes(authority.issue_cert("localhost").private_key_and_cert_chain_pem.bytes())
        configs = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SSL",
            "ssl.keystore.location": str(store),
        }
        with EmbeddedCluster(1, more_listeners={"SECURE": "127.0.0.1:0"}, configs=configs) as cluster:
            for topic in ("small", "middle", "large"):
                cluster.create_topic(topic, partitions=1)
            process = psutil.Process(cluster.pid_of(1))
            ports = {
                side: parse_host_port(cluster.bootstrap_servers_of(name))[1]
                for side, name in ((PLAIN, "PLAINTEXT"), (TLS, "SECURE"))
            }
            connects: dict[str, Callable[[], Connection]] = {
                PLAIN: lambda: Connection(ports[PLAIN]),
                TLS: lambda: TlsConnection(ports[TLS], context),
            }
            warm, figures = Figures(), Figures()
            for side, connect in connects.items():
                turn(side, connect, process, warm)
            for number in range(_ROUNDS):
                for side in rotated([*connects], number):
                    turn(side, connects[side], process, figures)
            for side, connect in connects.items():
                figures.add(side, "memory of an idle connection", "KiB", idle_kib(connect, process))
    for what, (unit, sides) in figures.all.items():
        plain, tls = (sorted(sides[side]) for side in (PLAIN, TLS))
        figure = (
            f"| {what} | {unit} | {median(plain):.2f} ({plain[0]:.2f}) | {median(tls):.2f} ({tls[0]:.2f}) |"
        )
        # The allocator may give more memory back than plaintext connections need.
        print(figure, f"{median(tls) / median(plain):.1f} |" if unit != "KiB" else "|")


if __name__ == "__main__":
    main()
