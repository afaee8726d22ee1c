"""Asks the questions of ``suite``, our side first, then Kafka's and ours in turns, and keeps what is known.

Command: ``python -m bench scale``, or by itself ``python -m bench.scale`` (``connections members``,
``--sides ours``, ``--minutes 40``, ``--quick``, ``--least`` and ``--most`` SIZE). Samples are in
``build/bench/scale.json`` after each size; ``--write`` puts them into ``bench/results.json``, and ``--print``
shows what is there.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic
from types import FrameType
from typing import Final

from bench.peers.process import ROOT
from bench.scale.record import Record, Samples
from bench.scale.results import write
from bench.scale.sides import KAFKA, OURS, raise_limits
from bench.scale.suite import QUESTIONS, Question

#: Characters of the reason for which a side gave up.
_LONGEST: Final = 300
_RAW: Final = ROOT / "build" / "bench" / "scale.json"


def main() -> None:
    names = [one.name for one in QUESTIONS]
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description="Measure what one more costs.")
    parser.add_argument("questions", nargs="*", help=f"some of {', '.join(names)} (all)")
    parser.add_argument("--sides", nargs="*", choices=[OURS, KAFKA], default=[OURS, KAFKA])
    parser.add_argument("--minutes", type=float, default=60.0, help="no size is begun after this time")
    parser.add_argument("--least", type=int, default=0, metavar="SIZE", help="no smaller size is asked for")
    parser.add_argument("--most", type=int, default=10**9, metavar="SIZE", help="and no larger one")
    parser.add_argument("--rounds", type=int, default=1, help="of both sides, in turns, after our first")
    parser.add_argument("--again", action="store_true", help="forget what earlier runs have measured")
    parser.add_argument("--quick", action="store_true", help="small sizes: only to see that all works")
    parser.add_argument("--print", action="store_true", help="show the samples of earlier runs")
    parser.add_argument("--write", action="store_true", help="put the samples into bench/results.json")
    options = parser.parse_args()
    for name in options.questions:
        if name not in names:
            parser.error(f"no question {name!r}; there are {', '.join(names)}")
    raw = _RAW.with_name("scale-quick.json") if options.quick else _RAW
    if options.again:
        raw.unlink(missing_ok=True)
    record = Record(raw)
    if not options.print and not options.write:
        raise_limits()
        asked = [one for one in QUESTIONS if not options.questions or one.name in options.questions]
        deadline = monotonic() + 60 * options.minutes
        sizes = range(options.least, options.most + 1)
        _Run(record, options.quick, sizes, deadline).ask_all(asked, options.sides, options.rounds)
    if options.write:
        write(record, shlex.join(["python", "-m", "bench.scale", *sys.argv[1:]]))
    _show(record)


class _Run:
    """One run. ``sizes``: that may be asked. ``deadline``: of ``monotonic``; nothing is begun after it."""

    def __init__(self, record: Record, quick: bool, sizes: range, deadline: float) -> None:
        self._record, self._quick, self._sizes, self._deadline = record, quick, sizes, deadline
        self._gave_up: set[tuple[str, str]] = set()
        #: What each question has recorded: its name -> those of the record.
        self._recorded: dict[str, set[str]] = {}
        self._number = 0

    def ask_all(self, questions: Sequence[Question], sides: Sequence[str], rounds: int) -> None:
        """Ask our side everything once; then both sides, one after the other, ``rounds`` times."""
        if OURS in sides:
            for question in questions:
                self._ask(question, OURS)
        if KAFKA not in sides:
            return
        for number in range(rounds):
            for question in questions:
                if number:
                    self._ask(question, OURS)
                self._ask(question, KAFKA)

    def _ask(self, question: Question, side: str) -> None:
        for size in question.sizes[side] if not self._quick else question.quick:
            if (question.name, side) in self._gave_up:
                return
            if size not in self._sizes:
                continue
            if monotonic() > self._deadline:
                _say(f"{question.name}, {side}, {size:,}: no time is left")
                return
            self._ask_one(question, side, size)
            self._record.write()

    def _ask_one(self, question: Question, side: str, size: int) -> None:
        _say(f"{question.name}, {side}, {size:,} …")
        self._number += 1
        before = {name: _count(samples) for name, samples in self._record.all.items()}
        began = monotonic()
        with TemporaryDirectory(prefix="bench-scale-", ignore_cleanup_errors=True) as folder:
            try:
                with _limited(question.limit):
                    question.ask(side, size, Path(folder) / str(self._number), self._record)
            except Exception as error:  # noqa: BLE001  (whatever it is: this side ends here)
                self._gave_up.add((question.name, side))
                why = f"after {monotonic() - began:.0f} s: {type(error).__name__}: {error}"
                self._record.give_up(self._recorded.get(question.name, ()), side, size, why[:_LONGEST])
                _say(f"{question.name}, {side}, {size:,}: gave up {why}")
                return
        _say(f"{question.name}, {side}, {size:,}: {monotonic() - began:.0f} s")
        self._recorded.setdefault(question.name, set()).update(
            name for name, samples in self._record.all.items() if _count(samples) > before.get(name, 0)
        )


def _count(samples: Samples) -> int:
    return sum(len(each) for by_size in samples.sides.values() for each in by_size.values())


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block after so many seconds."""

    def end(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not done after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _show(record: Record) -> None:
    for samples in record.all.values():
        print(f"{samples.question} [{samples.unit}]")
        for side, sizes in samples.sides.items():
            print(f"  {side:6}", "  ".join(f"{size:,}: {median(each):,.4g}" for size, each in sizes.items()))
        for side, reasons in samples.gave_up.items():
            for size, why in reasons.items():
                print(f"  {side:6} {size:,}: gave up {why}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
