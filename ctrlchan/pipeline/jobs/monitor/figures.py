"""What a monitor shows: figures of each broker and API, and what its brokers wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrlchan.channel.observability.counters import EDGES, quantile
from ctrlchan.errors import ErrorCode
from ctrlchan.pipeline.jobs.monitor.cells import EVER, HISTOGRAM, since
from ctrlchan.pipeline.jobs.monitor.checkpoint import Sums
from ctrlchan.pipeline.jobs.monitor.unfinished import BrokerWait
from ctrlchan.protocol import API_NAMES

__all__ = ["NO_FAULT", "Diverged", "Figures", "RequestFigures", "figures_of"]

#: Outcomes that are nobody's fault: what was taken back was never sent.
NO_FAULT: Final = ("acknowledged", "cancelled")


@dataclass(frozen=True)
class RequestFigures:
    """Of one broker and API. ``requests`` ... ``errors``: of all time; ``recent...``: of the window."""

    broker: int
    api: str
    requests: int
    outcomes: dict[str, int]
    errors: dict[str, int]
    bytes: int
    attempts: int
    repeated: int
    #: Seconds in all, and requests in the buckets of EDGES and beyond: from being queued to the end.
    seconds: float
    buckets: tuple[int, ...]
    recent: int
    recent_failed: int
    #: Seconds; None: nothing ended.
    recent_p50: float | None
    recent_p95: float | None
    recent_p99: float | None


_COUNTS: Final = pa.map_(pa.string(), pa.int64())
_COLUMNS: Final[list[tuple[str, pa.DataType]]] = [
    ("broker", pa.int32()),
    ("api", pa.string()),
    ("requests", pa.int64()),
    ("outcomes", _COUNTS),
    ("errors", _COUNTS),
    ("bytes", pa.int64()),
    ("attempts", pa.int64()),
    ("repeated", pa.int64()),
    ("seconds", pa.float64()),
    ("buckets", pa.list_(pa.int64())),
    ("recent", pa.int64()),
    ("recent_failed", pa.int64()),
    ("recent_p50", pa.float64()),
    ("recent_p95", pa.float64()),
    ("recent_p99", pa.float64()),
]
_TABLE: Final = pa.schema(_COLUMNS)


@dataclass(frozen=True)
class Diverged:
    """A broker that holds stale metadata of so many partitions, some of them by name."""

    broker: int
    partitions: int
    named: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figures:
    """All that is known at ``now`` (seconds since 1970)."""

    now: float
    #: Seconds.
    window: float
    rows: int
    batch: int
    requests: tuple[RequestFigures, ...]
    waits: tuple[BrokerWait, ...] = ()
    #: broker -> when a request of it ended as fenced, when it acknowledged one; microseconds since 1970.
    fenced_at: dict[int, int] = field(default_factory=dict)
    acknowledged_at: dict[int, int] = field(default_factory=dict)
    #: None: nobody asked.
    diverged: tuple[Diverged, ...] | None = None

    @property
    def brokers(self) -> list[int]:
        known = {one.broker for one in self.requests} | {one.broker for one in self.waits}
        return sorted(known | {one.broker for one in self.diverged or ()})

    def as_table(self) -> pa.Table:
        """One row for each broker and API, with the fields of ``RequestFigures``."""
        rows = [
            {
                name: list(value.items()) if isinstance(value, dict) else value
                for name, value in vars(one).items()
            }
            for one in self.requests
        ]
        return pa.Table.from_pylist(rows, schema=_TABLE)

    def age(self, wait: BrokerWait) -> float | None:
        """Seconds for which the oldest of its requests has waited."""
        return None if wait.oldest_at is None else max(0.0, self.now - wait.oldest_at / 1e6)


def figures_of(
    sums: Sums,
    waits: Sequence[BrokerWait],
    *,
    now: float,
    window: float,
    diverged: Sequence[Diverged] | None = None,
) -> Figures:
    """``now``: seconds since 1970; ``window``: seconds before it, in whole steps."""
    ever = sums.cells.filter(pc.field("at") == EVER).to_pylist()
    recent = since(sums.cells, now - window).to_pylist()
    return Figures(
        now=now,
        window=window,
        rows=sums.rows,
        batch=sums.batch,
        requests=tuple(_requests(ever, recent)),
        waits=tuple(waits),
        fenced_at=_last(sums.cells, "fenced"),
        acknowledged_at=_last(sums.cells, "acknowledged"),
        diverged=None if diverged is None else tuple(diverged),
    )


def _requests(ever: list[dict[str, Any]], recent: list[dict[str, Any]]) -> list[RequestFigures]:
    keys = sorted({(cell["broker"], cell["api"]) for cell in ever})
    of_key: dict[tuple[int, int], tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
        key: ([], []) for key in keys
    }
    for place, cells in enumerate((ever, recent)):
        for cell in cells:
            of_key[cell["broker"], cell["api"]][place].append(cell)
    return [_request(broker, api, *of_key[broker, api]) for broker, api in keys]


def _request(
    broker: int, api: int, ever: list[dict[str, Any]], recent: list[dict[str, Any]]
) -> RequestFigures:
    outcomes: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for cell in ever:
        outcomes[cell["outcome"]] += cell["requests"]
        if cell["error_code"]:
            errors[ErrorCode.name_of(cell["error_code"])] += cell["requests"]
    buckets = np.array([[cell[name] for name in HISTOGRAM] for cell in recent], np.int64)
    window = buckets.sum(axis=0) if recent else np.zeros(len(EDGES) + 1, np.int64)
    p50, p95, p99 = (quantile(window, share) if window.any() else None for share in (0.5, 0.95, 0.99))
    return RequestFigures(
        broker=broker,
        api=API_NAMES.get(api, str(api)),
        requests=outcomes.total(),
        outcomes=dict(sorted(outcomes.items())),
        errors=dict(sorted(errors.items())),
        bytes=sum(cell["bytes"] for cell in ever),
        attempts=sum(cell["attempts"] for cell in ever),
        repeated=sum(cell["repeated"] for cell in ever),
        seconds=sum(cell["seconds"] for cell in ever),
        buckets=tuple(sum(cell[name] for cell in ever) for name in HISTOGRAM),
        recent=sum(cell["requests"] for cell in recent),
        recent_failed=sum(cell["requests"] for cell in recent if cell["outcome"] not in NO_FAULT),
        recent_p50=p50,
        recent_p95=p95,
        recent_p99=p99,
    )


def _last(cells: pa.Table, outcome: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for cell in cells.filter(pc.field("outcome") == outcome).select(["broker", "last_at"]).to_pylist():
        found[cell["broker"]] = max(cell["last_at"], found.get(cell["broker"], 0))
    return found
