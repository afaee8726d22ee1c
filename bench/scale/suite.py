"""The questions of the suite, the sizes at which each side is asked, and how long it may take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.scale import connections, controllers, fetches, groups, partitions, pushes
from bench.scale.record import Record
from bench.scale.sides import KAFKA, OURS

__all__ = ["QUESTIONS", "Question"]

_THREE_MINUTES: Final = 180.0
#: Three racks need a multiple of three.
_BROKERS: Final = (30, 102, 300)


@dataclass(frozen=True)
class Question:
    """``sizes``: side -> sizes, ascending; a side that gives up at one is not asked about larger ones.

    ``limit``: seconds for one size. ``quick``: sizes of a run that only shows that it works.
    """

    name: str
    ask: Callable[[str, int, Path, Record], None]
    sizes: Mapping[str, Sequence[int]]
    quick: Sequence[int]
    limit: float = _THREE_MINUTES


def _both(*sizes: int) -> dict[str, Sequence[int]]:
    return {OURS: sizes, KAFKA: sizes}


QUESTIONS: Final[Sequence[Question]] = (
    Question("connections", connections.ask, _both(10, 1_000, 10_000), (10, 100)),
    *(
        Question(
            f"controller-{brokers}",
            partial(controllers.ask, brokers=brokers, limit=_THREE_MINUTES),
            {
                OURS: (100_000, 300_000, 1_000_000),
                KAFKA: (100_000, 300_000) if brokers == _BROKERS[0] else (100_000,),
            },
            (1_000, 2_000),
            limit=600.0,
        )
        for brokers in _BROKERS
    ),
    Question("partitions", partitions.ask, _both(1, 1_000, 10_000, 50_000), (1, 100)),
    Question("members", groups.ask_of_members, _both(10, 100, 1_000), (10, 30)),
    Question("groups", groups.ask_of_groups, _both(10, 1_000, 10_000), (10, 100)),
    Question("behind", fetches.ask_behind, _both(10, 100, 1_000), (10, 20)),
    Question("sessions", fetches.ask_of_sessions, _both(1, 100, 1_000, 10_000), (1, 100)),
    Question("producers", fetches.ask_of_producers, _both(1_000, 10_000, 100_000), (100, 1_000)),
    Question("push-100000", partial(pushes.ask, partitions=100_000), _both(30, 100, 300, 1_000), (3, 10)),
    Question(
        "push-1000000",
        partial(pushes.ask, partitions=1_000_000),
        {OURS: (100, 300, 1_000), KAFKA: (100,)},
        (3, 10),
        limit=300.0,
    ),
)
