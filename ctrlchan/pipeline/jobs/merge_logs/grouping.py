"""Groups lines into entries, in Arrow batches, on executors.

Spark splits files into pieces, and a piece may begin in the middle of an entry. So the first and last lines
of a piece are returned unparsed, as *edges*, and grouped again together with those of the neighbouring
pieces (``final``). Every line becomes part of exactly one entry, reject or edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from ctrlchan.pipeline.jobs.merge_logs.entries import BadLineError, Entry, begins_entry, parse
from ctrlchan.pipeline.jobs.merge_logs.origins import FileOrigin, FileOrigins

__all__ = ["ENTRY_COLUMNS", "GROUPED", "MOST_BYTES", "MOST_LINES", "group_lines"]

#: Lines of one entry; a file that is no log at all must not become one entry.
MOST_LINES: Final = 10_000
#: Bytes of one entry after its first line, which may be of any length.
MOST_BYTES: Final = 16 << 20
#: Rows of a returned batch, and bytes of their texts.
_BATCH: Final = 8_192
_BATCH_BYTES: Final = 16 << 20
_TOO_LONG: Final = f"its entry has more than {MOST_LINES} lines or {MOST_BYTES} bytes"
_NOT_BEGUN: Final = "no entry begins before this line"
_UTF_16: Final = "UTF-16, not UTF-8: convert the file first, as with iconv -f UTF-16 -t UTF-8"
_CONTINUES_BAD: Final = "this line continues a rejected line"

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

#: The columns of an entry; all null in a reject.
ENTRY_COLUMNS: Final[list[pa.Field[Any]]] = [
    pa.field(name, _TYPES.get(name) or (pa.string() if name in _TEXTS else pa.int32()))
    for name in Entry.__slots__
]
#: A row is an entry (``reason`` and ``raw`` null), a rejected line (with ``reason``) or an edge
#: (``raw``: its lines).
GROUPED: Final = pa.schema(
    [
        *ENTRY_COLUMNS,
        pa.field("text", pa.string()),
        pa.field("file", pa.string(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("lines", pa.int64(), nullable=False),
        pa.field("rotation", pa.string(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("raw", pa.list_(pa.binary())),
    ]
)


_VALUES: Final = attrgetter(*Entry.__slots__)
_NO_VALUES: Final = (None,) * len(Entry.__slots__)


@dataclass(slots=True)
class _Run:
    """Consecutive lines of one entry, or of the end of one."""

    file: str
    first: int
    lines: list[bytes] = field(default_factory=list)
    #: ``lines`` and those that were rejected because the entry is too long.
    count: int = 0
    bytes: int = 0

    @property
    def end(self) -> int:
        return self.first + self.count


class _Rows:
    """Collects the rows of the next batch, each a tuple in the order of GROUPED."""

    def __init__(self, origins: FileOrigins) -> None:
        self.origin_of: Callable[[str], FileOrigin] = cache(origins.of)
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def full(self) -> bool:
        return len(self._rows) >= _BATCH or self._bytes >= _BATCH_BYTES

    def entry(self, entry: Entry, text: str, file: str, line: int, lines: int) -> None:
        origin = self.origin_of(file)
        if entry.broker is None:
            entry.broker = origin.broker
        self._bytes += len(text)
        self._rows.append((*_VALUES(entry), text, file, line, lines, origin.rotation, None, None))

    def reject(self, raw: bytes, file: str, line: int, reason: str) -> None:
        if _is_utf_16(raw):
            reason = _UTF_16
        text = raw.decode(errors="backslashreplace")
        self._bytes += len(text)
        self._rows.append((*_NO_VALUES, text, file, line, 1, self.origin_of(file).rotation, reason, None))

    def edge(self, run: _Run) -> None:
        self._bytes += run.bytes
        rotation = self.origin_of(run.file).rotation
        row = (*_NO_VALUES, None, run.file, run.first, len(run.lines), rotation, None, run.lines)
        self._rows.append(row)

    def take(self) -> pa.RecordBatch:
        """Return the rows as a batch and forget them."""
        columns = zip(*self._rows, strict=True)
        arrays = [pa.array(column, to.type) for column, to in zip(columns, GROUPED, strict=True)]
        self._rows.clear()
        self._bytes = 0
        return pa.RecordBatch.from_arrays(arrays, schema=GROUPED)


def group_lines(
    batches: Iterable[pa.RecordBatch], origins: FileOrigins, *, final: bool
) -> Iterator[pa.RecordBatch]:
    """Yield batches of GROUPED.

    ``batches``: file string, line int64, text binary; the lines of a piece are together and in order.
    ``final``: there are no other pieces, so there are no edges.
    """
    rows = _Rows(origins)
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
                    # A run without a head may have begun in the previous piece.
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


def _is_utf_16(raw: bytes) -> bool:
    """Return whether a line is one of UTF-16, where every second byte of English text is 0."""
    zeros = raw.count(0)
    return zeros > 0 and 3 * zeros >= len(raw)


def _begins(raw: bytes) -> bool:
    """Return whether a line is the head of an entry, or a broken one, which ends the entry before it too."""
    try:
        return begins_entry(raw[:64].decode(errors="replace"))
    except BadLineError:
        return True


def _close(rows: _Rows, run: _Run, *, begun: bool, edge: bool) -> None:
    """Add a run to ``rows``: as an edge, or as an entry and its rejected lines."""
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
            entry = parse(text, rows.origin_of(run.file).zone)
        except BadLineError as problem:
            bad.append(0)
            rows.reject(run.lines[0], run.file, run.first, str(problem))
        else:
            rows.entry(entry, text, run.file, run.first, len(texts))
            return
    for at, raw in enumerate(run.lines):
        if at not in bad:
            rows.reject(raw, run.file, run.first + at, _CONTINUES_BAD)
