"""Runs the jobs that need most of Spark on a small cluster, and keeps the classes that they need."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.channel import ChannelConfig, ControllerChannelManager
from ctrlchan.errors import PipelineError
from ctrlchan.journal import Journal
from ctrlchan.launch.embedded import EmbeddedBroker
from ctrlchan.pipeline.jobs.diff.config import DiffConfig
from ctrlchan.pipeline.jobs.diff.job import diff
from ctrlchan.pipeline.jobs.diff.tables import write_diff
from ctrlchan.pipeline.jobs.frames.job import frames
from ctrlchan.pipeline.jobs.ingest.config import IngestConfig
from ctrlchan.pipeline.jobs.ingest.job import ingest
from ctrlchan.pipeline.jobs.ingest.writing import write_ingested
from ctrlchan.pipeline.jobs.report.config import ReportConfig
from ctrlchan.pipeline.jobs.report.job import report
from ctrlchan.pipeline.jobs.report.writing import write_report
from ctrlchan.pipeline.sessions import running
from ctrlchan.pipeline.spark.class_archive import archive_of, listing_option, spark_settings, write_archive
from ctrlchan.pipeline.spark.environment import JAVA_OPTIONS, changed_environment
from ctrlchan.pipeline.spark.java import java_home
from ctrlchan.pipeline.spark.jvm import is_started
from ctrlchan.pipeline.spark.tables import read_snapshot, write_frames
from ctrlchan.state.importing.generate import GeneratorConfig, generate

__all__ = ["prepare"]

#: Seconds for one push.
_TIMEOUT: Final = 60.0
_DESCRIBED: Final = """\
Topic: a\tTopicId: dVYtbxg8RRmPJBPeZs0tbw\tPartitionCount: 1\tReplicationFactor: 1\tConfigs:
\tTopic: a\tPartition: 0\tLeader: 0\tReplicas: 0\tIsr: 0
a line that is rejected
"""


def prepare() -> Path:
    """Write the archive of classes for this Java and this Spark, and return its path.

    Sessions that this user starts on one machine use it from then on. A file that is there is replaced.
    Raises PipelineError if this process has a session, for a Spark with files of settings, and if Java writes
    no archive; OSError.
    """
    if SparkSession.getActiveSession() is not None or is_started():
        raise PipelineError("Java's classes are listed from its start: no session may run in this process")
    for file in spark_settings():
        raise PipelineError(f"{file}: Java keeps no classes of a Spark that has files in this folder")
    java = java_home()
    try:
        archive_of(java).unlink(missing_ok=True)
    except RuntimeError as problem:
        raise PipelineError(f"there is no folder for the archive: {problem}; set XDG_CACHE_HOME") from problem
    with tempfile.TemporaryDirectory(prefix="ctrlchan-prepare-") as folder:
        classes = Path(folder) / "classes"
        given = f"{os.environ.get(JAVA_OPTIONS, '')} {listing_option(classes)}".lstrip()
        with (
            changed_environment({JAVA_OPTIONS: given}),
            running("ctrlchan prepare", master="local[*]", small=True) as spark,
        ):
            _run_jobs(spark, Path(folder))
            class_path = _class_path(spark)
        return write_archive(java, classes, class_path)


def _run_jobs(spark: SparkSession, folder: Path) -> None:
    """Run the jobs that need most of Spark's classes; what they find does not matter here."""
    state = generate(GeneratorConfig(topics=2, partitions_per_topic=2, brokers=1, replication=1))
    with EmbeddedBroker(0) as broker, Journal(folder / "journal") as journal:
        state.set_brokers([broker.broker])
        config = ChannelConfig(controller_id=state.controller_id)
        with ControllerChannelManager(config, state.controller_epoch, journal=journal) as channel:
            channel.startup(state.brokers)
            batch = ControllerBrokerRequestBatch(channel, state)
            batch.add_update_metadata([0], "all")
            channel.wait(batch.send_requests_to_brokers(state.controller_epoch), _TIMEOUT)
    state.write(folder / "old")
    state.update(0, leader_epoch=int(state.partitions.leader_epoch[0]) + 1)
    state.write(folder / "new")
    text = folder / "described"
    text.write_text(_DESCRIBED)
    with ingest(spark, IngestConfig(describe=[str(text)])) as found:
        write_ingested(found, folder / "described.snapshot", folder / "rejects")
    write_diff(diff(spark, DiffConfig(old=folder / "old", new=folder / "new")), folder / "diff")
    write_frames(frames(spark, read_snapshot(spark, folder / "new")), folder / "frames")
    made = report(spark, ReportConfig(journal=folder / "journal", snapshot=folder / "new"))
    write_report(spark, made, folder / "report")


def _class_path(spark: SparkSession) -> str:
    """Return the class path of the JVM."""
    from pyspark.sql.functions import java_method, lit

    name = lit("java.class.path")
    row = spark.range(1).select(java_method(lit("java.lang.System"), lit("getProperty"), name)).first()
    assert row is not None
    return str(row[0])
