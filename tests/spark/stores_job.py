"""Runs the main path of every job on one store: ``python -m tests.spark.stores_job ROOT [NAME=VALUE ...]``.

The settings are Spark's. Prints ``whole`` at the end. A process of its own, because a session with the
classes of S3 is not the one of the other tests.
"""

from __future__ import annotations

import sys
import time

from pyspark.sql import SparkSession

from ctrlchan import pipeline
from ctrlchan.journal import compact_journal, read_journal
from ctrlchan.pipeline import (
    DiffConfig,
    DispatchConfig,
    ExplainConfig,
    FramesConfig,
    IngestConfig,
    MergeLogsConfig,
    MonitorConfig,
    ReportConfig,
    by_broker,
    read_diff,
    read_frames,
    read_snapshot,
)
from ctrlchan.pipeline.jobs.report.writing import page_in
from ctrlchan.state import ClusterState
from ctrlchan.state.importing.generate import GeneratorConfig, generate
from ctrlchan.storage import names_in, path_of, replace, text_file
from tests.spark.watched import WatchedBroker, watched

_LOG = (
    "[2026-02-02 02:40:00,{at:03d}] TRACE [Broker id={broker}] Deleted partition t-0 from metadata cache in "
    "response to UpdateMetadata request sent by controller 1 epoch 2 with correlation id {at} "
    "(state.change.logger)\n"
)


def main(root: str, settings: dict[str, str]) -> None:
    begun = time.monotonic()

    def done(what: str) -> None:
        print(f"{time.monotonic() - begun:6.1f} s: {what}", file=sys.stderr, flush=True)

    with (
        watched(2) as brokers,
        pipeline.running("stores", master="local[2]", conf=settings, small=True) as spark,
    ):
        write_snapshots(root, brokers)
        done("snapshots")
        with pipeline.ingest(spark, IngestConfig(snapshots=[f"{root}/new"])) as found:
            counts = pipeline.write_ingested(found, f"{root}/today", f"{root}/today.rejects")
        assert counts["partitions"] == 20, counts
        done("ingest")
        changes = pipeline.diff(spark, DiffConfig(old=f"{root}/old", new=f"{root}/new"))
        pipeline.write_diff(changes, f"{root}/changes")
        assert read_diff(spark, f"{root}/changes").rows.count() > 0
        done("diff")
        made = pipeline.frames(spark, read_snapshot(spark, f"{root}/new"), FramesConfig(tasks=1))
        pipeline.write_frames(made, f"{root}/frames")
        pipeline.write_frames(made, f"{root}/frames", overwrite=True)
        assert len(names_in(path_of(f"{root}/frames"))) == 2
        done("frames")
        count = send(spark, root, brokers)
        done("dispatch")
        compacted = compact_journal(f"{root}/outcomes", f"{root}/compacted")
        assert compacted.rows == count
        config = ReportConfig(journal=f"{root}/compacted", snapshot=f"{root}/new")
        summary = pipeline.write_report(spark, pipeline.report(spark, config), f"{root}/report")
        assert summary["stale"] == {}, summary
        assert page_in(f"{root}/report").read_bytes().startswith(b"<!")
        done("compact, report")
        watch = MonitorConfig(journal=f"{root}/outcomes", checkpoint=f"{root}/watched")
        for _ in range(2):
            with pipeline.monitor(spark, watch) as monitor:
                monitor.catch_up()
                assert monitor.look().rows == count
        done("monitor")
        merge(spark, root)
        done("merge-logs, explain")
        assert spark.read.format("ctrlchan").load(f"{root}/frames").count() == count
        done("the source")
    print("whole")


def write_snapshots(root: str, brokers: list[WatchedBroker]) -> None:
    state = generate(GeneratorConfig(topics=4, partitions_per_topic=5, brokers=2, replication=2))
    state.set_brokers(one.broker for one in brokers)
    state.write(f"{root}/old")
    state.update(state.rows_of_topic(state.topic_name(1)), leader_epoch=5, leader=1)
    state.write(f"{root}/new")
    assert ClusterState.read(f"{root}/new").describe() == state.describe()


def send(spark: SparkSession, root: str, brokers: list[WatchedBroker]) -> int:
    """Dispatch, twice, and once as a data source; return the number of frames."""
    frames = read_frames(spark, f"{root}/frames")
    config = DispatchConfig(journal=f"{root}/outcomes", tasks=1)
    sent = pipeline.dispatch(spark, frames, config)
    assert sent.ok, sent.brokers
    count = frames.frames.count()
    assert sum(len(one.frames) for one in brokers) == count
    again = pipeline.dispatch(spark, frames, config)
    assert again.ok
    assert sum(one.applied for one in again.brokers) == 0
    assert len(read_journal(f"{root}/outcomes")) == count == again.journal.count()
    writer = by_broker(frames.frames, 1).write.format("ctrlchan").mode("append")
    writer.option("journal", f"{root}/outcomes").save(f"{root}/frames")
    assert sum(len(one.frames) for one in brokers) == count
    return count


def merge(spark: SparkSession, root: str) -> None:
    for broker in (1, 2):
        text = "".join(_LOG.format(at=10 * at + broker, broker=broker) for at in range(20))
        replace(path_of(f"{root}/logs") / f"broker-{broker}.state-change.log", text.encode())
    logs = MergeLogsConfig(logs=f"{root}/logs", names=("*.log",))
    with pipeline.merge_logs(spark, logs) as merged, text_file(path_of(f"{root}/merged.log")) as file:
        assert merged.counts.entries == 40
        file.writelines(f"{text}\n" for text in merged.texts())
    lines = path_of(f"{root}/merged.log").read_text().splitlines()
    assert lines == sorted(lines)
    assert len(lines) == 40
    history = pipeline.explain(
        spark, ExplainConfig(partition="t-0", logs=logs, journal=f"{root}/outcomes", snapshot=f"{root}/new")
    )
    assert len(history.entries) == 40


if __name__ == "__main__":
    main(sys.argv[1], dict(one.split("=", 1) for one in sys.argv[2:]))
