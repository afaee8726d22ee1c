"""Names of the files and folders of a log directory, as Kafka 3.9 gives them.

A log directory holds one folder per replica, ``topic-partition``. A folder that Kafka is about to delete,
does not know, or fills for a move has a unique id and a suffix: ``topic-partition.<32 hex digits>-delete``,
``-stray``, ``-future``. Segments are named after their first offset with 20 digits. Sources: ``LocalLog``,
``LogFileUtils``.
"""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Final, NamedTuple

from ctrlchan.errors import LogDirectoryError
from ctrlchan.text import quoted

__all__ = [
    "CLEANED_SUFFIX",
    "DELETED_SUFFIX",
    "DELETE_SUFFIX",
    "FUTURE_SUFFIX",
    "INDEX_SUFFIX",
    "LOG_SUFFIX",
    "SNAPSHOT_SUFFIX",
    "STRAY_SUFFIX",
    "SWAP_SUFFIX",
    "TIME_INDEX_SUFFIX",
    "TXN_INDEX_SUFFIX",
    "Folder",
    "folder_name",
    "log_context",
    "offset_of",
    "parse_folder_name",
    "renamed_folder",
    "segment_name",
]

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
#: A file that is deleted after ``file.delete.delay.ms``.
DELETED_SUFFIX: Final = ".deleted"
#: A segment that the cleaner has not finished.
CLEANED_SUFFIX: Final = ".cleaned"
#: A finished segment of the cleaner that has not replaced the old ones yet.
SWAP_SUFFIX: Final = ".swap"
DELETE_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"
FUTURE_SUFFIX: Final = "-future"

#: The longest file name of common file systems, in bytes.
_LONGEST: Final = 255
_MARKED: Final = re.compile(r"(\S+)-(\S+)\.(\S+)(-delete|-stray|-future)")
_SEGMENT_FILE: Final = re.compile(r"(\d{1,19}|0\d{19})\.")
_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1


class Folder(NamedTuple):
    """A parsed name of a folder. ``suffix``: ``-delete``, ``-stray``, ``-future`` or empty."""

    topic: str
    partition: int
    suffix: str


def folder_name(topic: str, partition: int) -> str:
    """Return the name of the folder of a replica."""
    return f"{topic}-{partition}"


def renamed_folder(topic: str, partition: int, suffix: str) -> str:
    """Return a new name with a unique id for the folder of a replica that is to be deleted, stray or future.

    The topic is cut where the name would be longer than 255 bytes; Kafka cuts no ``-future`` name.
    """
    end = f"-{partition}.{uuid.uuid4().hex}{suffix}"
    return (topic if suffix == FUTURE_SUFFIX else topic[: _LONGEST - len(end)]) + end


def parse_folder_name(name: str) -> Folder:
    """Return topic, partition and suffix of a folder. Raises LogDirectoryError for any other name."""
    suffix = next((one for one in (DELETE_SUFFIX, STRAY_SUFFIX, FUTURE_SUFFIX) if name.endswith(one)), "")
    whole = name
    if suffix and not _MARKED.fullmatch(name):
        raise LogDirectoryError(f"folder {quoted(name)}: no unique id before {suffix}")
    if suffix:
        whole = name[: name.rindex(".")]
    topic, dash, number = whole.rpartition("-")
    if not dash or not topic:
        raise LogDirectoryError(f"folder {quoted(name)}: not topic-partition")
    if not (number.isascii() and number.isdigit()) or int(number) > _MAX_INT32:
        raise LogDirectoryError(f"folder {quoted(name)}: {quoted(number)} is not a partition")
    return Folder(topic, int(number), suffix)


def log_context(kind: str, folder: Path) -> str:
    """Return what the lines of a class of Kafka, ``kind``, about the log in a folder begin with."""
    name = folder.name.rpartition(".")[0] if _MARKED.fullmatch(folder.name) else folder.name
    return f"[{kind} partition={name}, dir={folder.parent}] "


def segment_name(offset: int) -> str:
    """Return the 20 digits that begin the names of a segment's files."""
    return f"{offset:020d}"


def offset_of(name: str) -> int | None:
    """Return the offset with which the name of a file begins, None for another name."""
    found = _SEGMENT_FILE.match(name)
    if found is None:
        return None
    offset = int(found[1])
    return offset if offset <= _MAX_INT64 else None
