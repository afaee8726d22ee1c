"""What the jobs read and write by Python: snapshots, journals, marks, pieces of files, a monitor's states."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from ctrlchan.errors import JournalError, PipelineError, SnapshotError
from ctrlchan.journal import compact_journal, journal_files, read_channels, read_journal
from ctrlchan.journal.channels import CHANNELS_FOLDER
from ctrlchan.journal.check import check_journal
from ctrlchan.journal.reader import COMPACTING
from ctrlchan.pipeline.jobs.monitor.checkpoint import CheckpointStore, MonitorState
from ctrlchan.pipeline.source.pieces import pieces_of, read_piece
from ctrlchan.pipeline.spark.tables import count_rows, new_folder, parts_of, read_mark, write_json
from ctrlchan.state import ClusterState
from ctrlchan.state.importing.generate import GeneratorConfig, generate
from ctrlchan.state.storage.schemas import JOURNAL
from ctrlchan.storage import AnyPath, names_in, replace
from ctrlchan.storage.parquet import write_parquet
from tests.storage.s3 import Request, S3Server
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


def test_a_journal_is_compacted(root: AnyPath) -> None:
    from ctrlchan.journal import Journal

    journal, out = root / "outcomes", root / "compacted"
    with Journal(journal, flush_interval=60) as writer:
        for number in range(3):
            writer.take(plain_chunk(10, 10 * number))
            assert writer.flush()
    if isinstance(journal, Path):
        (journal / CHANNELS_FOLDER).mkdir()
    replace(journal / CHANNELS_FOLDER / "a.parquet", b"as it is")
    compacted = compact_journal(str(journal), str(out))
    assert (compacted.files_read, compacted.files_written, compacted.rows) == (3, 1, 30)
    assert read_journal(out)["sequence"].to_pylist() == list(range(30))
    assert names_in(out) == [journal_files(journal)[0].name, CHANNELS_FOLDER]
    assert (out / CHANNELS_FOLDER / "a.parquet").read_bytes() == b"as it is"
    with pytest.raises(JournalError, match="compacted: already there; name a new folder"):
        compact_journal(journal, out)
    [broken, *_] = journal_files(journal)
    replace(broken, b"half")
    with pytest.raises(JournalError, match=f"{broken.name}: not a whole Parquet file"):
        compact_journal(journal, root / "none")
    assert not (root / "none").exists()


@pytest.mark.parametrize(("max_file_bytes", "requests"), [(2**20, 1), (1, 2)])
def test_a_journal_is_compacted_with_few_requests_at_a_time(
    s3: S3Server, bucket: AnyPath, max_file_bytes: int, requests: int
) -> None:
    """Each small file is read once, or again where memory is short, and never alone."""
    from ctrlchan.journal import Journal

    with Journal(bucket / "outcomes", flush_interval=60) as writer:
        for number in range(8):
            writer.take(plain_chunk(10, 10 * number))
            assert writer.flush()
    files = {f"/{str(file).removeprefix('s3://')}" for file in journal_files(bucket / "outcomes")}
    # A request that stays alone breaks the barrier, and fails.
    pair = threading.Barrier(2)

    def wait_for_another(request: Request) -> None:
        if request.path in files:
            pair.wait(60)

    s3.requests.clear()
    s3.fault = wait_for_another
    compacted = compact_journal(bucket / "outcomes", bucket / "out", max_file_bytes=max_file_bytes)
    s3.fault = None
    assert (compacted.files_read, compacted.rows) == (8, 80)
    asked = Counter(request.path for request in s3.requests if request.path in files)
    assert asked == dict.fromkeys(files, requests)
    assert read_journal(bucket / "out")["sequence"].to_pylist() == list(range(80))


def test_a_copy_that_is_not_finished_is_no_journal(bucket: AnyPath) -> None:
    """Its writer was killed; where nothing can be renamed, its files are there one by one."""
    from ctrlchan.journal import Journal

    with Journal(bucket / "copy", flush_interval=60) as writer:
        writer.take(plain_chunk(10))
    replace(bucket / "copy" / COMPACTING, b"x")
    with pytest.raises(JournalError, match="copy: a copy that compact has not finished"):
        check_journal(bucket / "copy")


def test_a_journal_waits_for_a_store_that_fails(s3: S3Server, bucket: AnyPath) -> None:
    from ctrlchan.journal import Journal

    with Journal(bucket / "outcomes", flush_interval=60) as journal:
        s3.fault = lambda request: "lost" if request.method == "PUT" else None
        journal.take(plain_chunk(10))
        journal.flush(0.1)
        s3.fault = None
        assert journal.flush(120)
        assert journal.flush(120)
    assert read_journal(bucket / "outcomes")["sequence"].to_pylist() == list(range(10))
    assert journal.describe()["lost_rows"] == 0


def test_a_busy_store_is_no_broken_file(
    s3: S3Server, bucket: AnyPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs

    from ctrlchan.journal import Journal

    with Journal(bucket, flush_interval=60) as journal:
        journal.take(plain_chunk(10))
    [file] = journal_files(bucket)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    s3fs.S3FileSystem.clear_instance_cache()
    s3.fault = lambda one: "busy" if one.method == "GET" and one.path.endswith(".parquet") else None
    words = r"\.parquet: cannot be read: .*reduce your request rate"
    for read in (check_journal, read_journal):
        with pytest.raises(JournalError, match=words):
            read(bucket)
    with pytest.raises(PipelineError, match=words):
        list(pieces_of([str(file)], JOURNAL))
    s3fs.S3FileSystem.clear_instance_cache()


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
