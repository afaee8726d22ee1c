"""The plan of a run: which fault meets whom, when and for how long. The same seed gives the same plan."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

__all__ = ["BROKERS", "CONTROLLERS", "ZOOKEEPER", "Fault", "Kind", "Plan", "make_plan"]

ZOOKEEPER: Final = "zookeeper"
CONTROLLERS: Final = ("controller-101", "controller-102")
BROKERS: Final = ("broker-1", "broker-2", "broker-3", "broker-4")

#: Seconds of a round: faults begin in the first part of it, then everything heals.
ROUND: Final = 60.0
STORM: Final = 40.0
#: Seconds between two faults, on average.
BETWEEN: Final = 2.5
#: Seconds that a node is left alone after a fault of its process, so that it can start.
START: Final = 6.0
#: So many brokers may be killed or frozen at a time, but for a power cut.
MOST_DOWN: Final = 2


class Kind(StrEnum):
    """What can happen."""

    KILL = "kill"
    #: As ``KILL``, and logs lose their unflushed ends before the broker starts again.
    TEAR = "tear"
    FREEZE = "freeze"
    RESTART = "restart"
    ROLLING_RESTART = "rolling restart"
    #: All brokers are killed at once.
    POWER_CUT = "power cut"
    FULL_DISK = "full disk"
    CUT_LINK = "cut link"
    KILL_ZOOKEEPER = "kill zookeeper"
    KILL_CONTROLLER = "kill controller"
    FREEZE_CONTROLLER = "freeze controller"
    RESTART_CONTROLLER = "restart controller"
    #: ``/controller`` is deleted, so that the next one is elected.
    MOVE_CONTROLLER = "move controller"
    REASSIGN = "reassign"
    ELECT = "elect"


#: How likely each kind is.
WEIGHTS: Final = {
    Kind.KILL: 5,
    Kind.TEAR: 4,
    Kind.FREEZE: 5,
    Kind.RESTART: 4,
    Kind.ROLLING_RESTART: 1,
    Kind.POWER_CUT: 1,
    Kind.FULL_DISK: 2,
    Kind.CUT_LINK: 7,
    Kind.KILL_ZOOKEEPER: 2,
    Kind.KILL_CONTROLLER: 2,
    Kind.FREEZE_CONTROLLER: 2,
    Kind.RESTART_CONTROLLER: 2,
    Kind.MOVE_CONTROLLER: 2,
    Kind.REASSIGN: 7,
    Kind.ELECT: 3,
}
#: Seconds, least and most.
DURATIONS: Final = {
    Kind.KILL: (0.0, 12.0),
    Kind.TEAR: (0.0, 12.0),
    Kind.FREEZE: (1.0, 20.0),
    Kind.POWER_CUT: (0.0, 3.0),
    Kind.FULL_DISK: (1.0, 10.0),
    Kind.CUT_LINK: (1.0, 15.0),
    Kind.KILL_ZOOKEEPER: (0.0, 8.0),
    Kind.KILL_CONTROLLER: (0.0, 8.0),
    Kind.FREEZE_CONTROLLER: (1.0, 20.0),
}
_OF_A_BROKER: Final = (Kind.KILL, Kind.TEAR, Kind.FREEZE, Kind.RESTART, Kind.FULL_DISK)
_OF_ALL_BROKERS: Final = (Kind.POWER_CUT, Kind.ROLLING_RESTART)
_OF_A_CONTROLLER: Final = (Kind.KILL_CONTROLLER, Kind.FREEZE_CONTROLLER, Kind.RESTART_CONTROLLER)


@dataclass(frozen=True)
class Fault:
    """One fault. ``at``: seconds from the begin of its round; ``seed``: of what is chosen when it happens."""

    at: float
    kind: Kind
    targets: tuple[str, ...]
    duration: float
    seed: int


@dataclass(frozen=True)
class Plan:
    """The faults of each round."""

    seed: int
    rounds: tuple[tuple[Fault, ...], ...]

    def to_json(self) -> str:
        """Return the plan as text: one line for each fault."""
        rounds = [
            "[\n  " + ",\n  ".join(json.dumps(asdict(fault)) for fault in faults) + "\n ]"
            for faults in self.rounds
        ]
        return f'{{"seed": {self.seed}, "rounds": [\n ' + ",\n ".join(rounds) + "\n]}\n"

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read a plan. Raises ValueError, KeyError or TypeError where it is not one."""
        data = json.loads(text)
        rounds = tuple(
            tuple(
                Fault(
                    float(one["at"]),
                    Kind(one["kind"]),
                    tuple(one["targets"]),
                    float(one["duration"]),
                    int(one["seed"]),
                )
                for one in faults
            )
            for faults in data["rounds"]
        )
        return cls(int(data["seed"]), rounds)


def make_plan(seed: int, seconds: float, without: Sequence[Kind] = ()) -> Plan:
    """Return the plan of a run of about ``seconds``. ``without``: kinds that are not possible here."""
    chance = random.Random(seed)
    rounds = max(1, round(seconds / ROUND))
    storm = STORM * min(1.0, seconds / ROUND)
    return Plan(seed, tuple(_Round(chance, storm, without).faults() for _ in range(rounds)))


class _Round:
    """Makes the faults of one round. ``_busy_until``: when a fault of the node's process has healed."""

    def __init__(self, chance: random.Random, seconds: float, without: Sequence[Kind]) -> None:
        self._chance = chance
        self._seconds = seconds
        self._kinds = [kind for kind in WEIGHTS if kind not in without]
        self._busy_until = dict.fromkeys((*BROKERS, *CONTROLLERS, ZOOKEEPER), 0.0)
        self._cut_until: dict[frozenset[str], float] = {}

    def faults(self) -> tuple[Fault, ...]:
        faults: list[Fault] = []
        at = self._chance.expovariate(1 / BETWEEN)
        while at < self._seconds:
            kind = self._chance.choices(self._kinds, [WEIGHTS[one] for one in self._kinds])[0]
            duration = round(self._chance.uniform(*DURATIONS.get(kind, (0.0, 0.0))), 2)
            targets = self._targets(kind, at)
            if targets is not None:
                if kind in (*_OF_A_BROKER, *_OF_ALL_BROKERS, *_OF_A_CONTROLLER, Kind.KILL_ZOOKEEPER):
                    for name in targets:
                        self._busy_until[name] = at + duration + START
                elif kind is Kind.CUT_LINK:
                    self._cut_until[frozenset(targets)] = at + duration + 1.0
                faults.append(Fault(round(at, 2), kind, targets, duration, self._chance.getrandbits(32)))
            at += self._chance.expovariate(1 / BETWEEN)
        return tuple(faults)

    def _free(self, names: Sequence[str], at: float) -> list[str]:
        return [name for name in names if self._busy_until[name] <= at]

    def _targets(self, kind: Kind, at: float) -> tuple[str, ...] | None:
        """Return whom the fault meets, None where it cannot happen now."""
        brokers = self._free(BROKERS, at)
        if kind in _OF_ALL_BROKERS:
            return BROKERS if len(brokers) == len(BROKERS) else None
        if kind in _OF_A_BROKER:
            return (self._chance.choice(brokers),) if len(brokers) > len(BROKERS) - MOST_DOWN else None
        if kind in _OF_A_CONTROLLER:
            controllers = self._free(CONTROLLERS, at)
            if not controllers:
                return None
            # Now and then both.
            return tuple(self._chance.sample(controllers, self._chance.randint(1, len(controllers))))
        if kind is Kind.KILL_ZOOKEEPER:
            return tuple(self._free([ZOOKEEPER], at)) or None
        if kind is Kind.CUT_LINK:
            one = self._chance.choice(BROKERS)
            others = [name for name in (*BROKERS, *CONTROLLERS, ZOOKEEPER) if name != one]
            other = self._chance.choice(others)
            return (one, other) if self._cut_until.get(frozenset((one, other)), 0.0) <= at else None
        return ()
