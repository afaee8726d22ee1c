"""Two runs of dispatch with one journal: every frame once and in order, also when the first run is killed.

The tasks are those that Spark would run, each in a process and with a run of its own, as from two clusters.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ctrlchan._codec import UPDATE_METADATA
from ctrlchan.journal import read_journal
from ctrlchan.pipeline.jobs.dispatch.config import DispatchConfig
from ctrlchan.pipeline.jobs.dispatch.run import Run
from ctrlchan.pipeline.jobs.dispatch.sender import Sending
from ctrlchan.pipeline.jobs.frames.config import FramesConfig
from ctrlchan.pipeline.jobs.frames.encoder import FrameEncoder
from ctrlchan.pipeline.spark.packed_rows import pack
from ctrlchan.state.importing.generate import GeneratorConfig, generate
from ctrlchan.storage import AnyPath
from tests.spark.watched import Permits, WatchedBroker, steps_of, watched, without_correlation

EPOCH: Final = 6
TASK: Final = """
import pickle, sys
import pyarrow.parquet as pq
from ctrlchan.pipeline.jobs.dispatch.sender import send_frames

rows = pq.read_table(sys.argv[1]).sort_by([("sequence", "ascending"), ("broker", "ascending")])
sending = pickle.load(sys.stdin.buffer)
print(sum(one.applied for one in send_frames(rows.to_batches(max_chunksize=16), sending)))
"""


def some_frames(brokers: Sequence[WatchedBroker], file: Path) -> tuple[Sending, dict[int, list[bytes]]]:
    """Write UpdateMetadata frames for every broker; return the settings, and what each is to receive."""
    shape = GeneratorConfig(topics=20, partitions_per_topic=25, brokers=len(brokers), replication=2)
    state = generate(shape)
    state.set_brokers(one.broker for one in brokers)
    partitions, live = state.to_arrow()
    channel = FramesConfig(max_request_bytes=4_000).channel(0)
    encoder = FrameEncoder(channel=channel, controller_epoch=EPOCH, brokers=pack(live.combine_chunks()))
    version = encoder.version(0, UPDATE_METADATA)
    shared = list(encoder.shared_bodies([pack(partitions)], [(version, True)]))
    rows: list[dict[str, object]] = []
    seen: dict[int, list[bytes]] = {}
    for broker in (one.broker.id for one in brokers):
        for sequence, part in enumerate(encoder.shared_parts(broker, shared)):
            frame = bytearray(part.size)
            part.write_into(memoryview(frame), 0)
            rows.append(
                {
                    "broker": broker,
                    "sequence": sequence,
                    "api": UPDATE_METADATA,
                    "version": version,
                    "controller_epoch": EPOCH,
                    "state_version": 1,
                    "rows": part.rows,
                    "bytes": part.size,
                    "from_version": part.from_version,
                    "frame": bytes(frame),
                }
            )
            seen.setdefault(broker, []).append(without_correlation(bytes(frame)[4:]))
    pq.write_table(pa.Table.from_pylist(rows), file)
    settings = {name: getattr(channel, name) for name in ("controller_id", "client_id")}
    sending = Sending(
        run="",
        journal="",
        dataset="dataset",
        controller_epoch=EPOCH,
        brokers=pack(live.combine_chunks()),
        settings=settings,
    )
    return sending, seen


@pytest.mark.parametrize("killed", [False, True])
def test_two_runs_with_one_journal(root: AnyPath, killed: bool, tmp_path: Path) -> None:
    permits = Permits()
    with ExitStack() as stack, watched(3, permits=permits) as brokers:
        frames = tmp_path / "frames.parquet"
        sending, expected = some_frames(brokers, frames)
        in_all = sum(map(len, expected.values()))
        config = DispatchConfig(journal=root / "journal", lease=5, flush_interval=0.2)
        tasks: list[subprocess.Popen[bytes]] = []
        for name in ("first", "second"):
            Run(config.journal, name).begin()
            command = [sys.executable, "-c", TASK, str(frames)]
            task = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            tasks.append(stack.enter_context(task))
            assert task.stdin is not None
            values = {**vars(sending), "run": name, "journal": str(config.journal)}
            values |= {"lease": 5.0 if killed else 60.0, "flush_interval": 0.2}
            task.stdin.write(pickle.dumps(Sending(**values)))
            task.stdin.close()
            if len(tasks) == 1:
                # It owns the brokers and is in the middle of its work.
                permits.give(in_all // 2)
                permits.until_spent()
        if killed:
            tasks[0].kill()
        permits.unlimited()
        sent = []
        for task in tasks:
            assert task.stdout is not None
            sent.append(task.stdout.read().strip())
            task.wait(120)
        if killed:
            assert int(sent[1]) > 0
        else:
            assert sent == [b"%d" % in_all, b"0"]
        for one in brokers:
            steps_of(one.frames, expected[one.broker.id], cuts=int(killed))
        assert {row["outcome"] for row in read_journal(config.journal).to_pylist()} == {"acknowledged"}
