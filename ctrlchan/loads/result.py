"""What a load has done: operations with counts, latencies and errors, of one worker or of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from ctrlchan.loads.latencies import Latencies

__all__ = ["PERCENTILES", "Operation", "Result"]

PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9, 99.99)


@dataclass(slots=True)
class Operation:
    """Operations of one kind. Only what was due after the warm-up is in the numbers, ``warmup`` excepted.

    - ``count``: operations that succeeded; ``items``: records, partitions or topics in them; ``bytes``: of
      records.
    - ``warmup``: items of the operations that were due during the warm-up and succeeded.
    - ``errors``: those that failed, also during the warm-up, by the error's name.
    - ``last``: when the last one ended, in seconds after the warm-up.
    """

    latencies: Latencies = field(default_factory=Latencies)
    count: int = 0
    items: int = 0
    bytes: int = 0
    warmup: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    last: float = 0.0

    def add_one(self, seconds: float, last: float) -> None:
        """Count an operation that took so long. ``last``: when it ended, in seconds after the warm-up."""
        self.latencies.record(seconds)
        self.count += 1
        self.items += 1
        self.last = max(self.last, last)

    def add(self, other: Operation) -> None:
        self.latencies.add(other.latencies)
        self.count += other.count
        self.items += other.items
        self.bytes += other.bytes
        self.warmup += other.warmup
        self.errors.update(other.errors)
        self.last = max(self.last, other.last)

    def encode(self) -> dict[str, Any]:
        """Return values that JSON can carry, for ``decode``."""
        return {
            "latencies": self.latencies.encode(),
            "count": self.count,
            "items": self.items,
            "bytes": self.bytes,
            "warmup": self.warmup,
            "errors": dict(self.errors),
            "last": self.last,
        }

    @classmethod
    def decode(cls, values: Mapping[str, Any]) -> Self:
        latencies, errors = Latencies.decode(values["latencies"]), Counter(values["errors"])
        return cls(**{**values, "latencies": latencies, "errors": errors})

    def describe(self, seconds: float) -> dict[str, Any]:
        """Return the figures for people and scripts. ``seconds``: that the load was measured for at least."""
        seconds = max(seconds, self.last)
        shown = self.latencies.milliseconds(PERCENTILES)
        return {
            "count": self.count,
            "seconds": seconds,
            "per_second": self.count / seconds if seconds else 0.0,
            "items": self.items,
            "items_per_second": self.items / seconds if seconds else 0.0,
            "bytes_per_second": self.bytes / seconds if seconds else 0.0,
            "warmup_items": self.warmup,
            "errors": dict(self.errors),
            "latency_ms": {
                "mean": self.latencies.mean_ms,
                **{f"p{one:g}": value for one, value in zip(PERCENTILES, shown, strict=True)},
                "max": self.latencies.max_ms,
            },
            "histogram": self.latencies.encode(),
        }


@dataclass(slots=True)
class Result:
    """The operations of a load by name, and ``seconds`` for which they were measured after the warm-up."""

    operations: dict[str, Operation] = field(default_factory=dict)
    seconds: float = 0.0

    @classmethod
    def merged(cls, parts: Iterable[Self]) -> Self:
        """Return the sum of the results of all workers, which ran at the same time."""
        made = cls()
        for part in parts:
            made.seconds = max(made.seconds, part.seconds)
            for name, one in part.operations.items():
                made.operations.setdefault(name, Operation()).add(one)
        return made

    def encode(self) -> dict[str, Any]:
        """Return values that JSON can carry, for ``decode``."""
        return {
            "seconds": self.seconds,
            "operations": {name: one.encode() for name, one in self.operations.items()},
        }

    @classmethod
    def decode(cls, values: Mapping[str, Any]) -> Self:
        operations = {name: Operation.decode(one) for name, one in values["operations"].items()}
        return cls(operations, values["seconds"])

    def describe(self) -> dict[str, Any]:
        """Return the figures of each operation, see ``Operation.describe``."""
        return {name: one.describe(self.seconds) for name, one in self.operations.items()}
