"""The work of ``frames`` without encoding: the same rows read, the same bytes moved and written by Spark.

The bytes come from frames that are made once (``_parts``): each broker's LeaderAndIsr, and the parts of
UpdateMetadata once. Spark reads them, shuffles them to the tasks of their brokers, copies each part for each
broker of the task, and writes. Unlike the job, it does not keep the order within a broker.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.spark import DATA, run, snapshot_of
from ctrlchan._codec import LEADER_AND_ISR, UPDATE_METADATA
from ctrlchan.pipeline import Frames, FramesConfig, frames, read_frames, read_snapshot, write_frames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["encoded", "moved"]

_SLOTS_PER_CORE: Final = 4


def encoded(spark: SparkSession, partitions: int, brokers: int) -> Path:
    """Run the job of ``ctrlchan pipeline frames``, from the snapshot's files to the files of frames."""
    path = DATA / f"frames-{partitions}-{brokers}"
    source = read_snapshot(spark, snapshot_of(partitions, brokers))
    write_frames(frames(spark, source, FramesConfig()), path, overwrite=True)
    return path


def moved(spark: SparkSession, partitions: int, brokers: int) -> None:
    """Do the same work without encoding."""
    from pyspark.sql.functions import col, explode

    made = _parts(spark, partitions, brokers)
    run(read_snapshot(spark, snapshot_of(partitions, brokers)).partitions.where("leader_epoch >= 0"))
    slots = _SLOTS_PER_CORE * spark.sparkContext.defaultParallelism
    whose = col("broker") * slots / brokers
    leaders = made.frames.where(col("api") == LEADER_AND_ISR).withColumn("slot", whose.cast("int"))
    every = spark.range(slots).select(col("id").cast("int").alias("slot"))
    parts = made.frames.where(col("api") == UPDATE_METADATA).crossJoin(every)
    of_slot = spark.range(brokers).select(
        col("id").cast("int").alias("to"), (col("id") * slots / brokers).cast("int").alias("slot")
    )
    lists = of_slot.groupBy("slot").agg({"to": "collect_list"}).withColumnRenamed("collect_list(to)", "to")
    columns = made.frames.columns
    shuffled = parts.repartitionById(slots, "slot").join(lists.hint("broadcast"), "slot")
    written = (
        shuffled.withColumn("broker", explode("to"))
        .select(*columns)
        .unionByName(leaders.repartitionById(slots, "slot").select(*columns))
    )
    write_frames(Frames(written, made.brokers, made.about), DATA / f"moved-{partitions}", overwrite=True)


def _parts(spark: SparkSession, partitions: int, brokers: int) -> Frames:
    """Return the frames to move, kept for the next run: LeaderAndIsr of all, UpdateMetadata of one broker."""
    path = DATA / f"parts-{partitions}-{brokers}"
    if not path.exists():
        made = read_frames(spark, encoded(spark, partitions, brokers))
        wanted = made.frames.where(f"api = {LEADER_AND_ISR} OR broker = 0")
        write_frames(Frames(wanted, made.brokers, made.about), path)
        shutil.rmtree(DATA / f"frames-{partitions}-{brokers}")
    return read_frames(spark, path)
