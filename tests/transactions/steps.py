"""What a history consists of, and how Hypothesis makes one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from hypothesis import strategies as st

from tests.transactions.cluster import PARTITIONS

__all__ = [
    "HISTORIES",
    "IDS",
    "TARGETS",
    "Crash",
    "End",
    "Init",
    "Kill",
    "Look",
    "Move",
    "Offsets",
    "Plain",
    "Plan",
    "Send",
    "Step",
    "Stop",
    "Whole",
    "plan_of",
]

#: The transactional id of each producer: the first two share one, and fence each other.
IDS: Final = ("a", "a", "b", "c")
#: What a step is aimed at: the leader of a partition, the coordinator of an id, and that of the group.
TARGETS: Final = PARTITIONS + 3 + 1


@dataclass(frozen=True)
class Init:
    """A producer becomes that of its id. ``recovers``: it names its id and epoch of before (KIP-360)."""

    producer: int
    recovers: bool


@dataclass(frozen=True)
class Send:
    """A producer sends records, in a transaction that it begins where none is open."""

    producer: int
    partition: int
    count: int


@dataclass(frozen=True)
class Offsets:
    """A producer commits an offset of the group in its transaction."""

    producer: int


@dataclass(frozen=True)
class End:
    """A producer commits or aborts its transaction."""

    producer: int
    commits: bool


@dataclass(frozen=True)
class Whole:
    """A producer sends to both partitions, commits an offset, and commits or aborts."""

    producer: int
    partition: int
    commits: bool


@dataclass(frozen=True)
class Crash:
    """A producer ends; ``within``: after a request that nobody waits for the answer of."""

    producer: int
    within: str


@dataclass(frozen=True)
class Plain:
    """A producer without transactions sends a record."""

    partition: int


@dataclass(frozen=True)
class Look:
    """Reads a partition, and checks what is seen."""

    partition: int


@dataclass(frozen=True)
class Move:
    """Lets broker number ``to`` lead what the target stands for."""

    target: int
    to: int


@dataclass(frozen=True)
class Kill:
    """Kills a broker with SIGKILL for as many steps."""

    target: int
    steps: int


@dataclass(frozen=True)
class Stop:
    """Stops the process of a broker for as many steps; ``forgotten``: its session ends meanwhile."""

    target: int
    steps: int
    forgotten: bool


Step: TypeAlias = Init | Send | Offsets | End | Crash | Plain | Look | Move | Kill | Stop | Whole


@dataclass(frozen=True)
class Plan:
    """A whole history. ``returns``: in the end producers come back; else the time of transactions ends."""

    steps: tuple[Step, ...]
    returns: bool


_BYTES_OF_A_STEP: Final = 4
_FEWEST, _MOST = 12, 28
_WITHIN: Final = ("nothing", "add", "send", "offsets", "commit", "abort")
#: The second producer of an id comes less often: it fences the first.
_PRODUCERS: Final = (0, 2, 3, 0, 2, 3, 1)
#: Each kind of steps, and how often it is drawn: its share of 64.
_KINDS: Final[tuple[tuple[int, Callable[[int, int, int], Step]], ...]] = (
    (16, lambda a, b, c: Send(_producer(a), b % PARTITIONS, 1 + c % 3)),
    (12, lambda a, b, c: End(_producer(a), b % 3 > 0)),
    (12, lambda a, b, c: Whole(_producer(a), b % PARTITIONS, c % 3 > 0)),
    (5, lambda a, b, c: Offsets(_producer(a))),
    (4, lambda a, b, c: Crash(_producer(a), _WITHIN[b % len(_WITHIN)])),
    (4, lambda a, b, c: Look(a % PARTITIONS)),
    (3, lambda a, b, c: Init(_producer(a), b % 2 > 0)),
    (2, lambda a, b, c: Plain(a % PARTITIONS)),
    (4, lambda a, b, c: Move(a % TARGETS, 1 + b % 3)),
    (1, lambda a, b, c: Kill(a % TARGETS, 1 + b % 8)),
    (1, lambda a, b, c: Stop(a % TARGETS, 1 + b % 4, c % 2 > 0)),
)
_DRAWN: Final = [make for share, make in _KINDS for _ in range(share)]


def _producer(number: int) -> int:
    return _PRODUCERS[number % len(_PRODUCERS)]


def plan_of(data: bytes) -> Plan:
    """Return the history that stands in these bytes: one byte, and four for each step."""
    steps = [
        _DRAWN[data[at] % len(_DRAWN)](*data[at + 1 : at + _BYTES_OF_A_STEP])
        for at in range(1, len(data) - _BYTES_OF_A_STEP + 1, _BYTES_OF_A_STEP)
    ]
    return Plan(tuple(steps), data[0] % 2 > 0)


# Bytes, and no lists: of these Hypothesis makes many from one, with the same steps again and again.
HISTORIES: Final = st.binary(
    min_size=1 + _FEWEST * _BYTES_OF_A_STEP, max_size=1 + _MOST * _BYTES_OF_A_STEP
).map(plan_of)
