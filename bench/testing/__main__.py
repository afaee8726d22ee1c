"""Runs one cluster for tests in this process and prints what it measures, as lines of JSON.

Command: ``python -m bench.testing live kafka`` (``ours``, ``ctrlchan-cluster``, ``kfake``, ``mock``), with
``--brokers 3``, ``--times 2`` for a second cluster in the same process; or ``... try kafka``: the semantics.
"""

from __future__ import annotations

import argparse
import json

from bench.testing.candidates import CANDIDATES
from bench.testing.life import live, warm_up


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.testing", description="Run a cluster for tests.")
    parser.add_argument("what", choices=["live", "try"])
    parser.add_argument("candidate", choices=CANDIDATES)
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--times", type=int, default=1, help="clusters one after the other")
    options = parser.parse_args()
    start = CANDIDATES[options.candidate]
    if options.what == "live":
        warm_up()
        for _ in range(options.times):
            life = live(lambda: start(options.brokers, None), options.brokers)
            print(json.dumps(life._asdict()), flush=True)
    else:
        from bench.testing.semantics import try_all

        for name, reason in try_all(start):
            print(json.dumps([name, reason]), flush=True)


if __name__ == "__main__":
    main()
