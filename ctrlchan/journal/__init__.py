"""The journal of outcomes: a folder of Parquet files with one row for each request that has ended, and the
status of each channel with its unfinished requests.

In: chunks of rows and statuses from a channel (``rows``). Out: files that every Parquet reader can read. The
journal imports nothing of the channel; the channel imports ``rows`` alone.

``Journal`` writes; ``read_journal``, ``journal_dataset`` and ``read_channels`` read; ``compact_journal``
joins small files into large ones. The columns are described in ``ctrlchan.state.storage.schemas`` and
``channels``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from ctrlchan.packages import require_pyarrow

if TYPE_CHECKING:
    from ctrlchan.journal.channels import read_channels
    from ctrlchan.journal.compaction import Compacted, compact_journal
    from ctrlchan.journal.reader import journal_dataset, journal_files, read_journal
    from ctrlchan.journal.writer import Journal

__all__ = [
    "Compacted",
    "Journal",
    "compact_journal",
    "journal_dataset",
    "journal_files",
    "read_channels",
    "read_journal",
]

_MODULE_OF: Final = {
    "Compacted": "compaction",
    "Journal": "writer",
    "compact_journal": "compaction",
    "journal_dataset": "reader",
    "journal_files": "reader",
    "read_channels": "channels",
    "read_journal": "reader",
}


def __getattr__(name: str) -> object:
    # The channel imports ``rows`` alone: Arrow is loaded only where files are read or written.
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_pyarrow()
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
