"""``ctrlchan decode`` and ``ctrlchan encode``: JSON lines between wire bytes and Kafka's own JSON form.

In: one JSON object a line. Out: one JSON object a line, in the same order. Each line is written out before
the next is read, so both commands can stand in a conversation.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["decode", "encode"]

File = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FILE]",
        help="A file of JSON lines; standard input when it is left out.",
        exists=True,
        dir_okay=False,
    ),
]


def decode(
    file: File = None,
    frames: Annotated[
        bool,
        typer.Option(
            "--frames", help="Lines are whole frames: header and body, without the 4-byte size in front."
        ),
    ] = False,
) -> None:
    """Wire bytes to JSON, one message a line.

    A line {"api": "UpdateMetadataRequest", "version": 8, "hex": "..."}
    becomes the same line with "json" in place of "hex", in the form of
    Kafka's own JsonConverter. Names: LeaderAndIsrRequest,
    LeaderAndIsrResponse, StopReplicaRequest, StopReplicaResponse,
    UpdateMetadataRequest, UpdateMetadataResponse, RequestHeader,
    ResponseHeader. Other keys are kept; "unknown_tagged_fields" is added
    when there were any.

    With --frames a line is {"direction": "request", "hex": "..."} or
    {"direction": "response", "api": "UpdateMetadata", "version": 8,
    "hex": "..."} ("api" may be the key, 6). It gets "api", "version",
    "header" and "json".

    A line that cannot be read becomes {"error": "...", "line": N} in its
    place, and the exit status is 1. Blank lines are skipped.

    Examples:

    \b
      echo '{"api": "ResponseHeader", "version": 0, "hex": "00000007"}' |
        ctrlchan decode

    \b
      ctrlchan decode --frames capture.jsonl | jq .json.controllerEpoch
    """
    _convert(file, "decode", frames=frames)


def encode(file: File = None) -> None:
    """JSON to wire bytes, one message a line: the reverse of `decode`.

    A line {"api": "ResponseHeader", "version": 1, "json": {...}} becomes
    the same line with "hex" in place of "json". The JSON is checked as
    strictly as Kafka's own JsonConverter checks it.

    A line that cannot be read becomes {"error": "...", "line": N} in its
    place, and the exit status is 1. Blank lines are skipped.

    Example:

    \b
      echo '{"api":"ResponseHeader","version":0,"json":{"correlationId":7}}' |
        ctrlchan encode
    """
    _convert(file, "encode")


def _convert(file: Path | None, command: str, *, frames: bool = False) -> None:
    """Convert every line; exit status 1 when one of them could not be read."""
    from ctrlchan.messages.json_lines import convert_file

    with nullcontext(sys.stdin.buffer) if file is None else file.open("rb") as lines:
        if not convert_file(lines, sys.stdout, command, frames=frames):
            raise typer.Exit(1)
