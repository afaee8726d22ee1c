"""Rows that are used several times, and functions of Arrow rows.

In a session for small inputs both stay in the driver: a job of Spark, its plan and its Python process cost
more than a few thousand rows. In other sessions rows stay on the executors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from pyspark.storagelevel import StorageLevel

from ctrlchan.pipeline.spark.remote import frozen
from ctrlchan.pipeline.spark.tables import is_small

__all__ = ["collected", "kept", "kept_on_disk", "mapped"]


def collected(table: DataFrame) -> DataFrame:
    """Return a small table whose rows are in the driver."""
    return _of_driver(table.sparkSession, table.toArrow(), table.schema)


def kept(table: DataFrame) -> DataFrame:
    """Return the same rows, which are computed once: until ``unpersist`` or the end of the session."""
    return collected(table) if is_small(table.sparkSession) else table.persist()


def kept_on_disk(table: DataFrame) -> DataFrame:
    """Return ``kept`` of a table of any size, on the executors' disks; its plan is not planned again."""
    if is_small(table.sparkSession):
        return collected(table)
    return frozen(table).persist(StorageLevel.DISK_ONLY)


def mapped(
    table: DataFrame,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: StructType,
) -> DataFrame:
    """Return ``table.mapInArrow(function, schema)``; for small inputs the driver calls the function, now."""
    if not is_small(table.sparkSession):
        return table.mapInArrow(function, schema)
    wanted = to_arrow_schema(schema, timezone="UTC")
    batches = list(function(iter(table.toArrow().to_batches())))
    rows = pa.Table.from_batches(batches, None if batches else wanted)
    return _of_driver(table.sparkSession, rows, schema)


def _of_driver(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    # PySpark takes no column without a chunk, which a table without rows may have.
    return spark.createDataFrame(rows if len(rows) else rows.schema.empty_table(), schema)
