"""Journal: turns chunks of rows into Parquet files, on a thread of its own.

A file is written under a hidden name and appears by rename, whole or not at all, after at most
``flush_interval``: what a crash can lose is what no file holds yet. Names ascend, also when the clock goes
back. How the channels stand (``channels.py``) is written behind the rows that have ended.
"""

from __future__ import annotations

import atexit
import errno
import logging
import os
import platform
import re
import threading
import time
import uuid
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, monotonic_ns
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from ctrlchan.errors import ConfigError, JournalError
from ctrlchan.journal.channels import write_channel
from ctrlchan.journal.rows import ROW, ChannelView, Chunk, Source
from ctrlchan.journal.table import table_of, wall_offset
from ctrlchan.state.storage.schemas import JOURNAL

__all__ = ["Journal"]

_LOG: Final = logging.getLogger("ctrlchan.journal")

#: Seconds from one line about errors to the next: a full disk stays full for a while.
_LOG_EVERY: Final = 60.0
#: Errors after which a smaller file may be written.
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: The columns of a smaller file take less room than its footer.
_LEAST_ROWS_OF_FILE: Final = 64
#: A hidden file that is older than this, in seconds, was left by a process that is no more.
_ORPHAN: Final = 3600.0
_NAME: Final = re.compile(r"(\d{8}T\d{6}\.\d{6}Z)-(\d{6,})(?:-[0-9a-f]{12})?\.parquet")
_STAMP: Final = "%Y%m%dT%H%M%S.%fZ"
_AT_EXIT_TIMEOUT: Final = 2.0
#: Numbers that grow from row to row are written as differences, a seventh of the time and half the bytes of a
#: dictionary's; all others repeat.
_ASCENDING: Final = {
    name: "DELTA_BINARY_PACKED"
    for name in JOURNAL.names
    if name == "sequence" or name.endswith(("_ns", "_at"))
}
_REPEATING: Final = [
    f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name
    for field in JOURNAL
    if field.name not in _ASCENDING
]


class Journal:
    """A journal folder, written while it is open; give it to ``ControllerChannelManager(..., journal=...)``.

    ``flush_interval``: seconds; rows are in a file, and visible to readers, at most so long after the end of
    their requests (and the time it takes to write them). Longer gives fewer, larger files.
    ``max_file_bytes``: a file holds no more than this of rows, before compression. ``max_pending_bytes``: of
    rows that wait for a disk that is slow or full; beyond it the oldest are lost, counted and told. Several
    channels, also of several processes, may write into one folder.

    Raises JournalError when the folder cannot be made, ConfigError for settings that cannot work. After that
    nothing that happens to the disk reaches the channel: a write that fails is tried again with the next,
    and logged once a minute.

        with Journal("outcomes") as journal, ControllerChannelManager(config, journal=journal) as channel:
            ...
    """

    def __init__(
        self,
        path: str | Path,
        *,
        flush_interval: float = 1.0,
        max_file_bytes: int = 64 * 2**20,
        max_pending_bytes: int = 256 * 2**20,
    ) -> None:
        if not flush_interval > 0:
            raise ConfigError(f"flush_interval must be above 0 seconds, not {flush_interval!r}")
        if max_file_bytes < ROW.itemsize or max_pending_bytes < max_file_bytes:
            raise ConfigError(
                f"max_file_bytes must be at least {ROW.itemsize} and at most max_pending_bytes, "
                f"not {max_file_bytes} and {max_pending_bytes}"
            )
        self.path = Path(path)
        self._flush_interval = flush_interval
        self._most_rows_of_file = max_file_bytes // ROW.itemsize
        self._most_pending_rows = max_pending_bytes // ROW.itemsize
        self._host = platform.node()
        # Several journals may write into the folder, at the same moment: names must differ.
        self._mark = uuid.uuid4().hex[:12]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._last_name = self._look_around()
        except OSError as problem:
            raise JournalError(f"{self.path}: no folder for a journal: {problem}") from problem
        # Guards all below, but for what only the writer's thread touches.
        self._lock = threading.Lock()
        self._pending: deque[Chunk] = deque()
        self._pending_rows = 0
        # Kept until they have closed and that is written.
        self._sources: list[Source] = []
        self._asked = 0
        self._closing = False
        self._lost_rows = 0
        self._written_rows = 0
        self._files = 0
        self._last_error = ""
        self._wake = threading.Event()
        self._answered = threading.Condition(self._lock)
        self._served = 0
        # The writer's thread alone. Channel -> what its file says, but for what waits.
        self._told: dict[str, tuple[object, ...]] = {}
        self._rows_of_file = self._most_rows_of_file
        # Of the log: no line before this time; rows that the last line called lost; whether an error was
        # logged and its end was not.
        self._silent_until = 0.0
        self._lost_logged = 0
        self._in_trouble = False
        self._thread = threading.Thread(target=self._run, name="ctrlchan-journal", daemon=True)
        self._thread.start()
        atexit.register(self.close, _AT_EXIT_TIMEOUT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- for channels

    def attach(self, source: Source) -> None:
        """Rows come from here; it is asked for them before every write."""
        with self._lock:
            if self._closing:
                raise JournalError(f"{self.path}: the journal is closed")
            self._sources.append(source)

    def take(self, chunk: Chunk) -> None:
        """Never blocks for longer than it takes to queue it, and never raises."""
        with self._lock:
            if self._closing:
                self._lost_rows += len(chunk.rows)
                return
            self._pending.append(chunk)
            self._pending_rows += len(chunk.rows)
            while self._pending_rows > self._most_pending_rows:
                lost = len(self._pending.popleft().rows)
                self._pending_rows -= lost
                self._lost_rows += lost
            full = self._pending_rows >= self._most_rows_of_file
        if full:
            self._wake.set()

    # -- for users

    def flush(self, timeout: float = 30.0) -> bool:
        """Have everything that has ended so far written now; False: it was not within ``timeout`` seconds, or
        could not be written."""
        with self._lock:
            self._asked += 1
            ticket = self._asked
            self._wake.set()
            in_time = self._answered.wait_for(lambda: self._served >= ticket, timeout)
            return in_time and not self._pending

    def close(self, timeout: float = 30.0) -> None:
        """Write what there is and end the thread; what cannot be written within ``timeout`` seconds is lost.

        Close the channel first. Calling it again does nothing.
        """
        atexit.unregister(self.close)
        if not self._thread.is_alive():
            return
        self.flush(timeout)
        with self._lock:
            self._closing = True
            unwritten = self._pending_rows
            self._lost_rows += unwritten
            self._pending.clear()
            self._pending_rows = 0
        self._wake.set()
        self._thread.join(timeout)
        if unwritten:
            _LOG.error(
                "The journal %s is closed, and %d rows with it: %s.", self.path, unwritten, self._last_error
            )

    def describe(self) -> dict[str, Any]:
        """Folder, rows and files written, rows that wait, rows lost, the last error (empty: none)."""
        with self._lock:
            return {
                "path": str(self.path),
                "written_rows": self._written_rows,
                "files": self._files,
                "pending_rows": self._pending_rows,
                "lost_rows": self._lost_rows,
                "last_error": self._last_error,
            }

    # -- the thread

    def _run(self) -> None:
        due = monotonic() + self._flush_interval
        while True:
            self._wake.wait(max(0.0, due - monotonic()))
            self._wake.clear()
            with self._lock:
                closing, asked, full = (
                    self._closing,
                    self._asked,
                    self._pending_rows >= self._most_rows_of_file,
                )
                sources = list(self._sources)
            if closing:
                return
            if monotonic() >= due or asked > self._served or full:
                for source in sources:
                    source.flush()
                self._write_pending()
                self._write_views(sources)
                due = monotonic() + self._flush_interval
            with self._lock:
                self._served = asked
                self._answered.notify_all()

    def _write_pending(self) -> None:
        """Write the pending rows into files. Rows of a file that cannot be written stay pending.

        Where the disk has no room for a file, smaller ones are tried: a backlog may need more room than
        there will ever be at once.
        """
        while True:
            chunks = self._next_file()
            if not chunks:
                break
            count = sum(len(chunk.rows) for chunk in chunks)
            try:
                self._write(table_of(chunks, self._host, wall_offset()))
            except Exception as problem:  # noqa: BLE001 - without its thread a journal would lose everything
                self._put_back(chunks, problem)
                if getattr(problem, "errno", None) not in _NO_ROOM or count <= _LEAST_ROWS_OF_FILE:
                    break
                self._rows_of_file = max(_LEAST_ROWS_OF_FILE, count // 2)
                continue
            self._rows_of_file = min(self._most_rows_of_file, self._rows_of_file * 2)
            with self._lock:
                self._written_rows += count
                self._files += 1
                self._last_error = ""
        self._log_trouble()

    def _write_views(self, sources: list[Source]) -> None:
        """Only behind all rows: a channel that has closed must not seem to have lost its last ones."""
        for source in sources:
            now = monotonic_ns()
            view = source.view(int(self._flush_interval * 1e9))
            with self._lock:
                # A channel hands on its last rows before it says that it has closed.
                if self._pending:
                    return
            told = _told_of(view)
            if told == self._told.get(view.channel) and not any(one.requests for one in view.brokers):
                continue
            try:
                if view.brokers:
                    write_channel(self.path, self._mark, view, self._host, now, wall_offset())
            except Exception as problem:  # noqa: BLE001 - as above
                with self._lock:
                    self._last_error = str(problem) or repr(problem)
                self._log_trouble()
                continue
            self._told[view.channel] = told
            with self._lock:
                self._last_error = ""
                if view.closed:
                    del self._told[view.channel]
                    self._sources.remove(source)

    def _next_file(self) -> list[Chunk]:
        chunks: list[Chunk] = []
        room = self._rows_of_file
        with self._lock:
            while room and self._pending:
                chunk = self._pending.popleft()
                if len(chunk.rows) > room:
                    rest = chunk._replace(rows=chunk.rows[room:], sequence=chunk.sequence + room)
                    self._pending.appendleft(rest)
                    chunk = chunk._replace(rows=chunk.rows[:room])
                room -= len(chunk.rows)
                self._pending_rows -= len(chunk.rows)
                chunks.append(chunk)
        return chunks

    def _put_back(self, chunks: list[Chunk], problem: Exception) -> None:
        with self._lock:
            self._last_error = str(problem) or repr(problem)
            self._pending.extendleft(reversed(chunks))
            self._pending_rows += sum(len(chunk.rows) for chunk in chunks)

    def _log_trouble(self) -> None:
        """Log errors and lost rows, at most once a minute, and the end of the trouble."""
        with self._lock:
            error, pending, lost = self._last_error, self._pending_rows, self._lost_rows
        if error or lost > self._lost_logged:
            if monotonic() < self._silent_until:
                return
            self._silent_until = monotonic() + _LOG_EVERY
            self._lost_logged = lost
            self._in_trouble = bool(error)
            _LOG.error(
                "The journal %s cannot keep up: %s. %d rows wait, %d are lost so far.",
                self.path,
                error or "the disk is slower than the channel",
                pending,
                lost,
            )
        elif self._in_trouble:
            self._in_trouble = False
            _LOG.warning("The journal %s is written again; %d rows are lost so far.", self.path, lost)

    # -- files

    def _write(self, table: pa.Table) -> None:
        hidden = self.path / f".{self._mark}.tmp"
        try:
            # Whoever moves the folder away gets a new one.
            self.path.mkdir(parents=True, exist_ok=True)
            with hidden.open("wb") as file:
                pq.write_table(
                    table,
                    file,
                    compression="zstd",
                    row_group_size=len(table),
                    use_dictionary=_REPEATING,  # type: ignore[arg-type]  # names are allowed
                    column_encoding=_ASCENDING,
                )
                file.flush()
                os.fsync(file.fileno())
            self._last_name = self._next_name()
            hidden.rename(self.path / self._last_name)
        except BaseException:
            hidden.unlink(missing_ok=True)
            raise

    def _next_name(self) -> str:
        """After all names that this journal has seen; no other journal takes it."""
        stamp, number = datetime.now(UTC).strftime(_STAMP), 0
        last = _NAME.fullmatch(self._last_name)
        if last is not None:
            stamp, number = max(stamp, last[1]), int(last[2]) + 1
        return f"{stamp}-{number:06}-{self._mark}.parquet"

    def _look_around(self) -> str:
        """The last name in the folder, or nothing; what dead processes left half-written is removed."""
        last = ""
        for entry in os.scandir(self.path):
            if _NAME.fullmatch(entry.name):
                last = max(last, entry.name)
            elif entry.name.startswith(".") and entry.name.endswith(".tmp"):
                self._remove_orphan(Path(entry.path))
        return last

    def _remove_orphan(self, file: Path) -> None:
        try:
            if time.time() - file.stat().st_mtime > _ORPHAN:
                file.unlink()
        except FileNotFoundError:
            # Its writer was alive after all.
            return


def _told_of(view: ChannelView) -> tuple[object, ...]:
    """What of a view is worth a new file when it changes."""
    waits = any(broker.requests for broker in view.brokers)
    return view.closed, waits, tuple((broker.broker, broker.generation) for broker in view.brokers)
