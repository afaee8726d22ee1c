"""python -m tests.acceptance.random_requests --count 100000 --seed 1

Sends random requests to Kafka 3.9.1 and to a broker of ours, and prints how answers differ (``make
random-requests``). ``--chunk N`` runs one chunk again.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.acceptance.random_requests.run import CHUNK, CONFIGS, Outcome, run
from tests.acceptance.same_answers.both import both_brokers


def main() -> int:
    """Return the exit status: 1 if answers differ."""
    parser = argparse.ArgumentParser(description="the same random requests to Kafka and to a broker of ours")
    parser.add_argument("--count", type=int, default=100_000, help="how many requests")
    parser.add_argument("--seed", type=int, help="of the requests; a new one without it")
    parser.add_argument("--chunk", type=int, help=f"only this chunk of {CHUNK} requests")
    given = parser.parse_args()
    seed = random.randrange(2**31) if given.seed is None else given.seed
    chunks = range(-(-given.count // CHUNK)) if given.chunk is None else [given.chunk]
    began, shown = time.monotonic(), 0

    def report(chunk: int, outcome: Outcome) -> None:
        nonlocal shown
        for one in outcome.found[shown:]:
            print(one, flush=True)
        shown = len(outcome.found)
        seconds = time.monotonic() - began
        print(
            f"seed {seed}: {sum(outcome.asked.values()):,} requests, chunk {chunk} has ended, "
            f"{shown} differences, {seconds:.0f} s",
            file=sys.stderr,
            flush=True,
        )

    print(f"seed {seed}: starting the brokers", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder, both_brokers(Path(folder), CONFIGS) as both:
        outcome = run(both, seed, chunks, CHUNK, report)
    for one in outcome.found:
        chunk = one.split(", ")[1].removeprefix("chunk ")
        print(f"again: make random-requests SEED={seed} CHUNK={chunk}")
    return 1 if outcome.found else 0


if __name__ == "__main__":
    sys.exit(main())
