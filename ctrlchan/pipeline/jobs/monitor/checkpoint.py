"""What a monitor knows after each batch, on disk: sums that a restart neither loses nor adds twice.

Spark decides which files a batch has and writes that down before the batch runs, so after a crash the same
batch has the same files. The state after batch N is made of the state before it and the batch alone, and
appears by rename; whatever happened between that and Spark's own commit, batch N run again makes the same
state N. Its size is that of what it sums up (brokers, APIs, ways to end, steps of the window), and only the
newest states are kept.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.jobs.monitor.cells import CELLS, EVER, added, no_cells, since
from ctrlchan.pipeline.jobs.monitor.unfinished import RequestKey

__all__ = ["Ledger", "Sums"]

_FORMAT: Final = "ctrlchan-monitor"
_VERSION: Final = 1
_NAME: Final = re.compile(r"(\d{20})\.parquet")
_META: Final = b"ctrlchan.monitor"
#: A batch may run again until the next one has begun; one more to spare.
_KEPT: Final = 3


@dataclass(frozen=True)
class Sums:
    """``cells``: EVER for all that was read, and steps of the last while. ``ended``: requests that channels
    still show as unanswered, and that have ended since."""

    cells: pa.Table = field(default_factory=no_cells)
    ended: frozenset[RequestKey] = frozenset()
    #: The batch that it is the state after; -1: before the first.
    batch: int = -1
    rows: int = 0

    def after(
        self,
        batch: int,
        cells: pa.Table,
        ended: Iterable[RequestKey],
        shown: Iterable[RequestKey],
        begin: float,
    ) -> Sums:
        """``cells``: of the batch. ``shown``: what channels show as unanswered now. ``begin``: of the steps
        that are still looked at, seconds since 1970."""
        of_all = cells.set_column(
            cells.schema.get_field_index("at"), "at", pa.array([EVER] * cells.num_rows, pa.int64())
        )
        kept = self.cells.filter(pc.field("at") == EVER)
        return replace(
            self,
            cells=added(kept, of_all, since(self.cells, begin), since(cells, begin)),
            ended=(self.ended | frozenset(ended)) & frozenset(shown),
            batch=batch,
            rows=self.rows + (pc.sum(cells["requests"]).as_py() or 0),
        )


class Ledger:
    """The states in a folder. Raises PipelineError when it is another journal's, or no ledger."""

    def __init__(self, folder: Path, journal: str) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._check(journal)

    def _check(self, journal: str) -> None:
        about = self._folder / "monitor.json"
        wanted = {"format": _FORMAT, "format_version": _VERSION, "journal": journal}
        try:
            found = json.loads(about.read_bytes())
        except FileNotFoundError:
            self._write(about, json.dumps(wanted).encode())
            return
        except (OSError, ValueError) as problem:
            raise PipelineError(f"{about}: {problem}") from problem
        if found != wanted:
            said = found.get("journal") if isinstance(found, dict) else None
            raise PipelineError(
                f"{about}: this checkpoint is of {said or 'something else'}, not of {journal} "
                f"(version {_VERSION}); give another folder"
            )

    def newest(self) -> Sums:
        """The last state that is there; the one before the first batch when there is none."""
        known = self._known()
        return self._read(known[-1]) if known else Sums()

    def before(self, batch: int) -> Sums:
        """The state that ``batch`` starts from."""
        known = [one for one in self._known() if one < batch]
        if not known and batch:
            raise PipelineError(f"{self._folder}: the state before batch {batch} is not there any more")
        return self._read(known[-1]) if known else Sums()

    def keep(self, sums: Sums) -> None:
        """It is there when this returns, and older ones go."""
        meta = {"rows": sums.rows, "ended": sorted(map(list, sums.ended))}
        table = sums.cells.replace_schema_metadata({_META: json.dumps(meta).encode()})
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        self._write(self._file(sums.batch), sink.getvalue().to_pybytes())
        for batch in self._known():
            if batch <= sums.batch - _KEPT or batch > sums.batch:
                self._file(batch).unlink(missing_ok=True)

    def _known(self) -> list[int]:
        return sorted(int(found[1]) for name in os.listdir(self._folder) if (found := _NAME.fullmatch(name)))

    def _file(self, batch: int) -> Path:
        return self._folder / f"{batch:020d}.parquet"

    def _read(self, batch: int) -> Sums:
        file = self._file(batch)
        try:
            table = pq.read_table(file)
            meta = json.loads((table.schema.metadata or {})[_META])
            ended = frozenset(RequestKey(*key) for key in meta["ended"])
            return Sums(table.replace_schema_metadata().cast(CELLS), ended, batch, meta["rows"])
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as problem:
            raise PipelineError(f"{file}: no state of a monitor: {problem}") from problem

    def _write(self, file: Path, content: bytes) -> None:
        hidden = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            hidden.write_bytes(content)
            hidden.replace(file)
        finally:
            hidden.unlink(missing_ok=True)
