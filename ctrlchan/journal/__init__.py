"""The journal of outcomes: a folder of Parquet files, one row for each request that has ended; beside them
how each channel stands, with the requests that have not.

In: chunks of rows and views from a channel (``rows``). Out: files that anybody with Parquet can read, Spark
too. It knows no channel and no broker; the channel knows the rows, and nothing of files.

``Journal`` writes, ``read_journal``, ``journal_dataset`` and ``read_channels`` read,
``ctrlchan.state.storage.schemas`` and
``channels`` say what stands in the files.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ctrlchan.journal.channels import read_channels
    from ctrlchan.journal.reader import journal_dataset, journal_files, read_journal
    from ctrlchan.journal.writer import Journal

__all__ = ["Journal", "journal_dataset", "journal_files", "read_channels", "read_journal"]

_MODULE_OF: Final = {
    "Journal": "writer",
    "journal_dataset": "reader",
    "journal_files": "reader",
    "read_channels": "channels",
    "read_journal": "reader",
}


def __getattr__(name: str) -> object:
    # The channel imports the rows alone: Arrow is loaded by those who read or write files.
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
