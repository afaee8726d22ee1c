"""``ctrlchan log``: look into the log directories of a broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ctrlchan.broker.log.dump import Row

__all__ = ["app"]

app = typer.Typer(
    help="Look into the log directories of a broker, Kafka's or an embedded one.", no_args_is_help=True
)


@app.callback()
def _group() -> None:
    """Look into the log directories of a broker, Kafka's or an embedded one."""


@app.command()
def dump(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...", help="Log directories, folders of replicas, or files in them.", exists=True
        ),
    ],
    records: Annotated[
        bool, typer.Option("--records", help="Also each record of each batch, decompressed.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line; its `file` names the file.")
    ] = False,
) -> None:
    """Show what is in the files of a log directory, and where they are damaged.

    Segments (.log), indexes (.index, .timeindex, .txnindex), producer
    snapshots, checkpoints, meta.properties and partition.metadata. Nothing
    is changed; the broker may be running. Names are those of Kafka's
    kafka-dump-log.sh. With --records, markers of transactions and the
    records of __transaction_state are shown in its words, too.

    Indexes are compared with their segment. Damage is a line of its own
    with file and byte offset, and the exit status is 1.

    Examples:

    \b
      ctrlchan log dump /var/lib/kafka
      ctrlchan log dump --records /var/lib/kafka/orders-0

    \b
      ctrlchan log dump --json --records /var/lib/kafka/orders-0 |
        jq -r 'select(.offset and .payload) | .payload'
    """
    from ctrlchan.broker.coordinator.transaction.record_texts import text_of
    from ctrlchan.broker.log.dump import dump_file, files_of
    from ctrlchan.internal_topics import TRANSACTIONS_TOPIC

    damaged = False
    for path in paths:
        for file in files_of(path):
            if not as_json:
                typer.echo(f"{file}")
            for row in dump_file(file, records=records, texts={TRANSACTIONS_TOPIC: text_of}):
                damaged = damaged or "damage" in row
                typer.echo(json.dumps({"file": str(file)} | row) if as_json else _line(file, row))
    if damaged:
        raise typer.Exit(1)


def _line(file: Path, row: Row) -> str:
    """Return a row as text."""
    if "damage" in row:
        where = f" at byte {row['position']}" if "position" in row else ""
        return f"  DAMAGED {file}{where}: {row['damage']}"
    indent = "    " if "keySize" in row else "  "
    return indent + " ".join(f"{name}: {_value(value)}" for name, value in row.items())


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    # One line each, and no control codes for the terminal.
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
