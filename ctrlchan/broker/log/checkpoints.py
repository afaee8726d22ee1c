"""Small files of a log directory: offset checkpoints, leader epochs, ``meta.properties``, topic ids.

Each file is written as a temporary file, flushed and renamed, and its folder is flushed: a crash leaves the
old file or the new one. What is read is checked: LogDirectoryError names file, line and reason. Sources:
``CheckpointFile``, ``OffsetCheckpointFile``, ``LeaderEpochCheckpointFile``, ``PartitionMetadataFile``,
``CleanShutdownFileHandler``, ``MetaProperties``.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ctrlchan.broker.log.lock_file import RefusedError
from ctrlchan.errors import InvalidStateError, LogDirectoryError
from ctrlchan.text import quoted
from ctrlchan.topic_names import ZERO_ID, id_from_text, id_to_text

__all__ = [
    "CLEANER_CHECKPOINT",
    "CLEAN_SHUTDOWN",
    "HIGH_WATERMARK_CHECKPOINT",
    "LEADER_EPOCH_CHECKPOINT",
    "LOG_START_CHECKPOINT",
    "META_PROPERTIES",
    "PARTITION_METADATA",
    "RECOVERY_POINT_CHECKPOINT",
    "CleanShutdown",
    "MetaProperties",
    "flush_folder",
    "read_clean_shutdown",
    "read_epochs",
    "read_meta_properties",
    "read_offsets",
    "read_topic_id",
    "replace_file",
    "write_clean_shutdown",
    "write_meta_properties",
    "write_offsets",
    "write_topic_id",
]

RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
LOG_START_CHECKPOINT: Final = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
META_PROPERTIES: Final = "meta.properties"
PARTITION_METADATA: Final = "partition.metadata"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"

#: The version of all these files.
_VERSION: Final = 0
_INTEGER: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1


def replace_file(path: Path, text: str) -> None:
    """Write the text to the file so that a crash leaves the old contents or the new ones."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Make the names of the files in the folder survive a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise LogDirectoryError(f"{path}: not UTF-8 at byte {error.start}") from None


def _read_lines(path: Path) -> list[str]:
    """Return the lines as Java's BufferedReader finds them: only CR and LF end a line."""
    lines = re.split(r"\r\n|\r|\n", _read(path))
    return lines if lines[-1] else lines[:-1]


def _integer(path: Path, line: int, what: str, text: str, limit: int) -> int:
    if not _INTEGER.fullmatch(text) or not -limit - 1 <= int(text) <= limit:
        raise LogDirectoryError(f"{path}, line {line}: {what} {quoted(text)} is not an integer that fits")
    return int(text)


def _read_rows(path: Path, columns: int) -> list[tuple[int, list[str]]]:
    """Return number and columns of each line after version and count; an empty file has none."""
    try:
        lines = _read_lines(path)
    except FileNotFoundError:
        return []
    if lines and _integer(path, 1, "version", lines[0], _MAX_INT32) != _VERSION:
        raise LogDirectoryError(f"{path}, line 1: version {lines[0]}, where only {_VERSION} is known")
    if len(lines) < 2:
        return []
    count = _integer(path, 2, "number of entries", lines[1], _MAX_INT32)
    rows = []
    for number, line in enumerate(lines[2:], 3):
        row = line.split()
        if len(row) != columns:
            raise LogDirectoryError(
                f"{path}, line {number}: {quoted(line)} has {len(row)} columns, not {columns}"
            )
        rows.append((number, row))
    if len(rows) != count:
        raise LogDirectoryError(f"{path}, line 2: {count} entries announced, {len(rows)} found")
    return rows


def _write_rows(path: Path, rows: Iterable[str]) -> None:
    lines = list(rows)
    replace_file(path, "".join(f"{line}\n" for line in (_VERSION, len(lines), *lines)))


def read_offsets(path: Path) -> dict[tuple[str, int], int]:
    """Return the offset of each (topic, partition) of an offset checkpoint; no file: nothing."""
    offsets = {}
    for line, (topic, partition, offset) in _read_rows(path, 3):
        key = topic, _integer(path, line, "partition", partition, _MAX_INT32)
        offsets[key] = _integer(path, line, "offset", offset, _MAX_INT64)
    return offsets


def write_offsets(path: Path, offsets: Mapping[tuple[str, int], int]) -> None:
    """Write an offset checkpoint: the offset of each (topic, partition)."""
    _write_rows(path, (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()))


def read_epochs(path: Path) -> list[tuple[int, int]]:
    """Return the (leader epoch, start offset) pairs of a ``leader-epoch-checkpoint``, in the file's order."""
    pairs = []
    for line, (epoch, offset) in _read_rows(path, 2):
        pair = (
            _integer(path, line, "leader epoch", epoch, _MAX_INT32),
            _integer(path, line, "start offset", offset, _MAX_INT64),
        )
        if min(pair) < 0:
            raise LogDirectoryError(f"{path}, line {line}: leader epoch or start offset is negative")
        pairs.append(pair)
    return pairs


class MetaProperties(NamedTuple):
    """The identity of a log directory in ZooKeeper mode. A field is None if the file has no such key.

    ``directory_id``: of a directory that a broker has written while its cluster migrates to KRaft.
    """

    cluster_id: str | None
    broker_id: int | None
    directory_id: str | None = None


def read_meta_properties(folder: Path) -> MetaProperties | None:
    """Return the ids in ``meta.properties`` of the log directory, or None without the file.

    Raises RefusedError for version 1, that of KRaft, and LogDirectoryError where the file is malformed.
    """
    path = folder / META_PROPERTIES
    try:
        # Java reads it so; what is not ASCII stands in no key or value that is looked at.
        text = path.read_bytes().decode("latin-1")
    except FileNotFoundError:
        return None
    found: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        key, *value = re.split(r"\s*[=:\s]\s*", line, maxsplit=1)
        # Java writes a backslash before ':', '=', '#', '!' and blanks of a value.
        found[key] = number, re.sub(r"\\(.)", r"\1", value[0] if value else "")
    line_of, version = found.get("version", (0, str(_VERSION)))
    if _integer(path, line_of, "version", version, _MAX_INT32) != _VERSION:
        reason = f"{path}, line {line_of}: version {version}, which ZooKeeper mode does not use"
        raise RefusedError(reason) if int(version) == 1 else LogDirectoryError(reason)
    broker_id = None
    if "broker.id" in found:
        line_of, value_of = found["broker.id"]
        broker_id = _integer(path, line_of, "broker.id", value_of, _MAX_INT32)
    cluster_id, directory_id = (
        found[key][1] if key in found else None for key in ("cluster.id", "directory.id")
    )
    if directory_id is not None:
        try:
            id_from_text(directory_id)
        except InvalidStateError:
            line_of = found["directory.id"][0]
            raise LogDirectoryError(
                f"{path}, line {line_of}: directory.id {quoted(directory_id)} is not an id"
            ) from None
    return MetaProperties(cluster_id, broker_id, directory_id)


def write_meta_properties(
    folder: Path, cluster_id: str, broker_id: int, directory_id: str | None = None
) -> None:
    """Write ``meta.properties`` of the log directory, version 0."""
    # Java's Properties writes an empty comment, the time, and the keys in the order of its hash table.
    now = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime())
    lines = ["#", f"#{now}", f"broker.id={broker_id}", f"version={_VERSION}", f"cluster.id={cluster_id}"]
    if directory_id is not None:
        lines.append(f"directory.id={directory_id}")
    replace_file(folder / META_PROPERTIES, "".join(f"{line}\n" for line in lines))


def read_topic_id(folder: Path) -> bytes | None:
    """Return the topic id in ``partition.metadata`` of a replica's folder, or None without the file."""
    path = folder / PARTITION_METADATA
    try:
        lines = _read_lines(path)
    except FileNotFoundError:
        return None
    values = []
    for number, key in enumerate(("version", "topic_id"), 1):
        parts = re.split(r":\s+", lines[number - 1]) if len(lines) >= number else []
        # As Kafka, which looks at the values alone.
        if len(parts) != 2:
            raise LogDirectoryError(f"{path}, line {number}: not '{key}: …'")
        values.append(parts[1])
    if _integer(path, 1, "version", values[0], _MAX_INT32) < _VERSION:
        raise LogDirectoryError(f"{path}, line 1: version {values[0]} is negative")
    try:
        topic_id = id_from_text(values[1])
    except InvalidStateError as error:
        raise LogDirectoryError(f"{path}, line 2: {error}") from None
    if topic_id == ZERO_ID:
        raise LogDirectoryError(f"{path}, line 2: the topic id is zero")
    return topic_id


def write_topic_id(folder: Path, topic_id: bytes) -> None:
    """Write ``partition.metadata`` of a replica's folder."""
    replace_file(folder / PARTITION_METADATA, f"version: {_VERSION}\ntopic_id: {id_to_text(topic_id)}")


class CleanShutdown(NamedTuple):
    """The log directory was closed in order. ``broker_epoch``: None where the file does not say it."""

    broker_epoch: int | None


def read_clean_shutdown(folder: Path) -> CleanShutdown | None:
    """Return the broker epoch of the last clean shutdown, or None if the directory was not closed in order.

    Brokers before 3.9 leave an empty file. As in Kafka a file of another form counts as one without an epoch.
    """
    try:
        data = (folder / CLEAN_SHUTDOWN).read_bytes()
    except FileNotFoundError:
        return None
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        content = None
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    # bool is an int.
    return CleanShutdown(epoch if type(epoch) is int and -_MAX_INT64 - 1 <= epoch <= _MAX_INT64 else None)


def write_clean_shutdown(folder: Path, broker_epoch: int) -> None:
    """Write the file that says that all logs of the log directory were closed."""
    replace_file(folder / CLEAN_SHUTDOWN, f'{{"version":{_VERSION},"brokerEpoch":{broker_epoch}}}')
