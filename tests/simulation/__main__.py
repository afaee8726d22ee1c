"""Histories of simulated brokers; the exit status is 0 when every guarantee held in all of them."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Final

from tests.simulation.history import History

EXAMPLES: Final = """examples:
  python -m tests.simulation                     1,000 histories that nobody has seen before
  python -m tests.simulation --seed 7            the history of one seed, the same each time, with its events
  python -m tests.simulation --seed 1 --seeds 10000
                                                 the seeds 1 to 10,000, as `make acceptance` runs them
"""
_PROGRESS_SECONDS: Final = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, help="the first seed (default: a random one)")
    parser.add_argument("--seeds", type=int, help="how many (default: 1 with --seed, else 1,000)")
    parser.add_argument("--keep-going", action="store_true", help="go on after a seed that fails")
    arguments = parser.parse_args()
    first = int.from_bytes(os.urandom(4)) if arguments.seed is None else arguments.seed
    count = arguments.seeds or (1000 if arguments.seed is None else 1)
    begin = said = time.monotonic()
    failed = []
    for seed in range(first, first + count):
        history = History(seed)
        try:
            history.run()
        except Exception as error:  # noqa: BLE001  (whatever ends a history is a finding)
            failed.append(seed)
            _report(history, error)
            if not arguments.keep_going:
                return 1
        if count == 1:
            print(*history.events, sep="\n")
            print(f"seed {seed}: {history.step} steps, digest {history.digest}")
        if time.monotonic() - said >= _PROGRESS_SECONDS:
            said = time.monotonic()
            done = seed - first + 1
            rate = done / (said - begin)
            print(f"{done:,} of {count:,} histories, {rate:.0f} a second, {len(failed)} failed", flush=True)
    seconds = time.monotonic() - begin
    print(
        f"seeds {first} to {first + count - 1}: {count:,} histories in {seconds:.1f} s, "
        f"failed: {failed or 'none'}"
    )
    return 1 if failed else 0


def _report(history: History, error: Exception) -> None:
    print(*history.events, sep="\n")
    print(f"seed {history.seed}, step {history.step}: {type(error).__name__}: {error}")
    print(f"the same again: make simulate SEED={history.seed}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
