"""Lines of texts -> entries, by functions that parse one line in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ctrlchan.pipeline.jobs.ingest.entries import COLUMNS, placed
from ctrlchan.pipeline.spark.kept import mapped

__all__ = ["Parsed", "parsed_entries"]

#: Entries of one Arrow batch: a line may have many.
_BATCH: Final = 65_536
_LINE: Final = ("file", "row", "text", "flaw")


class Parsed(NamedTuple):
    """An entry without its place. A column without a value is None."""

    about: str
    role: str
    text: str
    key: str | None = None
    topic: str | None = None
    partition: int | None = None
    topic_id: bytes | None = None
    partition_count: int | None = None
    deleting: bool | None = None
    controller_epoch: int | None = None
    leader: int | None = None
    leader_epoch: int | None = None
    partition_epoch: int | None = None
    recovery_state: int | None = None
    isr: list[int] | None = None
    replicas: list[int] | None = None
    adding_replicas: list[int] | None = None
    removing_replicas: list[int] | None = None
    offline_replicas: list[int] | None = None
    broker: dict[str, Any] | None = None
    cluster: dict[str, Any] | None = None
    reasons: Sequence[str] = ()


def parsed_entries(lines: DataFrame, kind: str, parse: Callable[[str], Iterable[Parsed]]) -> DataFrame:
    """Return the entries of ``text_lines``. ``parse`` returns one or several entries for each line."""
    columns = ", ".join(f"{name} {COLUMNS[name]}" for name in Parsed._fields)
    schema = StructType.fromDDL(f"file string, row bigint, {columns}")
    assert isinstance(schema, StructType)
    arrow = to_arrow_schema(schema, timezone="UTC")

    def parse_lines(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            entries: list[tuple[Any, ...]] = []
            for line in zip(*(batch.column(name).to_pylist() for name in _LINE), strict=True):
                file, row, text, flaw = line
                for entry in parse(text):
                    if flaw is not None:
                        entries.append((file, row, *entry._replace(reasons=(flaw,))))
                        break
                    entries.append((file, row, *entry))
                if len(entries) >= _BATCH:
                    yield _batch(entries, arrow)
                    entries = []
            if entries:
                yield _batch(entries, arrow)

    return placed(mapped(lines, parse_lines, schema), kind, "line")


def _batch(entries: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*entries, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )
