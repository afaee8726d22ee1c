"""``python -m tests.soak [seconds] [--seed N]``: exit status 0 when nothing was lost and nothing grew.

A stream of updates goes to brokers behind proxies that harm their links, while sender processes are killed
and stopped and brokers come and go. Now and then everything is healed: then every request must have its end,
the brokers' state must be the controller's, and processes, descriptors, threads and memory must be as before.
"""

from __future__ import annotations

import argparse
import ctypes
import logging
import os
import sys
from contextlib import suppress
from time import monotonic

from tests.soak.world import Failed, Figures, World

#: Seconds of faults between two times of rest.
_STORM = 4.0
#: Memory may have grown so much since the first third of the run, beyond what is counted in pages by chance.
_GROWTH = 1.10
_SLACK = 12 * 2**20
#: A new fork server holds a descriptor more or less than one that has had children, and so do its children.
_LOOSE = 8
#: glibc's mallopt.
_M_ARENA_MAX = -8


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.soak", description=__doc__)
    parser.add_argument("seconds", nargs="?", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = int.from_bytes(os.urandom(4), "big") if arguments.seed is None else arguments.seed
    # The channel's own log lines about its troubles are not shown here.
    logging.getLogger("ctrlchan").setLevel(logging.CRITICAL)
    _share_one_arena()
    print(f"{arguments.seconds:g} s, --seed {seed}", flush=True)
    try:
        with World(seed) as world:
            soak(world, arguments.seconds)
    except Failed as failure:
        print(f"FAILED: {failure} (--seed {seed})", flush=True)
        return 1
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        return 130
    print("nothing lost, nothing left, nothing grown", flush=True)
    return 0


def _share_one_arena() -> None:
    """Threads of brokers come and go by thousands: what the allocator keeps for each is no growth of ours."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def soak(world: World, seconds: float) -> None:
    """Raises Failed."""
    begun = monotonic()
    figures: list[Figures] = []
    while not figures or monotonic() - begun < seconds:
        world.storm(min(_STORM, seconds))
        figures.append(world.rest())
        print(f"{monotonic() - begun:6.0f} s  {world.counters}  {figures[-1]}", flush=True)
        # The first two rests see what is made on first use.
        if len(figures) > 2:
            _expect_same(figures[1], figures[-1])
    # Allocators and the logs of tests need some time to reach their size.
    after_a_third = figures[len(figures) // 3 :]
    if len(after_a_third) > 3:
        least = min(one.memory for one in after_a_third)
        # The lowest of the last ones: garbage that is about to be collected is no leak.
        most = min(one.memory for one in figures[-3:])
        if most > least * _GROWTH + _SLACK:
            raise Failed(f"memory grew from {least >> 20} to {most >> 20} MiB")


def _expect_same(before: Figures, now: Figures) -> None:
    for name, tolerance in (("processes", 0), ("descriptors", _LOOSE), ("threads", 0), ("shared", 0)):
        then, since = getattr(before, name), getattr(now, name)
        if abs(since - then) > tolerance:
            raise Failed(f"{name}: {then} before, {since} now")


if __name__ == "__main__":
    sys.exit(main())
