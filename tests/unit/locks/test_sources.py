"""The rules for mutexes, checked in the sources of all Cython rooms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.locks import cython_sources

ROOT = Path(__file__).parents[3]

#: A thread with the GIL waits for a mutex whose owner takes the GIL: what froze brokers.
FREEZING = """
cdef void release_partition(PartitionState* p) noexcept nogil:
    lock(&p.table.mutex)
    p.pins -= 1
    unlock(&p.table.mutex)

cdef class PartitionTable:
    def _run(self):
        release_partition(p)

    def set_live_brokers(self, ids):
        with nogil:
            lock(&self.table.mutex)
        self.live = ids
        unlock(&self.table.mutex)

    def fine(
        self, ids
    ):
        \"\"\"Requires nothing.\"\"\"
        with nogil:
            release_partition(p)
            lock(&self.table.mutex)
            unlock(&self.table.mutex)
        return "lock(nothing)"  # lock(nothing)

cdef int move(PartitionState* p) noexcept nogil:
    \"\"\"Requires the mutex.\"\"\"
    with gil:
        release_partition(p)
    return 0
"""


def _sources() -> dict[Path, str]:
    return cython_sources.read(ROOT / "ctrlchan")


@pytest.mark.parametrize(
    "rule",
    [
        cython_sources.foreign_mutexes,
        cython_sources.locked_with_gil,
        cython_sources.held_with_gil,
        cython_sources.unchecked_requirements,
    ],
)
def test_no_source_breaks_a_rule(rule) -> None:  # type: ignore[no-untyped-def]
    assert rule(_sources()) == []


def test_the_functions_that_lock_are_found() -> None:
    functions = [
        function
        for path, text in _sources().items()
        if path.suffix != ".h"
        for function in cython_sources.functions_of(path, text)
    ]
    names, methods = cython_sources.waiting_functions(functions)
    assert {"find_partition", "wake", "complete", "append_to_leader", "release_session"} <= names
    assert {"set_high_watermark", "append_leader", "read_range"} <= methods
    required = [one for one in functions if any(name == "require" for _, name, _ in one.calls())]
    assert len(required) > 20


def test_code_that_breaks_the_rules_is_found() -> None:
    sources = {Path("room/_partitions.pyx"): FREEZING, Path("room/x.h"): "pthread_mutex_lock(&m);"}
    assert cython_sources.foreign_mutexes(sources) == ["room/x.h, line 1: pthread_mutex_lock"]
    assert cython_sources.locked_with_gil(sources) == [
        "room/_partitions.pyx, line 9: _run calls release_partition with the GIL",
        "room/_partitions.pyx, line 30: move calls release_partition with the GIL",
    ]
    held = cython_sources.held_with_gil(sources)
    assert [one.split(":")[0] for one in held] == [
        "room/_partitions.pyx, line 13",
        "room/_partitions.pyx, line 14",
    ]
    assert cython_sources.unchecked_requirements(sources) == [
        "room/_partitions.pyx, line 27: move requires a mutex and does not check it"
    ]
