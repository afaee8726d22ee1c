"""Lines -> entries: the state machine that runs over the pieces of files, in Arrow batches, on executors.

A piece may begin in the middle of an entry, so the ends of a run of lines that follow one another are not
judged: they come out as *edges*, raw, and go through the machine again when they lie beside their
neighbours (``final``). Every line ends in exactly one place: an entry, a reject, or an edge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from ctrlchan.pipeline.jobs.merge_logs.entries import BadLineError, Entry, begins_entry, parse
from ctrlchan.pipeline.jobs.merge_logs.places import Place, Places

__all__ = ["ENTRY_COLUMNS", "GROUPED", "MOST_BYTES", "MOST_LINES", "group_lines"]

#: Lines of one entry. A file that is no log at all must not become one.
MOST_LINES: Final = 10_000
#: Bytes of one entry beyond its first line, which may be of any length.
MOST_BYTES: Final = 16 << 20
#: Rows, and bytes of their texts, of a batch that is given back.
_BATCH: Final = 8_192
_BATCH_BYTES: Final = 16 << 20
_TOO_LONG: Final = f"its entry has more than {MOST_LINES} lines or {MOST_BYTES} bytes"
_NOT_BEGUN: Final = "no entry begins before it"
_CONTINUES_BAD: Final = "it continues a line that was rejected"

_ANSWER: Final = pa.struct(
    [
        pa.field("topic", pa.string()),
        pa.field("topic_id", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("error_code", pa.int32()),
    ]
)
_TYPES: Final[dict[str, pa.DataType]] = {
    "time": pa.timestamp("us", tz="UTC"),
    "delete": pa.bool_(),
    "partitions": pa.list_(_ANSWER),
    **dict.fromkeys(("to", "isr", "replicas"), pa.list_(pa.int32())),
}
_TEXTS: Final = {"level", "event", "role", "api", "topic", "topic_id", "from_state", "to_state", "error"}

#: The columns that an entry's words fill; all null in a reject.
ENTRY_COLUMNS: Final[list[pa.Field[Any]]] = [
    pa.field(name, _TYPES.get(name) or (pa.string() if name in _TEXTS else pa.int32()))
    for name in Entry.__slots__
]
#: What comes out: an entry (``reason`` and ``raw`` null), a rejected line (with ``reason``), or an edge
#: (``raw``: its lines).
GROUPED: Final = pa.schema(
    [
        *ENTRY_COLUMNS,
        pa.field("text", pa.string()),
        pa.field("file", pa.string(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("lines", pa.int64(), nullable=False),
        pa.field("turn", pa.string(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("raw", pa.list_(pa.binary())),
    ]
)


_VALUES: Final = attrgetter(*Entry.__slots__)
_NO_VALUES: Final = (None,) * len(Entry.__slots__)


@dataclass(slots=True)
class _Run:
    """Lines that follow one another and belong together, as far as is known."""

    file: str
    first: int
    lines: list[bytes] = field(default_factory=list)
    #: Of its own lines and those that were too many.
    count: int = 0
    bytes: int = 0

    @property
    def end(self) -> int:
        return self.first + self.count


class _Rows:
    """Rows that wait to become a batch, each a tuple in the order of GROUPED."""

    def __init__(self, places: Places) -> None:
        self._place_of = cache(places.of)
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def full(self) -> bool:
        return len(self._rows) >= _BATCH or self._bytes >= _BATCH_BYTES

    def place(self, file: str) -> Place:
        return self._place_of(file)

    def entry(self, entry: Entry, text: str, file: str, line: int, lines: int) -> None:
        place = self._place_of(file)
        if entry.broker is None:
            entry.broker = place.broker
        self._bytes += len(text)
        self._rows.append((*_VALUES(entry), text, file, line, lines, place.turn, None, None))

    def reject(self, raw: bytes, file: str, line: int, reason: str) -> None:
        text = raw.decode(errors="backslashreplace")
        self._bytes += len(text)
        self._rows.append((*_NO_VALUES, text, file, line, 1, self._place_of(file).turn, reason, None))

    def edge(self, run: _Run) -> None:
        self._bytes += run.bytes
        turn = self._place_of(run.file).turn
        row = (*_NO_VALUES, None, run.file, run.first, len(run.lines), turn, None, run.lines)
        self._rows.append(row)

    def take(self) -> pa.RecordBatch:
        columns = zip(*self._rows, strict=True)
        arrays = [pa.array(column, to.type) for column, to in zip(columns, GROUPED, strict=True)]
        self._rows.clear()
        self._bytes = 0
        return pa.RecordBatch.from_arrays(arrays, schema=GROUPED)


def group_lines(
    batches: Iterable[pa.RecordBatch], places: Places, *, final: bool
) -> Iterator[pa.RecordBatch]:
    """``batches``: file string, line int64, text binary; lines of a piece together and in order.

    Gives batches of GROUPED. ``final``: there are no further pieces, so there are no edges.
    """
    rows = _Rows(places)
    run: _Run | None = None
    begun = False
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("file", "line", "text"))
        for file, line, raw in zip(*columns, strict=True):
            follows = run is not None and run.file == file and run.end == line
            begins = _begins(raw)
            if run is not None and not follows:
                _close(rows, run, begun=begun, edge=not final)
                run = None
            if run is None or begins:
                if run is not None:
                    # What is begun in this run is whole; what is not may have begun in the piece before.
                    _close(rows, run, begun=begun, edge=not final and not begun)
                run, begun = _Run(file, line), begins
            run.count += 1
            if not run.lines or (len(run.lines) < MOST_LINES and run.bytes + len(raw) <= MOST_BYTES):
                run.bytes += len(raw) if run.lines else 0
                run.lines.append(raw)
            else:
                rows.reject(raw, file, line, _TOO_LONG)
            if rows.full:
                yield rows.take()
    if run is not None:
        _close(rows, run, begun=begun, edge=not final)
    if len(rows):
        yield rows.take()


def _begins(raw: bytes) -> bool:
    """Also of a line that ought to begin an entry and cannot: what follows it is not the former entry's."""
    try:
        return begins_entry(raw[:64].decode(errors="replace"))
    except BadLineError:
        return True


def _close(rows: _Rows, run: _Run, *, begun: bool, edge: bool) -> None:
    if edge:
        rows.edge(run)
        return
    if not begun:
        for at, raw in enumerate(run.lines):
            rows.reject(raw, run.file, run.first + at, _NOT_BEGUN)
        return
    texts: list[str] = []
    bad: list[int] = []
    for at, raw in enumerate(run.lines):
        try:
            texts.append(raw.decode().removesuffix("\r"))
        except UnicodeDecodeError as problem:
            bad.append(at)
            rows.reject(raw, run.file, run.first + at, f"not UTF-8 at byte {problem.start}")
    if 0 not in bad:
        text = "\n".join(texts)
        try:
            entry = parse(text, rows.place(run.file).zone)
        except BadLineError as problem:
            bad.append(0)
            rows.reject(run.lines[0], run.file, run.first, str(problem))
        else:
            rows.entry(entry, text, run.file, run.first, len(texts))
            return
    for at, raw in enumerate(run.lines):
        if at not in bad:
            rows.reject(raw, run.file, run.first + at, _CONTINUES_BAD)
