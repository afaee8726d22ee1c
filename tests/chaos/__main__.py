"""A cluster of real processes under faults; the exit status is 0 when every guarantee held.

Real ZooKeeper, two controllers and four brokers that store records run with producers, readers and consumer
groups, while processes are killed, frozen and restarted, links are cut, disks get full, logs lose what was
not flushed, leaders and replicas move, and topics come and go. In the end all that was acknowledged must be
there.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Final

from tests.chaos.hosts import enter, is_entered
from tests.chaos.leaks import MARK, left_behind
from tests.chaos.plan import Kind, Plan, make_plan
from tests.chaos.report import Progress, Result, result_lines
from tests.chaos.run import Run

EXAMPLES: Final = """examples:
  python -m tests.chaos                          ten minutes with another plan each time
  python -m tests.chaos --seconds 60 --seed 7    one round, the same each time
  python -m tests.chaos --plan build/chaos/20260101-120000-7/plan.json
                                                 the faults of a file, such as some of those of another run
  python -m tests.chaos --keep                   keep the files of the run also when it passes
"""
FOLDER: Final = Path("build", "chaos")
ENDING: Final = (signal.SIGINT, signal.SIGTERM)


def main() -> int:
    arguments = _arguments()
    if not arguments.loopback:
        enter()
    for number in ENDING:
        signal.signal(number, _end)
    begin = time.monotonic()
    progress = Progress()
    if arguments.plan is None:
        seed = int.from_bytes(os.urandom(4)) if arguments.seed is None else arguments.seed
        plan = make_plan(seed, arguments.seconds, () if is_entered() else (Kind.FULL_DISK,))
        command = ["make", "chaos", f"SECONDS={arguments.seconds:g}", f"SEED={seed}"]
        if arguments.loopback:
            command = ["python", "-m", "tests.chaos", "--loopback", "--seconds"]
            command += [f"{arguments.seconds:g}", "--seed", f"{seed}"]
    else:
        plan = Plan.from_json(arguments.plan.read_text())
        command = ["python", "-m", "tests.chaos", "--plan", str(arguments.plan)]
    folder = (FOLDER / f"{time.strftime('%Y%m%d-%H%M%S')}-{plan.seed}").absolute()
    folder.mkdir(parents=True)
    os.environ[MARK] = folder.name
    (folder / "plan.json").write_text(plan.to_json())
    result = Result(plan.seed, shlex.join(command))
    faults = sum(map(len, plan.rounds))
    progress.say([f"seed {plan.seed}: {faults} faults in {len(plan.rounds)} rounds ({folder / 'plan.json'})"])
    status = 1
    try:
        run = Run(plan, folder, result, progress, arguments.rate)
        progress.say([run.description])
        run.execute()
        status = 0
    except _EndedError as end:
        result.failures.append("interrupted")
        status = 128 + end.number
    result.seconds = time.monotonic() - begin
    result.failures += _left_behind(folder)
    status = status or (1 if result.failures else 0)
    keep = arguments.keep or status == 1
    if not keep:
        shutil.rmtree(folder)
    progress.say(result_lines(result, folder if keep else None))
    return status


class _EndedError(Exception):
    """The run was ended by a signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _end(number: int, _frame: FrameType | None) -> None:
    # What was started is ended now, without another interruption.
    for one in ENDING:
        signal.signal(one, signal.SIG_IGN)
    raise _EndedError(number)


def _left_behind(folder: Path) -> list[str]:
    """Return what the run has left; children of a controller that was killed need a moment to notice."""
    deadline = time.monotonic() + 20.0
    while (found := left_behind(folder.name, folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="how long, in rounds of 60 s (default 600)"
    )
    parser.add_argument("--seed", type=int, help="the same seed gives the same plan (default: a random one)")
    parser.add_argument("--plan", type=Path, metavar="FILE", help="a plan instead of a seed")
    parser.add_argument("--rate", type=float, default=1500.0, help="records a second (default 1500)")
    parser.add_argument(
        "--loopback",
        action="store_true",
        help="proxies and no network namespaces, as where these are not allowed",
    )
    parser.add_argument("--keep", action="store_true", help="keep the files of a run that passes")
    return parser.parse_args()


if __name__ == "__main__":
    ended_with = main()
    sys.stdout.flush()
    # Threads of clients whose brokers are gone would wait for them.
    os._exit(ended_with)
