"""Lets one controller handle the measured events and prints what they take.

Command: ``python -m bench.cluster kafka --partitions 10000 --brokers 30`` (``ours``, ``--events death
--rounds 3``; no events: failovers only).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from time import monotonic

from bench.cluster.layout import Layout
from bench.cluster.run import EVENTS, running


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.cluster", description="Measure one controller by itself."
    )
    parser.add_argument("side", choices=["ours", "kafka"])
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--brokers", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--failovers", type=int, default=3, help="in each round, before the other events")
    parser.add_argument("--events", nargs="*", default=list(EVENTS), help="words in the names of events")
    options = parser.parse_args()
    events = [name for name in EVENTS if any(word in name for word in options.events)]
    begin = monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="bench-cluster-") as folder,
        running(Layout(options.partitions, options.brokers), Path(folder)) as run,
        run.ours() if options.side == "ours" else run.kafka() as controller,
    ):
        print(f"ready after {monotonic() - begin:.0f} s", flush=True)
        for number in range(options.rounds):
            turn = run.turn(controller, events, options.failovers)
            print(f"round {number}, {monotonic() - begin:.0f} s; peak memory {turn.pss_mib:.0f} MiB")
            for name, repetitions in turn.events.items():
                for one in repetitions:
                    print(
                        f"  {name}: {one.ms:,.0f} ms; seconds of processor time: "
                        f"controller {one.controller_cpu:.2f}, ZooKeeper {one.zookeeper_cpu:.2f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
