"""Columns of many Parquet files together, from the checked footers of all files.

Spark reads one footer, and fills columns that other files do not have with nulls. Here the driver reads all
footers, or Spark's tasks if there are many. Rows are never read.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from ctrlchan.errors import CtrlchanError, PipelineError
from ctrlchan.state.storage.schemas import check
from ctrlchan.storage import AnyPath, path_of
from ctrlchan.storage.parquet import arrow_source, unreadable

__all__ = ["columns_of_files"]

#: Footers that the driver reads itself when it has tasks to do it, and that one task reads.
_MOST: Final = 64

#: Files -> their columns together; raises CtrlchanError naming the file that does not fit.
_Read: TypeAlias = Callable[[Sequence[str]], pa.Schema]


def columns_of_files(
    files: Sequence[AnyPath],
    wanted: pa.Schema,
    *,
    later: pa.Schema | None = None,
    spark: SparkSession | None = None,
) -> pa.Schema:
    """Return the columns ``wanted`` and all others of the files, all nullable, as Spark needs them.

    ``later``: optional columns. ``spark``: None: the driver reads all footers. Raises PipelineError, naming
    the file, if it is broken, has no such column, or has the column with another type.
    """

    def read(some: Sequence[str]) -> pa.Schema:
        together = pa.schema([])
        seen: list[pa.Schema] = []
        for file in some:
            schema = _schema_of(file)
            # Nearly all files have the very same columns.
            if not any(schema.equals(other) for other in seen):
                seen.append(schema)
                check(schema, wanted, file)
                if later is not None:
                    check(schema, later, file, optional=later.names)
                together = _together([together, _plain(schema)], file)
        return together

    return _columns([str(file) for file in files], read, spark)


def _columns(files: Sequence[str], read: _Read, spark: SparkSession | None) -> pa.Schema:
    if spark is None or len(files) <= _MOST:
        return read(files)

    def answer(some: Sequence[str]) -> tuple[bytes | None, bytes | None]:
        try:
            return read(some).serialize().to_pybytes(), None
        except CtrlchanError as problem:
            return None, pickle.dumps(problem)

    pieces = [files[at : at + _MOST] for at in range(0, len(files), _MOST)]

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers: list[int] = batch.column("id").to_numpy().tolist()
            answers = [answer(pieces[number]) for number in numbers]
            columns = [pa.array(column, pa.binary()) for column in zip(*answers, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, ["schema", "problem"])

    tasks = spark.range(0, len(pieces), 1, len(pieces))
    found = tasks.mapInArrow(task, "schema binary, problem binary").toArrow()
    problems: list[bytes] = [one for one in found["problem"].to_pylist() if one is not None]
    for problem in problems:
        raise pickle.loads(problem)
    schemas: list[bytes] = sorted({one for one in found["schema"].to_pylist() if one is not None})
    return _together(
        [pa.ipc.read_schema(pa.py_buffer(schema)) for schema in schemas], path_of(files[0]).parent
    )


def _schema_of(file: str) -> pa.Schema:
    try:
        return pq.read_schema(arrow_source(path_of(file)))
    except (pa.ArrowException, OSError) as problem:
        reason = unreadable(problem) or f"not a whole Parquet file: {problem}"
        raise PipelineError(f"{file}: {reason}") from problem


def _together(schemas: list[pa.Schema], source: object) -> pa.Schema:
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as problem:
        raise PipelineError(f"{source}: its columns do not fit those of others: {problem}") from problem


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return the schema without dictionaries, metadata and nullability."""
    return pa.schema(
        [
            pa.field(field.name, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
            for field in schema
        ]
    )
