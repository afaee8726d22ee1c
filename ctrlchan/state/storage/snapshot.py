"""A snapshot: a folder that holds one cluster's metadata.

``cluster.json``         format, format_version, cluster_id, controller_id, controller_epoch; and, unless
                         empty, shutting_down (broker ids), deleting and deletion_in_progress (topic names);
                         state_id and state_version: the id of the change counter and its newest version
                         (``changes.py``); brokers_version: the newest change of the live brokers. Older
                         snapshots have none of the three: a state read from them counts from 0
``partitions.parquet``   a file, or a folder of part files that are read in the order of their names (names
                         that begin with ``_`` or ``.`` are skipped, as Spark does)
``brokers.parquet``      the live and shutting-down brokers

In HDFS and in object stores the two tables are in a folder that ``cluster.json`` names
(``ctrlchan.storage``). The columns are those of ``ctrlchan.state.storage.schemas``, ``row_version`` included.
Every error of a snapshot is a SnapshotError that names the file, the row in it (from 0) and the reason.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ctrlchan.errors import InvalidStateError, SnapshotError
from ctrlchan.state.changes import Changes
from ctrlchan.state.parts import StateParts
from ctrlchan.state.storage.arrow import (
    partitions_from_arrow,
    partitions_to_arrow,
    versions_from_arrow,
)
from ctrlchan.state.storage.arrow_brokers import brokers_from_arrow, brokers_to_arrow
from ctrlchan.state.storage.arrow_columns import columns_of
from ctrlchan.state.storage.problems import Source
from ctrlchan.state.storage.schemas import PARTITIONS, SNAPSHOT_VERSION
from ctrlchan.state.view import StateView
from ctrlchan.storage import AnyPath, contents_of, files_in, occupied, replace, whole_folder
from ctrlchan.storage.parquet import arrow_source, write_parquet

__all__ = [
    "BROKERS_FILE",
    "CLUSTER_FILE",
    "FORMAT_NAME",
    "PARTITIONS_FILE",
    "check_writable",
    "read_snapshot",
    "write_snapshot",
]

CLUSTER_FILE: Final = "cluster.json"
PARTITIONS_FILE: Final = "partitions.parquet"
BROKERS_FILE: Final = "brokers.parquet"

#: In ``cluster.json``.
FORMAT_NAME: Final = "ctrlchan-snapshot"


def read_snapshot(path: AnyPath) -> StateParts:
    """Return the contents of a snapshot folder. Raises SnapshotError.

    That ``cluster.json`` names no topic and no broker that the tables do not have is not checked.
    """
    try:
        if not path.is_dir():
            raise SnapshotError(f"{path}: {'not a folder' if path.exists() else 'no such folder'}")
    except OSError as error:
        raise SnapshotError(f"{path}: cannot be read ({_one_line(error)})") from error
    cluster = _read_cluster(path / CLUSTER_FILE)
    tables = contents_of(path, cluster)
    table, source = _read_partitions(tables / PARTITIONS_FILE)
    topics, partitions = partitions_from_arrow(table, source)
    changes = None
    if "state_id" in cluster:
        newest = cluster["state_version"]
        changes = Changes(
            len(partitions),
            versions_from_arrow(table, newest, source),
            id=cluster["state_id"],
            version=newest,
            brokers=cluster["brokers_version"],
        )
    # The columns keep the memory that they use; the rest (topic names, ids of each row) is freed here.
    del table
    brokers_path = tables / BROKERS_FILE
    return StateParts(
        topics=topics,
        partitions=partitions,
        brokers=brokers_from_arrow(_read_parquet(brokers_path), _file_source(brokers_path)),
        cluster_id=cluster["cluster_id"],
        controller_id=cluster["controller_id"],
        controller_epoch=cluster["controller_epoch"],
        shutting_down=cluster["shutting_down"],
        deleting=cluster["deleting"],
        deletion_in_progress=cluster["deletion_in_progress"],
        changes=changes,
    )


def write_snapshot(state: StateView, path: AnyPath, *, overwrite: bool = False) -> None:
    """See ``ClusterState.write``."""
    try:
        check_writable(path, overwrite=overwrite)
        with whole_folder(path, CLUSTER_FILE, overwrite=overwrite) as made:
            _write_files(state, made)
    except (OSError, pa.ArrowException, InvalidStateError) as error:
        raise SnapshotError(f"{path}: cannot be written ({error})") from error


# -- reading


def _read_cluster(path: AnyPath) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SnapshotError(f"{path}: no such file (is this a snapshot folder?)") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SnapshotError(f"{path}: cannot be read ({error})") from error
    try:
        cluster = json.loads(text)
    except ValueError as error:
        raise SnapshotError(f"{path}: not JSON ({error})") from error
    if not isinstance(cluster, dict) or cluster.get("format") != FORMAT_NAME:
        raise SnapshotError(f"{path}: not a description of a snapshot (format is not {FORMAT_NAME!r})")
    version: Any = cluster.get("format_version")
    if not _is_int(version) or version < 1:
        raise SnapshotError(f"{path}: format_version is {version!r}, expected a number from 1")
    if version > SNAPSHOT_VERSION:
        raise SnapshotError(
            f"{path}: format_version is {version}, newer than the {SNAPSHOT_VERSION} this program reads"
        )
    for name in ("cluster_id", "controller_id", "controller_epoch"):
        value = cluster.get(name)
        if not (isinstance(value, str) if name == "cluster_id" else _is_int(value)):
            expected = "a text" if name == "cluster_id" else "a whole number that int32 holds"
            raise SnapshotError(f"{path}: {name} is {value!r}, expected {expected}")
    for name in ("shutting_down", "deleting", "deletion_in_progress"):
        values = cluster.setdefault(name, [])
        right = _is_int if name == "shutting_down" else _is_text
        if not isinstance(values, list) or not all(map(right, values)):
            raise SnapshotError(f"{path}: {name} is {values!r}, expected a list")
    if "state_id" in cluster:
        _check_versions(path, cluster)
    return cluster


def _check_versions(path: AnyPath, cluster: dict[str, Any]) -> None:
    if not _is_text(cluster["state_id"]) or not cluster["state_id"]:
        raise SnapshotError(f"{path}: state_id is {cluster['state_id']!r}, expected a text")
    cluster.setdefault("brokers_version", 0)
    newest = 2**63 - 1
    for name in ("state_version", "brokers_version"):
        value = cluster.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= newest:
            raise SnapshotError(f"{path}: {name} is {value!r}, expected a whole number in 0 .. {newest}")
        newest = value


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _read_partitions(path: AnyPath) -> tuple[pa.Table, Source]:
    if not path.is_dir():
        return _read_parquet(path), _file_source(path)
    files = files_in(path)
    if not files:
        raise SnapshotError(f"{path}: a folder without part files")
    tables = [_read_parquet(file) for file in files]
    for file, table in zip(files, tables, strict=True):
        # Arrow would fill a column that is missing in one part with nulls.
        columns_of(table, PARTITIONS.names, _file_source(file))
    ends = np.cumsum([table.num_rows for table in tables])

    def place(row: int) -> str:
        part = int(np.searchsorted(ends, row, "right"))
        return f"{files[part].name} row {row - int(ends[part]) + tables[part].num_rows}"

    try:
        whole = pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SnapshotError(f"{path}: part files do not fit together ({_one_line(error)})") from error
    return whole, Source(str(path), SnapshotError, place)


def _read_parquet(path: AnyPath) -> pa.Table:
    if not path.is_file():
        raise SnapshotError(f"{path}: {'not a file' if path.exists() else 'no such file'}")
    try:
        with pq.ParquetFile(arrow_source(path)) as file:
            return file.read()
    except (OSError, pa.ArrowException) as error:
        raise SnapshotError(f"{path}: not a readable Parquet file ({_one_line(error)})") from error


def _file_source(path: AnyPath) -> Source:
    return Source(str(path), SnapshotError)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


# -- writing


def check_writable(path: AnyPath, *, overwrite: bool) -> None:
    """Raise SnapshotError when ``path`` exists and must not be replaced."""
    if not isinstance(path, Path):
        reason = occupied(path, CLUSTER_FILE, overwrite=overwrite)
        if reason is not None:
            raise SnapshotError(f"{path}: {reason}")
        return
    if not path.exists():
        return
    if not overwrite:
        raise SnapshotError(f"{path}: exists; to replace it ask for that (--overwrite, overwrite=True)")
    if not path.is_dir():
        raise SnapshotError(f"{path}: exists and is not a folder")
    # Never replace a folder that is no snapshot.
    if not (path / CLUSTER_FILE).is_file() and any(path.iterdir()):
        raise SnapshotError(f"{path}: exists and is not a snapshot, so it is not overwritten")


def _write_files(state: StateView, folder: AnyPath) -> None:
    # A push of this state and a push of the snapshot have the same versions.
    changes = state.changes
    partitions = partitions_to_arrow(state.topics, state.partitions, changes.rows)
    # Without Arrow's own schema in the file every reader takes the topic as a plain string.
    write_parquet(
        partitions, folder / PARTITIONS_FILE, compression="zstd", store_schema=False, use_dictionary=True
    )
    write_parquet(brokers_to_arrow(state.brokers), folder / BROKERS_FILE, store_schema=False)
    deleting = state.topics.deleting
    marked = [] if deleting is None else np.flatnonzero(deleting).tolist()
    optional = {
        "shutting_down": sorted(state.shutting_down),
        "deleting": [state.topic_name(row) for row in marked],
        "deletion_in_progress": sorted(state.deletion_in_progress),
    }
    cluster = {
        "format": FORMAT_NAME,
        "format_version": SNAPSHOT_VERSION,
        "cluster_id": state.cluster_id,
        "controller_id": state.controller_id,
        "controller_epoch": state.controller_epoch,
        **{name: value for name, value in optional.items() if value},
        "state_id": changes.id,
        "state_version": changes.version,
        "brokers_version": changes.brokers,
    }
    replace(folder / CLUSTER_FILE, f"{json.dumps(cluster, indent=2)}\n".encode())
