"""Diffs on disk: a folder.

``diff.json``        format and format_version; of the new snapshot cluster_id, controller_id,
                     controller_epoch and, where it has them, state_id and state_version; from_version, the
                     old one's, where both are of one state
``brokers.parquet``  ``schemas.DIFF_BROKERS``
``rows``             ``schemas.DIFF_ROWS``, a folder of part files: in the order of step, broker (null first),
                     topic, gone, partition
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from ctrlchan.pipeline.jobs.diff.job import Diff
from ctrlchan.pipeline.spark.tables import (
    new_folder,
    read_json,
    read_parquet,
    require_folder,
    write_brokers,
    write_json,
)
from ctrlchan.state.storage.schemas import DIFF_BROKERS, DIFF_ROWS, DIFF_VERSION, check_version
from ctrlchan.state.storage.snapshot import BROKERS_FILE

__all__ = ["DIFF_FILE", "read_diff", "write_diff"]

DIFF_FILE: Final = "diff.json"
ROWS_FOLDER: Final = "rows"
_FORMAT: Final = "ctrlchan-diff"
_ORDER: Final = ("step", "broker", "topic", "gone", "partition")


def read_diff(spark: SparkSession, path: str | Path) -> Diff:
    """Raises PipelineError, naming the file: not there, broken, newer, other columns."""
    folder = Path(path)
    require_folder(folder)
    cluster = read_json(folder / DIFF_FILE, _FORMAT)
    check_version(cluster.get("format_version"), DIFF_VERSION, "a diff", folder / DIFF_FILE)
    return Diff(
        read_parquet(spark, folder / ROWS_FOLDER, DIFF_ROWS),
        read_parquet(spark, folder / BROKERS_FILE, DIFF_BROKERS),
        cluster,
    )


def write_diff(found: Diff, path: str | Path, *, overwrite: bool = False) -> None:
    """A folder that ``read_diff`` takes.

    It appears when it is whole. Raises PipelineError when there is one and ``overwrite`` is false.
    """
    with new_folder(Path(path), DIFF_FILE, overwrite=overwrite) as folder:
        ordered = found.rows.repartitionByRange(*_ORDER).sortWithinPartitions(*_ORDER)
        ordered.write.parquet(str(folder / ROWS_FOLDER))
        write_brokers(found.brokers, folder)
        cluster = {**found.cluster, "format": _FORMAT, "format_version": DIFF_VERSION}
        write_json(folder / DIFF_FILE, cluster)
