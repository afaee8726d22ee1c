"""Measures one controller by itself and prints the numbers.

Command: ``python -m bench.peers kafka --brokers 30 --partitions 100000`` (``ours``, ``--config '{"senders":
"per-broker"}'``, ``--heap 1g``); ``--help`` lists the rest.
"""

from __future__ import annotations

import argparse
import json
from statistics import median
from typing import Final

from bench.memory import cpu_seconds, peak_pss_mib
from bench.peers.controllers import KAFKA_HEAP, UNMERGED, Controller, kafka, ours
from bench.peers.native import Sink

#: Timed windows of small requests; a JVM needs most of them to warm up.
_WINDOWS: Final = 45
_LAST_WINDOWS: Final = 10
_WATCHED_PUSHES: Final = 5


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers", description="Run one controller by itself."
    )
    parser.add_argument("side", choices=["ours", "kafka"])
    parser.add_argument("--brokers", type=int, default=30)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=20, help="full pushes")
    parser.add_argument("--small-rounds", type=int, default=300, help="rounds of small requests in a window")
    parser.add_argument("--config", type=json.loads, default={}, help="ours: fields of ChannelConfig, JSON")
    parser.add_argument("--heap", default=KAFKA_HEAP, help="kafka: the JVM's -Xmx")
    options = parser.parse_args()
    with Sink() as sink:
        shape = sink.port, options.brokers, options.partitions
        made = (
            ours(*shape, UNMERGED | options.config) if options.side == "ours" else kafka(*shape, options.heap)
        )
        with made as controller:
            print(f"START ms={controller.start():.1f}")
            _pushes(controller, options.rounds)
            if options.small_rounds:
                _small(controller, sink, options.brokers, options.small_rounds)


def _pushes(controller: Controller, rounds: int) -> None:
    pushes = []
    for number in range(rounds):
        push = controller.push()
        print(f"round {number} build {push.build:.1f} send {push.send:.1f} total {push.total:.1f} ms")
        pushes.append(push)
    # In untimed pushes, because measuring memory takes time.
    peak = peak_pss_mib(controller.pid, lambda: [controller.push() for _ in range(_WATCHED_PUSHES)])
    totals, builds = [push.total for push in pushes], [push.build for push in pushes]
    print(
        f"FANOUT first_ms={totals[0]:.1f} min_ms={min(totals):.1f} median_ms={median(totals):.1f} "
        f"build_ms={min(builds):.1f} peak_pss_mib={peak:.0f}"
    )


def _small(controller: Controller, sink: Sink, brokers: int, rounds: int) -> None:
    for name, window in (("awaited", controller.awaited), ("queued", controller.queued)):
        times = [window(rounds) for _ in range(_WINDOWS - _LAST_WINDOWS)]
        before = _cpu(controller, sink)
        times += [window(rounds) for _ in range(_LAST_WINDOWS)]
        each = [
            (now - then) * 1e6 / (_LAST_WINDOWS * rounds * brokers)
            for now, then in zip(_cpu(controller, sink), before, strict=True)
        ]
        rates = [rounds * brokers / milliseconds * 1e3 for milliseconds in times]
        warm = rates[-_LAST_WINDOWS:]
        print(
            f"SMALL {name} first={rates[0]:.0f} best={max(warm):.0f} median={median(warm):.0f} requests/s; "
            f"CPU us a request: controller {each[0]:.1f}, its senders {each[1]:.1f}, sink {each[2]:.1f}"
        )


def _cpu(controller: Controller, sink: Sink) -> tuple[float, float, float]:
    alone = cpu_seconds(controller.pid, alone=True)
    return alone, cpu_seconds(controller.pid) - alone, cpu_seconds(sink.pid)


if __name__ == "__main__":
    main()
