"""Counts instructions and compares them with the baseline; ``--help`` has the arguments."""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import Final

from bench.instructions.baseline import FILE, Baseline
from bench.instructions.comparison import LIMIT, compare, problems, table
from bench.instructions.counts import MeasureError, Measurement, measure, missing_tools
from bench.instructions.environment import differences, kind_of
from bench.peers.process import ROOT

#: In the order of the table.
THINGS: Final = ("codec", "sender", "produce", "fetch", "transaction", "tls", "heartbeat")
_RENEW: Final = "python -m bench.instructions --write"
_DESCRIPTION: Final = f"""\
Count the instructions of what must stay fast, and compare them with {FILE.relative_to(ROOT)}.

Fails where something takes over {(LIMIT - 1) * 100:.0f} % more, and names the functions that grew most; also
where something has no baseline. A baseline is for one major version of the compiler, one Python and one kind
of processor. Where there is none for this machine, counts are printed, and with CI set the command fails.

examples:
  python -m bench.instructions                  all; two minutes of one core
  python -m bench.instructions fetch tls        two of them
  python -m bench.instructions --write          make these counts the baseline, and commit it with the reason
"""


def main() -> int:
    """Do what the command line asks for; return the exit status."""
    parser = ArgumentParser(
        "python -m bench.instructions", description=_DESCRIPTION, formatter_class=RawDescriptionHelpFormatter
    )
    parser.add_argument("thing", nargs="*", help=f"one or more of {', '.join(THINGS)} (all)")
    parser.add_argument(
        "--write", action="store_true", help="renew the baseline instead of comparing with it"
    )
    options = parser.parse_args()
    for thing in options.thing:
        if thing not in THINGS:
            parser.error(f"no thing {thing!r}; there are {', '.join(THINGS)}")
    missing = missing_tools()
    if missing is not None:
        print(missing, file=sys.stderr)
        return 1
    try:
        measured = {thing: _measured(thing) for thing in options.thing or THINGS}
    except MeasureError as error:
        print(error, file=sys.stderr)
        return 1
    return _report(measured, writes=options.write)


def _measured(thing: str) -> Measurement:
    began = time.monotonic()
    print(f"{thing}: under valgrind …", end="", file=sys.stderr, flush=True)
    measurement = measure(thing)
    print(f" {time.monotonic() - began:.0f} s", file=sys.stderr)
    return measurement


def _report(measured: dict[str, Measurement], *, writes: bool) -> int:
    """Print the table, and the problems or what was written. Return the exit status."""
    baseline = Baseline()
    environment = next(iter(measured.values())).environment
    kind = kind_of(environment)
    has_baseline = kind in baseline.kinds
    rows = [
        row
        for thing, measurement in measured.items()
        for row in compare(measurement.counts, baseline.counts(kind, thing) if has_baseline else {})
    ]
    print(f"instructions of one repetition: {kind}\n{table(rows)}")
    if writes:
        baseline.write(kind, measured)
        print(f"written: {FILE.relative_to(ROOT)}")
        return 0
    if not has_baseline:
        print(f"\nThere is no baseline for this machine, but for: {' | '.join(baseline.kinds) or 'none'}.")
        print(f"Nothing was compared. To make one here: {_RENEW}")
        return 1 if os.environ.get("CI") else 0
    found = problems(rows)
    if found:
        print("\n" + "\n".join(found))
        for line in differences(baseline.environment(kind), environment):
            print(f"note: {line}")
        print(f"\nWhere that is meant: {_RENEW}, and commit the baseline with the reason.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
