"""What the jobs read and write by Python: snapshots, journals, marks, pieces of files, a monitor's states."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ctrlchan.errors import JournalError, PipelineError, SnapshotError
from ctrlchan.journal import journal_files, read_channels, read_journal
from ctrlchan.journal.check import check_journal
from ctrlchan.pipeline.jobs.monitor.checkpoint import CheckpointStore, MonitorState
from ctrlchan.pipeline.source.pieces import pieces_of, read_piece
from ctrlchan.pipeline.spark.tables import count_rows, new_folder, parts_of, read_mark, write_json
from ctrlchan.state import ClusterState
from ctrlchan.state.importing.generate import GeneratorConfig, generate
from ctrlchan.state.storage.schemas import JOURNAL
from ctrlchan.storage import AnyPath, names_in, replace
from ctrlchan.storage.parquet import write_parquet
from tests.storage.s3 import S3Server
from tests.unit.journal.chunks import plain_chunk


def a_state() -> ClusterState:
    return generate(GeneratorConfig(topics=3, partitions_per_topic=4, brokers=3, replication=2))


def test_a_snapshot_is_written_read_and_replaced(root: AnyPath) -> None:
    state = a_state()
    state.write(root / "live")
    assert ClusterState.read(str(root / "live")).describe() == state.describe()
    with pytest.raises(SnapshotError, match=r"live: .*overwrite"):
        state.write(root / "live")
    state.remove_topics([state.topic_name(1)])
    state.write(root / "live", overwrite=True)
    assert ClusterState.read(root / "live").describe() == state.describe()
    assert names_in(root) == ["live"]
    with pytest.raises(SnapshotError, match="no such folder"):
        ClusterState.read(root / "none")


def test_a_journal_is_written_and_read(root: AnyPath) -> None:
    from ctrlchan.journal import Journal

    with Journal(str(root / "outcomes"), flush_interval=60) as journal:
        for number in range(3):
            journal.take(plain_chunk(10, 10 * number))
            assert journal.flush()
    files = journal_files(root / "outcomes")
    assert len(files) == 3
    assert check_journal(root / "outcomes").names == JOURNAL.names
    assert read_journal(root / "outcomes")["sequence"].to_pylist() == list(range(30))
    assert len(read_channels(root / "outcomes")) == 0
    [first, *_] = files
    replace(first, first.read_bytes()[:100])
    with pytest.raises(JournalError, match=f"{first}: not a whole Parquet file"):
        check_journal(root / "outcomes")


def test_a_journal_waits_for_a_store_that_fails(s3: S3Server, bucket: AnyPath) -> None:
    from ctrlchan.journal import Journal

    with Journal(bucket / "outcomes", flush_interval=60) as journal:
        s3.fault = lambda request: "lost" if request.method == "PUT" else None
        journal.take(plain_chunk(10))
        journal.flush(0.1)
        s3.fault = None
        assert journal.flush(120)
        assert journal.flush(120)
    rows = read_journal(bucket / "outcomes")["sequence"].to_pylist()
    assert set(rows) == set(range(10))
    assert journal.describe()["lost_rows"] == 0


def test_a_dataset_of_a_job(root: AnyPath) -> None:
    path = root / "frames"
    table = pa.table({"a": pa.array(range(10), pa.int64())})
    for overwrite in (False, True):
        with new_folder(path, "frames.json", overwrite=overwrite) as folder:
            write_parquet(table, folder / "rows" / "part-0.parquet")
            write_json(folder / "frames.json", {"format": "f", "n": int(overwrite)})
    inner, about = read_mark(path, "frames.json", "f")
    assert about == {"format": "f", "n": 1}
    assert count_rows(inner / "rows") == 10
    with (
        pytest.raises(PipelineError, match="already there"),
        new_folder(path, "frames.json", overwrite=False),
    ):
        raise AssertionError
    files = [str(part) for part in parts_of(inner / "rows")]
    [piece] = pieces_of(files, table.schema)
    assert sum(len(batch) for batch in read_piece(piece, table.schema)) == 10


def test_states_of_a_monitor(root: AnyPath) -> None:
    store = CheckpointStore(root / "sums", "journal")
    for batch in range(5):
        store.write(MonitorState(batch=batch, rows=batch))
    assert CheckpointStore(root / "sums", "journal").newest().rows == 4
    assert store.before(4).batch == 3
    with pytest.raises(PipelineError, match="of journal, not of another"):
        CheckpointStore(root / "sums", "another")
