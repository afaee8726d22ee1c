"""Runs under callgrind: does the work of one thing once N times and once 2 N times, with a dump behind each.

The difference of the two has no start and no end. Output: the environment as JSON, then a line for each name
with its N.

Command: ``python -m bench.instructions.child THING``; without valgrind nothing is counted.
"""

from __future__ import annotations

import gc
import json
import sys
from importlib import import_module

from bench.instructions import marks
from bench.instructions.environment import of_this_process
from bench.instructions.measured import Open

__all__ = ["label"]

#: Python's interpreter rewrites its byte code after some calls; buffers grow to their size.
_WARMUPS = 50


def label(name: str, times: int) -> str:
    """Return the name of a dump: of how many times N it is."""
    return f"{name} x{times}"


def main() -> None:
    (thing,) = sys.argv[1:]
    print(json.dumps(of_this_process()))
    open_thing: Open = import_module(f"bench.instructions.things.{thing}").opened
    with open_thing() as all_measured:
        for one in all_measured.values():
            one.work(min(_WARMUPS, one.repetitions))
        # A collection comes after a number of new objects, of which the number before counts, too.
        gc.collect()
        gc.disable()
        marks.begin()
        for name, one in all_measured.items():
            for times in (1, 2):
                one.work(times * one.repetitions)
                marks.dump(label(name, times))
            print(one.repetitions, name)


if __name__ == "__main__":
    main()
