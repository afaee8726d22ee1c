"""The names of a journal's files: a time, a number, and the mark of the writer.

``20261123T010203.000004Z-000005-0123456789ab.parquet``. The names of one writer ascend, also when the clock
goes back. Files of the first versions have no mark.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

__all__ = ["is_file_name", "next_file_name", "writer_of"]

_NAME: Final = re.compile(r"(\d{8}T\d{6}\.\d{6}Z)-(\d{6,})(?:-([0-9a-f]{12}))?\.parquet")
_STAMP: Final = "%Y%m%dT%H%M%S.%fZ"


def is_file_name(name: str) -> bool:
    """Return whether this is the name of a file of a journal."""
    return _NAME.fullmatch(name) is not None


def next_file_name(last: str, mark: str) -> str:
    """Return a name after ``last``, unlike those of writers with another mark.

    ``last``: the last name that the writer has seen, or an empty text.
    """
    stamp, number = datetime.now(UTC).strftime(_STAMP), 0
    found = _NAME.fullmatch(last)
    if found is not None:
        stamp, number = max(stamp, found[1]), int(found[2]) + 1
    return f"{stamp}-{number:06}-{mark}.parquet"


def writer_of(name: str) -> str:
    """Return the mark of the writer of a file; an empty text for a file without one."""
    found = _NAME.fullmatch(name)
    return (found[3] if found else None) or ""
