"""Runs every job in a session of Spark Connect, as a notebook would.

``python -m tests.spark.connect_client URL FOLDER``: the folder has ``topics.txt``, the snapshots ``old`` and
``new``, and ``logs``. Results are written into it; what the test compares is printed as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ctrlchan import pipeline
from ctrlchan.pipeline.spark.progress import Stage, reported


def explain_config(folder: Path) -> pipeline.ExplainConfig:
    """Return the settings of ``explain`` over all that the other jobs have read and written there."""
    return pipeline.ExplainConfig(
        partition=pipeline.TopicPartition("a", 0),
        logs=pipeline.MergeLogsConfig(logs=folder / "logs"),
        journal=folder / "journal",
        snapshot=folder / "new",
    )


def main(url: str, folder: Path) -> None:
    found: dict[str, Any] = {}
    stages: list[Stage] = []
    with pipeline.running(remote=url, small=True) as spark, reported(spark, stages.extend):
        config = pipeline.IngestConfig(describe=[str(folder / "topics.txt")], controller_epoch=7)
        with pipeline.ingest(spark, config) as ingested:
            found["ingest"] = pipeline.write_ingested(ingested, folder / "made", folder / "rejects")

        config_of_diff = pipeline.DiffConfig(old=folder / "old", new=folder / "new")
        pipeline.write_diff(pipeline.diff(spark, config_of_diff), folder / "diff")
        found["diff"] = pipeline.read_diff(spark, folder / "diff").counts()

        new = pipeline.read_snapshot(spark, folder / "new")
        pipeline.write_frames(pipeline.frames(spark, new), folder / "frames")
        frames = pipeline.read_frames(spark, folder / "frames")
        sent = pipeline.dispatch(spark, frames, pipeline.DispatchConfig(journal=folder / "journal"))
        found["dispatch"] = [result._asdict() for result in sent.brokers]
        found["journal"] = sent.journal.count()

        made = pipeline.report(
            spark, pipeline.ReportConfig(journal=folder / "journal", snapshot=folder / "new")
        )
        found["report"] = pipeline.write_report(spark, made, folder / "report")["result"]

        with pipeline.merge_logs(spark, pipeline.MergeLogsConfig(logs=folder / "logs")) as merged:
            found["counts"] = vars(merged.counts)
            found["texts"] = list(merged.texts())

        history = pipeline.explain(spark, explain_config(folder))
        found["history"] = history.as_json()

        source = spark.read.format("ctrlchan")
        found["source"] = source.load(str(folder / "new")).count()
        writer = pipeline.by_broker(frames.frames).write.format("ctrlchan").mode("append")
        writer.option("journal", str(folder / "journal-of-writer")).save(str(folder / "frames"))
        found["written"] = source.load(str(folder / "journal-of-writer")).count()
    found["tasks"] = sum(stage.tasks for stage in stages)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
