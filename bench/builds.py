"""Compares plain Produce and Fetch of several checkouts: their brokers run at once and take short turns.

Command: ``python -m bench.builds BEFORE AFTER``: folders of checkouts whose extensions are compiled. What
else the machine does hits all sides alike, so differences of a few percent can be seen. Figures are those of
the broker's process: its processor time, user and system, for one request.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import psutil

from bench.figures import processor_seconds_of, rotated
from bench.peers.brokers import create_topic
from bench.peers.process import PeerProcess
from bench.peers.record_load import Connection, batch_of

_TURNS: Final = 60
_ONE: Final = batch_of(1, 100)
_MIDDLE: Final = batch_of(150, 100)
_TOPICS: Final = ("small", "middle")
_FETCHED: Final = 1_000_000  # bytes in a turn
#: What a child runs on the package of its checkout, which may be older than this file.
_BROKER: Final = """
import sys
from ctrlchan import EmbeddedCluster
with EmbeddedCluster(1, log_dir=sys.argv[1]) as cluster:
    (port,) = (endpoint.port for broker in cluster.brokers for endpoint in broker.endpoints)
    print(port, cluster.pids[0], flush=True)
    sys.stdin.readline()
"""


class _Build(NamedTuple):
    process: psutil.Process
    client: Connection


def _start(checkout: Path, stack: ExitStack) -> _Build:
    """Start a broker on the code of a checkout, and connect to it."""
    folder = stack.enter_context(TemporaryDirectory())
    command = ["env", f"PYTHONPATH={checkout}", sys.executable, "-c", _BROKER, folder]
    child = stack.enter_context(PeerProcess(command, checkout))
    port, pid = map(int, child.read_line().split())
    for topic in _TOPICS:
        create_topic(port, topic)
    return _Build(psutil.Process(pid), stack.enter_context(closing(Connection(port))))


def _compare(what: str, builds: list[_Build], work: Callable[[Connection], int]) -> None:
    """Print a line of figures. `work` returns how many requests it has sent."""
    figures: list[list[float]] = [[] for _ in builds]
    for turn in range(_TURNS):
        for build, times in rotated([*zip(builds, figures, strict=True)], turn):
            used, requests = processor_seconds_of(build.process, partial(work, build.client))
            times.append(used / requests * 1e6)
    cells = [f"{median(side):8.2f} {quantiles(side, n=10)[0]:8.2f}" for side in figures]
    ratios = [median(b / a for a, b in zip(figures[0], side, strict=True)) for side in figures[1:]]
    print(f"{what:30}", *cells, *(f"{ratio:6.3f}" for ratio in ratios), flush=True)


def main() -> None:
    """Run the comparison that the command line asks for."""
    parser = ArgumentParser("python -m bench.builds", description=__doc__.split("\n\n")[0])
    parser.add_argument("checkouts", nargs="+", type=Path, metavar="CHECKOUT")
    checkouts = [checkout.resolve() for checkout in parser.parse_args().checkouts]
    with ExitStack() as stack:
        builds = [_start(checkout, stack) for checkout in checkouts]
        print("processor time of a request, µs: of each checkout the median and the first decile;")
        print("then the median of the turns' ratios to the first checkout")

        def produce(topic: str, batch: bytes, requests: int) -> Callable[[Connection], int]:
            def work(client: Connection) -> int:
                client.produce(topic, batch, requests)
                return requests

            return work

        def fetch(client: Connection) -> int:
            return client.fetch("small", 1024, _ONE, 1, _FETCHED)

        _compare("Produce of one record of 100 B", builds, produce("small", _ONE, 10_000))
        _compare("Produce of a batch of 16 KiB", builds, produce("middle", _MIDDLE, 1_000))
        _compare("Fetch of 1 KB", builds, fetch)


if __name__ == "__main__":
    main()
