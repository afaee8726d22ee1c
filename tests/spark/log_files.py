"""Writes folders of state-change logs for tests and computes the merged entries in plain Python."""

from __future__ import annotations

import gzip
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

__all__ = ["LogFolder", "Written", "random_logs"]

START = datetime(2026, 1, 31, 10, tzinfo=UTC)


@dataclass(frozen=True)
class Written:
    """An entry of a log file."""

    time: datetime
    broker: int
    #: Number of the file among the broker's rotated files, from the oldest.
    rotation: int
    file: str
    line: int
    text: str
    topic: str | None = None
    partition: int | None = None


@dataclass
class LogFolder:
    """Writes log files and keeps a list of their entries and rejected lines."""

    folder: Path
    entries: list[Written] = field(default_factory=list)
    rejects: list[tuple[str, int, str]] = field(default_factory=list)
    lines: int = 0

    def write(
        self, name: str, broker: int, rotation: int, pieces: Sequence[tuple[datetime, str, str, int] | str]
    ) -> Path:
        """Write a file. ``pieces``: (time, message, topic, partition), or lines that belong to no entry."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        texts: list[str] = []
        for piece in pieces:
            line = 1 + sum(text.count("\n") + 1 for text in texts)
            if isinstance(piece, str):
                self.rejects.append((str(path), line, piece))
                texts.append(piece)
                continue
            time, message, topic, partition = piece
            stamp = time.strftime("%Y-%m-%d %H:%M:%S,") + f"{time.microsecond // 1000:03d}"
            text = f"[{stamp}] {message}"
            texts.append(text)
            self.entries.append(
                Written(time, broker, rotation, str(path), line, text, topic or None, partition)
            )
        content = "".join(f"{text}\n" for text in texts).encode()
        self.lines += content.count(b"\n")
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        return path

    @property
    def in_order(self) -> list[Written]:
        """The entries in the order that merging gives."""
        return sorted(self.entries, key=lambda one: (one.time, one.broker, one.rotation, one.line))


def random_logs(folder: Path, *, seed: int, brokers: int = 3, entries: int = 200) -> LogFolder:
    """Write rotated and compressed logs with stack traces, equal times and bad lines."""
    chance = random.Random(seed)
    logs = LogFolder(folder)
    names = ["state-change.log.2026-01-31-09.gz", "state-change.log.2026-01-31-10", "state-change.log"]
    for broker in range(1, brokers + 1):
        time = START
        for rotation, name in enumerate(names):
            pieces: list[tuple[datetime, str, str, int] | str] = []
            if chance.random() < 0.5:
                pieces.append("the end of an entry of a deleted file")
            for _ in range(entries):
                time += timedelta(milliseconds=chance.choice([0, 0, 1, 7]))
                topic, partition = chance.choice(["a", "a-1", "a.b"]), chance.randrange(3)
                message = (
                    f"TRACE [Broker id={broker}] Deleted partition {topic}-{partition} from metadata cache "
                    f"in response to UpdateMetadata request sent by controller 1 epoch 2 with correlation id "
                    f"{len(logs.entries)} (state.change.logger)"
                )
                if chance.random() < 0.05:
                    message += "\njava.io.IOException: x\n\tat a.b(C.scala:1)\n"
                pieces.append((time, message, topic, partition))
                if chance.random() < 0.03:
                    pieces.append("[2026-01-31 10:00:00,000] NOISE nothing")
            logs.write(f"broker-{broker}/{name}", broker, rotation, pieces)
    return logs
