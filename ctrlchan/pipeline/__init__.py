"""PySpark jobs over what goes through the channel, and over what should.

Each job is a function of a Spark session and a configuration that gives DataFrames, for notebooks and for
``ctrlchan pipeline``. ``session`` makes the session. Importing this needs PySpark; nothing else of ctrlchan
does.
"""

# Not lazily: several functions are named as their modules, and an import of the module would win.
from __future__ import annotations

from ctrlchan.pipeline.jobs.diff.job import Diff, DiffConfig, diff, diff_snapshots
from ctrlchan.pipeline.jobs.diff.tables import read_diff, write_diff
from ctrlchan.pipeline.jobs.dispatch.job import DispatchConfig, Dispatched, by_broker, dispatch
from ctrlchan.pipeline.jobs.explain.job import ExplainConfig, TopicPartition, explain
from ctrlchan.pipeline.jobs.frames.job import FramesConfig, frames
from ctrlchan.pipeline.jobs.ingest import IngestConfig, Ingested, ingest, write_ingested
from ctrlchan.pipeline.jobs.merge_logs.job import MergedLogs, MergeLogsConfig, merge_logs
from ctrlchan.pipeline.jobs.monitor.job import Monitor, MonitorConfig, monitor
from ctrlchan.pipeline.jobs.report import Report, ReportConfig, report, write_report
from ctrlchan.pipeline.spark.session import running, session, stop
from ctrlchan.pipeline.spark.source import CtrlchanSource
from ctrlchan.pipeline.spark.tables import (
    Frames,
    Snapshot,
    read_frames,
    read_journal,
    read_snapshot,
    write_frames,
    write_snapshot,
)

__all__ = [
    "CtrlchanSource",
    "Diff",
    "DiffConfig",
    "DispatchConfig",
    "Dispatched",
    "ExplainConfig",
    "Frames",
    "FramesConfig",
    "IngestConfig",
    "Ingested",
    "MergeLogsConfig",
    "MergedLogs",
    "Monitor",
    "MonitorConfig",
    "Report",
    "ReportConfig",
    "Snapshot",
    "TopicPartition",
    "by_broker",
    "diff",
    "diff_snapshots",
    "dispatch",
    "explain",
    "frames",
    "ingest",
    "merge_logs",
    "monitor",
    "read_diff",
    "read_frames",
    "read_journal",
    "read_snapshot",
    "report",
    "running",
    "session",
    "stop",
    "write_diff",
    "write_frames",
    "write_ingested",
    "write_report",
    "write_snapshot",
]
