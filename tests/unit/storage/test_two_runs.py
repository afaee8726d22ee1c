"""Two runs of dispatch with one journal: every frame once and in order, also when the first run is killed.

The tasks are those that Spark would run, each in a process and with a run of its own, as from two clusters.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest

from ctrlchan.journal import read_journal
from ctrlchan.pipeline.jobs.dispatch.config import DispatchConfig
from ctrlchan.pipeline.jobs.dispatch.run import Run
from ctrlchan.pipeline.jobs.dispatch.sender import Sending
from ctrlchan.storage import AnyPath
from tests.spark.watched import Permits, steps_of, watched
from tests.storage.frames import some_frames

TASK: Final = """
import pickle, sys
import pyarrow.parquet as pq
from ctrlchan.pipeline.jobs.dispatch.sender import send_frames

rows = pq.read_table(sys.argv[1]).sort_by([("sequence", "ascending"), ("broker", "ascending")])
sending = pickle.load(sys.stdin.buffer)
print(sum(one.applied for one in send_frames(rows.to_batches(max_chunksize=16), sending)))
"""


@pytest.mark.parametrize("killed", [False, True])
def test_two_runs_with_one_journal(root: AnyPath, killed: bool, tmp_path: Path) -> None:
    permits = Permits()
    with ExitStack() as stack, watched(3, permits=permits) as brokers:
        frames = tmp_path / "frames.parquet"
        sending, rows, expected = some_frames(brokers)
        pq.write_table(rows, frames)
        in_all = sum(map(len, expected.values()))
        config = DispatchConfig(journal=root / "journal", flush_interval=0.2)
        tasks: list[subprocess.Popen[bytes]] = []
        for name in ("first", "second"):
            Run(config.journal, name).begin()
            command = [sys.executable, "-c", TASK, str(frames)]
            task = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            tasks.append(stack.enter_context(task))
            assert task.stdin is not None
            values = {**vars(sending), "run": name, "journal": str(config.journal)}
            values |= {"lease": 60.0, "flush_interval": 0.2}
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
