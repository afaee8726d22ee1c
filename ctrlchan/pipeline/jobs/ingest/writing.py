"""What was ingested, on disk: a snapshot, and a folder of rejects beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.jobs.ingest.job import Ingested
from ctrlchan.pipeline.spark.tables import literally, new_folder, write_snapshot
from ctrlchan.state.storage.snapshot import PARTITIONS_FILE, check_writable

__all__ = ["write_ingested"]

#: Spark leaves it in a folder that it has finished.
_MARK: Final = "_SUCCESS"


def write_ingested(
    found: Ingested,
    snapshot: str | Path,
    rejects: str | Path,
    *,
    overwrite: bool = False,
    max_rejects: int | None = None,
) -> dict[str, Any]:
    """Writes both and gives back the summary: in, taken, refused, partitions, topics, brokers.

    The rejects are a folder of Parquet files, also when there are none. Raises PipelineError, and writes no
    snapshot, when there are more than ``max_rejects`` or no partition is left; and when what is on the disk
    is not what was counted. SnapshotError when a folder is there already.
    """
    check_writable(Path(snapshot), overwrite=overwrite)
    counts = found.counts()
    with new_folder(Path(rejects), _MARK, overwrite=overwrite) as folder:
        found.rejects.write.mode("append").parquet(str(folder))
    spark = found.judged.sparkSession
    written = spark.read.parquet(literally(rejects)).count()
    if written != counts["refused"]:
        raise PipelineError(f"{rejects}: {counts['refused']} items were refused, {written} are there")
    if max_rejects is not None and written > max_rejects:
        raise PipelineError(f"{written:,} items were refused, more than {max_rejects:,}; see {rejects}")
    if not counts["partitions"]:
        raise PipelineError(f"no sound partition in {counts['in']:,} items; see {rejects}")
    write_snapshot(found.snapshot(), snapshot, overwrite=overwrite)
    there = spark.read.parquet(literally(Path(snapshot) / PARTITIONS_FILE))
    partitions = there.count()
    if partitions != counts["partitions"]:
        raise PipelineError(
            f"{snapshot}: {counts['partitions']} partitions were taken, {partitions} are there"
        )
    return {**counts, "topics": there.select("topic").distinct().count(), "brokers": found.brokers.count()}
