"""Gives record batches the columns and types that Spark has planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

__all__ = ["as_spark_has_them"]


def as_spark_has_them(batches: Iterable[pa.RecordBatch], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the batches with the columns of ``schema``; a column that a batch does not have is null."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    for batch in batches:
        names = batch.schema.names
        columns = [
            batch.column(field.name).cast(field.type)
            if field.name in names
            else pa.nulls(len(batch), field.type)
            for field in wanted
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=wanted)
