"""``ctrlchan pipeline compact``: a journal of many small files becomes one of few large files."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Final

import typer

from ctrlchan.cli.pipeline.common import say

__all__ = ["compact"]

_MIB: Final = 2**20


def compact(
    journal: Annotated[str, typer.Argument(metavar="JOURNAL", help="The journal folder.")],
    out: Annotated[str, typer.Argument(metavar="OUT", help="The new folder.")],
    max_file_mib: Annotated[
        int,
        typer.Option("--max-file-mib", metavar="MIB", min=1, help="Rows of one file, before compression."),
    ] = 256,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON, and no progress.")] = (
        False
    ),
) -> None:
    """Copy a journal of many small files into a new folder, as a journal of few large files.

    Reports of the copy are the same and start sooner. The journal is not changed, so channels may write into
    it and monitors read it meanwhile; delete it yourself when nothing writes into it any more. Both folders
    may be URLs.

    Examples:

    \b
      ctrlchan pipeline compact outcomes/ compacted/
      ctrlchan pipeline compact s3://lake/outcomes s3://lake/compacted --max-file-mib 64 --json
    """
    from contextlib import nullcontext

    from ctrlchan.cli.progress import step
    from ctrlchan.journal import compact_journal

    with nullcontext() if as_json else step(f"compacting {journal}"):
        compacted = compact_journal(journal, out, max_file_bytes=max_file_mib * _MIB)
    say(asdict(compacted), as_json=as_json)
