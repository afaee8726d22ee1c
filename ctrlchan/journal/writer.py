"""Journal writes chunks of rows into Parquet files, on a thread of its own.

A file is written under a hidden name and then renamed, so it is whole or absent; a crash loses at most the
rows of one ``flush_interval``. Names ascend, also when the clock goes back. The status of the channels
(``channels.py``) is written after the rows.
"""

from __future__ import annotations

import atexit
import errno
import logging
import platform
import threading
import time
import uuid
from collections import deque
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import Any, Final

import pyarrow as pa

from ctrlchan.closing import Closing
from ctrlchan.errors import ConfigError, JournalError
from ctrlchan.journal.channels import write_channel
from ctrlchan.journal.files import write_rows
from ctrlchan.journal.names import is_file_name, next_file_name
from ctrlchan.journal.rows import ROW, ChannelStatus, Chunk, OutcomeSource
from ctrlchan.journal.table import table_of, wall_offset
from ctrlchan.storage import AnyPath, PathLike, names_in, path_of, replace

__all__ = ["Journal"]

_LOG: Final = logging.getLogger("ctrlchan.journal")

#: Seconds from one line about errors to the next: a full disk stays full for a while.
_LOG_EVERY: Final = 60.0
#: Errors after which a smaller file may be written.
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: The columns of a smaller file take less room than its footer.
_LEAST_ROWS_OF_FILE: Final = 64
#: Seconds; an older hidden file was left by a process that has ended.
_ORPHAN: Final = 3600.0
_AT_EXIT_TIMEOUT: Final = 2.0


class Journal(Closing):
    """Writes the outcomes of channels into a folder; ``ControllerChannelManager(..., journal=journal)``.

    ``path``: a folder of this machine, or a URL (``hdfs://``, ``s3a://``, ``gs://``, ``abfss://``).

    - ``flush_interval``: seconds; the row of a request is in a file at most so long after its end (and the
      time it takes to write the file). A longer interval gives fewer, larger files.
    - ``max_file_bytes``: limit of the rows in one file, before compression, bytes.
    - ``max_pending_bytes``: limit of the rows that wait for a slow or full disk, bytes; beyond it the oldest
      are lost, counted (``describe``) and logged.

    Several channels, also of several processes, may write into one folder.

    Raises JournalError when the folder cannot be made, ConfigError for invalid settings. Later errors of the
    disk never reach the channel: a failed write is tried again at the next interval, in smaller files where
    there is little room, and logged once a minute. ::

        with Journal("outcomes") as journal, ControllerChannelManager(config, journal=journal) as channel:
            ...
    """

    def __init__(
        self,
        path: PathLike,
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
        self.path: AnyPath = path_of(path)
        self._flush_interval = flush_interval
        self._most_rows_of_file = max_file_bytes // ROW.itemsize
        self._most_pending_rows = max_pending_bytes // ROW.itemsize
        self._host = platform.node()
        # Several journals may write into the folder at the same time: names must differ.
        self._mark = uuid.uuid4().hex[:12]
        try:
            if isinstance(self.path, Path):
                self.path.mkdir(parents=True, exist_ok=True)
            self._last_name = self._last_file()
        except OSError as problem:
            raise JournalError(f"{self.path}: no folder for a journal: {problem}") from problem
        # Guards the following; the last block belongs to the writer's thread alone.
        self._lock = threading.Lock()
        self._pending: deque[Chunk] = deque()
        self._pending_rows = 0
        # The first so many pending rows may be in the file of the last name: their write gave an error.
        self._unsure_rows = 0
        # Kept until they have closed and their last status is written.
        self._sources: list[OutcomeSource] = []
        self._asked = 0
        self._closing = False
        self._lost_rows = 0
        self._written_rows = 0
        self._files = 0
        self._last_error = ""
        self._wake = threading.Event()
        self._answered = threading.Condition(self._lock)
        self._served = 0
        # The writer's thread alone. Channel -> the status in its file, without requests.
        self._written_status: dict[str, tuple[object, ...]] = {}
        self._rows_of_file = self._most_rows_of_file
        # Of the log: no line before this time; rows that the last line called lost; whether an error was
        # logged and its end was not.
        self._silent_until = 0.0
        self._lost_logged = 0
        self._error_logged = False
        self._thread = threading.Thread(target=self._run, name="ctrlchan-journal", daemon=True)
        self._thread.start()
        atexit.register(self.close, _AT_EXIT_TIMEOUT)

    # -- for channels

    def attach(self, source: OutcomeSource) -> None:
        """Add a source of rows, which is flushed before every write. Raises JournalError when closed."""
        with self._lock:
            if self._closing:
                raise JournalError(f"{self.path}: the journal is closed")
            self._sources.append(source)

    def take(self, chunk: Chunk) -> None:
        """Queue a chunk for writing; never raises."""
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
                self._unsure_rows = 0
            full = self._pending_rows >= self._most_rows_of_file
        if full:
            self._wake.set()

    # -- for users

    def flush(self, timeout: float = 30.0) -> bool:
        """Write the rows of all requests that have ended so far.

        Return False when that fails or takes more than ``timeout`` seconds.
        """
        with self._lock:
            self._asked += 1
            ticket = self._asked
            self._wake.set()
            in_time = self._answered.wait_for(lambda: self._served >= ticket, timeout)
            return in_time and not self._pending

    def close(self, timeout: float = 30.0) -> None:
        """Write the pending rows and end the thread; rows not written in ``timeout`` seconds are lost.

        Close the channel first. A second call does nothing.
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
        """Return path, written rows and files, pending rows, lost rows, and the last error ("": none)."""
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
                self._write_statuses(sources)
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
                no_room = getattr(problem, "errno", None) in _NO_ROOM
                self._put_back(chunks, problem, written=not no_room)
                if not no_room or count <= _LEAST_ROWS_OF_FILE:
                    break
                self._rows_of_file = max(_LEAST_ROWS_OF_FILE, count // 2)
                continue
            self._rows_of_file = min(self._most_rows_of_file, self._rows_of_file * 2)
            with self._lock:
                self._written_rows += count
                self._files += 1
                self._last_error = ""
        self._log_errors()

    def _write_statuses(self, sources: list[OutcomeSource]) -> None:
        """Write the status of each channel, after its rows: a closed one must not miss its last rows."""
        for source in sources:
            now = monotonic_ns()
            status = source.status(int(self._flush_interval * 1e9))
            with self._lock:
                # A channel hands on its last rows before its status is closed.
                if self._pending:
                    return
            identity = _identity_of(status)
            if identity == self._written_status.get(status.channel) and not any(
                one.requests for one in status.brokers
            ):
                continue
            try:
                if status.brokers:
                    write_channel(self.path, status, self._host, now, wall_offset())
            except Exception as problem:  # noqa: BLE001 - as above
                with self._lock:
                    self._last_error = str(problem) or repr(problem)
                self._log_errors()
                continue
            self._written_status[status.channel] = identity
            with self._lock:
                self._last_error = ""
                if status.closed:
                    del self._written_status[status.channel]
                    self._sources.remove(source)

    def _next_file(self) -> list[Chunk]:
        """Return the rows of the next file, and set its name.

        A store may have written a file and not said so. So the same rows get the same name, and none is there
        twice.
        """
        chunks: list[Chunk] = []
        with self._lock:
            unsure, self._unsure_rows = self._unsure_rows, 0
            room = unsure or self._rows_of_file
            while room and self._pending:
                chunk = self._pending.popleft()
                if len(chunk.rows) > room:
                    rest = chunk._replace(rows=chunk.rows[room:], sequence=chunk.sequence + room)
                    self._pending.appendleft(rest)
                    chunk = chunk._replace(rows=chunk.rows[:room])
                room -= len(chunk.rows)
                self._pending_rows -= len(chunk.rows)
                chunks.append(chunk)
        if chunks and not unsure:
            self._last_name = next_file_name(self._last_name, self._mark)
        return chunks

    def _put_back(self, chunks: list[Chunk], problem: Exception, *, written: bool) -> None:
        """Let these rows wait again. ``written``: they may be in a file all the same."""
        rows = sum(len(chunk.rows) for chunk in chunks)
        with self._lock:
            self._last_error = str(problem) or repr(problem)
            self._pending.extendleft(reversed(chunks))
            self._pending_rows += rows
            self._unsure_rows = rows if written else 0

    def _log_errors(self) -> None:
        """Log errors and lost rows, at most once a minute, and the end of errors."""
        with self._lock:
            error, pending, lost = self._last_error, self._pending_rows, self._lost_rows
        if error or lost > self._lost_logged:
            if monotonic() < self._silent_until:
                return
            self._silent_until = monotonic() + _LOG_EVERY
            self._lost_logged = lost
            self._error_logged = bool(error)
            _LOG.error(
                "The journal %s cannot keep up: %s. %d rows wait, %d are lost so far.",
                self.path,
                error or "the disk is slower than the channel",
                pending,
                lost,
            )
        elif self._error_logged:
            self._error_logged = False
            _LOG.warning("The journal %s is written again; %d rows are lost so far.", self.path, lost)

    # -- files

    def _write(self, table: pa.Table) -> None:
        if isinstance(self.path, Path):
            # The folder may have been moved away.
            self.path.mkdir(parents=True, exist_ok=True)
        sink = pa.BufferOutputStream()
        write_rows([table], sink)
        replace(self.path / self._last_name, sink.getvalue().to_pybytes())

    def _last_file(self) -> str:
        """Return the last file name in the folder, or ""; remove hidden files of processes that ended."""
        names = names_in(self.path)
        if isinstance(self.path, Path):
            for name in names:
                if name.startswith(".") and name.endswith(".tmp"):
                    _remove_orphan(self.path / name)
        return max(filter(is_file_name, names), default="")


def _remove_orphan(file: Path) -> None:
    try:
        if time.time() - file.stat().st_mtime > _ORPHAN:
            file.unlink()
    except FileNotFoundError:
        # Its writer has renamed it.
        return


def _identity_of(status: ChannelStatus) -> tuple[object, ...]:
    """Return the part of a status that needs a new file when it changes."""
    waits = any(broker.requests for broker in status.brokers)
    return status.closed, waits, tuple((broker.broker, broker.generation) for broker in status.brokers)
