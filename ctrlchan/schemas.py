"""The columns of everything that stands on disk: snapshots, frames and journals, with their versions.

One rule for all: a reader takes what is of its version or older, refuses what is newer, refuses a column
that is missing or of another type, and keeps columns that it does not know.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import pyarrow as pa

from ctrlchan.errors import PipelineError
from ctrlchan.journal.schema import SCHEMA as JOURNAL
from ctrlchan.journal.schema import VERSION as JOURNAL_VERSION
from ctrlchan.state.arrow import PARTITION_SCHEMA as PARTITIONS
from ctrlchan.state.arrow_brokers import BROKER_SCHEMA as BROKERS
from ctrlchan.state.snapshot import FORMAT_VERSION as SNAPSHOT_VERSION

__all__ = [
    "BROKERS",
    "FRAMES",
    "FRAMES_VERSION",
    "JOURNAL",
    "JOURNAL_VERSION",
    "PARTITIONS",
    "SNAPSHOT_VERSION",
    "check",
    "check_version",
]

FRAMES_VERSION: Final = 1
#: One request, ready for the wire of one broker. (broker, sequence) is the key.
_FRAMES: Final[list[pa.Field[Any]]] = [
    pa.field("broker", pa.int32(), nullable=False),
    # The order of the broker's requests, from 0 without gaps.
    pa.field("sequence", pa.int64(), nullable=False),
    pa.field("api", pa.int16(), nullable=False),
    pa.field("version", pa.int16(), nullable=False),
    pa.field("controller_epoch", pa.int32(), nullable=False),
    # Which version of the controller's state it carries; null: the snapshot does not say.
    pa.field("state_version", pa.int64()),
    # Partitions it speaks of.
    pa.field("rows", pa.int64(), nullable=False),
    # The length of ``frame``, its own four bytes of length included.
    pa.field("bytes", pa.int64(), nullable=False),
    pa.field("frame", pa.binary(), nullable=False),
]
FRAMES: Final = pa.schema(_FRAMES)


def check(found: pa.Schema, wanted: pa.Schema, source: object, *, optional: Collection[str] = ()) -> None:
    """Raise PipelineError, naming ``source`` and the columns, unless ``found`` has what is wanted.

    Types are compared as readers see them: integers by their width, lists and structs by what is in them,
    binary of any width as binary. Nullability and columns that are not wanted do not matter.
    """
    missing = [name for name in wanted.names if name not in found.names and name not in optional]
    if missing:
        there = ", ".join(found.names) or "none"
        raise PipelineError(f"{source}: no column {', '.join(missing)} (columns: {there})")
    for field in wanted:
        if field.name in found.names:
            kind = found.field(field.name).type
            if not _alike(kind, field.type):
                raise PipelineError(f"{source}: column {field.name} has type {kind}, expected {field.type}")


def check_version(found: object, supported: int, what: str, source: object) -> None:
    """Raise PipelineError unless ``found`` is a version of ``what`` that this ctrlchan reads."""
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise PipelineError(f"{source}: {found!r} is no version of {what}")
    if found > supported:
        raise PipelineError(
            f"{source}: {what} version {found} is of a newer ctrlchan; this one reads up to {supported}"
        )


def _alike(found: Any, wanted: Any) -> bool:
    if pa.types.is_dictionary(found):
        return _alike(found.value_type, wanted)
    if _is_binary(wanted):
        return _is_binary(found)
    if pa.types.is_string(wanted):
        return pa.types.is_string(found) or pa.types.is_large_string(found)
    if pa.types.is_list(wanted):
        is_list = pa.types.is_list(found) or pa.types.is_large_list(found)
        return is_list and _alike(found.value_type, wanted.value_type)
    if pa.types.is_struct(wanted):
        if not pa.types.is_struct(found):
            return False
        names = [field.name for field in found]
        return all(
            field.name in names and _alike(found.field(field.name).type, field.type) for field in wanted
        )
    return bool(found.equals(wanted))


def _is_binary(kind: Any) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
