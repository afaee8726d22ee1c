"""Stores the state of a monitor after each batch, so that a restart neither loses nor repeats a row.

Spark writes down the files of a batch before it runs, so after a crash the same batch has the same files. The
state after batch N depends only on the state before it and on the batch, and it appears by rename. So a batch
that runs again, because the monitor died before Spark's own commit, gives the same state. The size of a state
depends on brokers, APIs, outcomes and steps of the window; only the newest states are kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.jobs.monitor.aggregates import AGGREGATES, EVER, added, no_aggregates, since
from ctrlchan.pipeline.jobs.monitor.unfinished import RequestKey
from ctrlchan.storage import AnyPath, names_in
from ctrlchan.storage import replace as put
from ctrlchan.storage.parquet import arrow_source, unreadable

__all__ = ["CheckpointStore", "MonitorState"]

_FORMAT: Final = "ctrlchan-monitor"
_VERSION: Final = 1
_NAME: Final = re.compile(r"(\d{20})\.parquet")
_META: Final = b"ctrlchan.monitor"
#: States that are kept. A batch may run again until the next one has begun; one more is a reserve.
_KEPT: Final = 3


@dataclass(frozen=True)
class MonitorState:
    """The sums of all rows that were read.

    ``aggregates``: EVER for all rows, and the steps of the window. ``ended``: requests that have ended and
    that channel files still list as unfinished.
    """

    aggregates: pa.Table = field(default_factory=no_aggregates)
    ended: frozenset[RequestKey] = frozenset()
    #: The last batch that is included; -1: none.
    batch: int = -1
    rows: int = 0

    def after(
        self,
        batch: int,
        aggregates: pa.Table,
        ended: Iterable[RequestKey],
        unfinished: Iterable[RequestKey],
        begin: float,
    ) -> MonitorState:
        """Return the state after ``batch`` with these ``aggregates``.

        ``unfinished``: the requests that channel files list now. ``begin``: older steps are dropped; seconds
        since 1970.
        """
        at = aggregates.schema.get_field_index("at")
        of_all = aggregates.set_column(at, "at", pa.array([EVER] * aggregates.num_rows, pa.int64()))
        ever = self.aggregates.filter(pc.field("at") == EVER)
        return replace(
            self,
            aggregates=added(ever, of_all, since(self.aggregates, begin), since(aggregates, begin)),
            ended=(self.ended | frozenset(ended)) & frozenset(unfinished),
            batch=batch,
            rows=self.rows + (pc.sum(aggregates["requests"]).as_py() or 0),
        )


class CheckpointStore:
    """Reads and writes the states in a folder; raises PipelineError if it belongs to another journal."""

    def __init__(self, folder: AnyPath, journal: str) -> None:
        self._folder = folder
        if isinstance(folder, Path):
            folder.mkdir(parents=True, exist_ok=True)
        self._check(journal)

    def _check(self, journal: str) -> None:
        about = self._folder / "monitor.json"
        wanted = {"format": _FORMAT, "format_version": _VERSION, "journal": journal}
        try:
            found = json.loads(about.read_bytes())
        except FileNotFoundError:
            put(about, json.dumps(wanted).encode())
            return
        except (OSError, ValueError) as problem:
            raise PipelineError(f"{about}: {problem}") from problem
        if found != wanted:
            other = found.get("journal") if isinstance(found, dict) else None
            raise PipelineError(
                f"{about}: this checkpoint is of {other or 'something else'}, not of {journal} "
                f"(version {_VERSION}); give another folder"
            )

    def newest(self) -> MonitorState:
        """Return the newest state; an empty one if there is none."""
        batches = self._batches()
        return self._read(batches[-1]) if batches else MonitorState()

    def before(self, batch: int) -> MonitorState:
        """Return the state that ``batch`` starts from."""
        earlier = [one for one in self._batches() if one < batch]
        if not earlier and batch:
            raise PipelineError(f"{self._folder}: the state before batch {batch} is missing")
        return self._read(earlier[-1]) if earlier else MonitorState()

    def write(self, state: MonitorState) -> None:
        """Write a state, then delete old ones and those of later batches."""
        meta = {"rows": state.rows, "ended": sorted(map(list, state.ended))}
        table = state.aggregates.replace_schema_metadata({_META: json.dumps(meta).encode()})
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        put(self._file(state.batch), sink.getvalue().to_pybytes())
        for batch in self._batches():
            if batch <= state.batch - _KEPT or batch > state.batch:
                self._file(batch).unlink(missing_ok=True)

    def _batches(self) -> list[int]:
        return sorted(int(found[1]) for name in names_in(self._folder) if (found := _NAME.fullmatch(name)))

    def _file(self, batch: int) -> AnyPath:
        return self._folder / f"{batch:020d}.parquet"

    def _read(self, batch: int) -> MonitorState:
        file = self._file(batch)
        try:
            table = pq.read_table(arrow_source(file))
            meta = json.loads((table.schema.metadata or {})[_META])
            ended = frozenset(RequestKey(*key) for key in meta["ended"])
            aggregates = table.replace_schema_metadata().cast(AGGREGATES)
            return MonitorState(aggregates, ended, batch, meta["rows"])
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as problem:
            reason = unreadable(problem) or f"not a state of a monitor: {problem}"
            raise PipelineError(f"{file}: {reason}") from problem
