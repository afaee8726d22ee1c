"""Diffs on disk: a folder.

``diff.json``        format and format_version; of the new snapshot cluster_id, controller_id,
                     controller_epoch and, where it has them, state_id and state_version; from_version, the
                     old one's, where both are of one state
``brokers.parquet``  ``schemas.DIFF_BROKERS``
``rows``             ``schemas.DIFF_ROWS``, a folder of part files: in the order of step, broker (null first),
                     topic, gone, partition
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from ctrlchan.pipeline.jobs.diff.job import Diff
from ctrlchan.pipeline.spark.tables import (
    destination,
    new_folder,
    read_mark,
    read_parquet,
    write_brokers,
    write_json,
)
from ctrlchan.state.storage.schemas import BROKERS, DIFF_BROKERS, DIFF_ROWS, DIFF_VERSION, check_version
from ctrlchan.state.storage.snapshot import BROKERS_FILE
from ctrlchan.storage import PathLike, path_of

__all__ = ["DIFF_FILE", "read_diff", "write_diff"]

DIFF_FILE: Final = "diff.json"
ROWS_FOLDER: Final = "rows"
_FORMAT: Final = "ctrlchan-diff"
#: Name of ``update_metadata`` in version 1.
_SCOPE_1: Final = "told"
_BROKERS_1: Final = pa.schema([*BROKERS, pa.field(_SCOPE_1, pa.string(), nullable=False)])
_ORDER: Final = ("step", "broker", "topic", "gone", "partition")


def read_diff(spark: SparkSession, path: PathLike) -> Diff:
    """Read a diff.

    Raises PipelineError, naming the file, if it is missing, broken, newer or has other columns.
    """
    folder, cluster = read_mark(path_of(path), DIFF_FILE, _FORMAT)
    check_version(cluster.get("format_version"), DIFF_VERSION, "a diff", path_of(path) / DIFF_FILE)
    if cluster["format_version"] == 1:
        brokers = read_parquet(spark, folder / BROKERS_FILE, _BROKERS_1)
        brokers = brokers.withColumnRenamed(_SCOPE_1, "update_metadata")
    else:
        brokers = read_parquet(spark, folder / BROKERS_FILE, DIFF_BROKERS)
    return Diff(read_parquet(spark, folder / ROWS_FOLDER, DIFF_ROWS), brokers, cluster)


def write_diff(found: Diff, path: PathLike, *, overwrite: bool = False) -> None:
    """Write a folder that ``read_diff`` takes.

    The folder appears when it is complete. Raises PipelineError if it exists and ``overwrite`` is false.
    """
    with new_folder(path_of(path), DIFF_FILE, overwrite=overwrite) as folder:
        ordered = found.rows.repartitionByRange(*_ORDER).sortWithinPartitions(*_ORDER)
        ordered.write.parquet(destination(folder / ROWS_FOLDER))
        write_brokers(found.brokers, folder)
        cluster = {**found.cluster, "format": _FORMAT, "format_version": DIFF_VERSION}
        write_json(folder / DIFF_FILE, cluster)
