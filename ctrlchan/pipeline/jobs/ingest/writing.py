"""Result of ``ingest`` on disk: a snapshot, and a folder of rejects beside it."""

from __future__ import annotations

from typing import Any, Final

from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.jobs.ingest.job import Ingested
from ctrlchan.pipeline.spark.tables import (
    count_rows,
    new_folder,
    require_snapshot,
    write_rows,
    write_snapshot,
)
from ctrlchan.state.storage.snapshot import BROKERS_FILE, PARTITIONS_FILE, check_writable
from ctrlchan.storage import PathLike, path_of, replace

__all__ = ["write_ingested"]

#: As Spark leaves it in a folder that it has finished.
_MARK: Final = "_SUCCESS"


def write_ingested(
    found: Ingested,
    snapshot: PathLike,
    rejects: PathLike,
    *,
    overwrite: bool = False,
    max_rejects: int | None = None,
) -> dict[str, Any]:
    """Write snapshot and rejects, and return the counts: in, taken, refused, partitions, topics, brokers.

    The rejects are a folder of Parquet files, also when there are none. Raises PipelineError, and writes no
    snapshot, if there are more than ``max_rejects`` or no partition is left; also if the files do not have
    the rows that were counted, and if one folder is in the other. Raises SnapshotError if a folder exists.
    """
    snapshot, rejects = path_of(snapshot), path_of(rejects)
    one, other = (f"{folder.absolute()}/" for folder in (snapshot, rejects))
    if one.startswith(other) or other.startswith(one):
        raise PipelineError(f"{rejects}: the rejects need a folder apart from that of the snapshot")
    check_writable(snapshot, overwrite=overwrite)
    counts = found.counts()
    with new_folder(rejects, _MARK, overwrite=overwrite) as folder:
        write_rows(found.rejects, folder)
        replace(folder / _MARK, b"")
        written = count_rows(folder)
    if written != counts["refused"]:
        raise PipelineError(f"{rejects}: {counts['refused']} entries were refused, {written} are on disk")
    if max_rejects is not None and written > max_rejects:
        raise PipelineError(f"{written:,} entries were refused, more than {max_rejects:,}; see {rejects}")
    if not counts["partitions"]:
        raise PipelineError(f"no valid partition in {counts['in']:,} entries; see {rejects}")
    write_snapshot(found.snapshot(), snapshot, overwrite=overwrite)
    tables, _ = require_snapshot(snapshot)
    partitions = count_rows(tables / PARTITIONS_FILE)
    if partitions != counts["partitions"]:
        raise PipelineError(
            f"{snapshot}: {counts['partitions']} partitions were taken, {partitions} are on disk"
        )
    return {**counts, "brokers": count_rows(tables / BROKERS_FILE)}
