"""PySpark jobs over what goes through the channel, and over what should.

Each job is a function of a Spark session and a configuration that gives DataFrames, for notebooks and for
``ctrlchan pipeline``. ``session`` makes the session. Importing this needs PySpark; nothing else of ctrlchan
does.
"""

# Not lazily: several functions are named as their modules, and an import of the module would win.
from __future__ import annotations

from ctrlchan.pipeline.diff_tables import read_diff, write_diff
from ctrlchan.pipeline.diffing import Diff, DiffConfig, diff, diff_snapshots
from ctrlchan.pipeline.dispatching import DispatchConfig, Dispatched, by_broker, dispatch
from ctrlchan.pipeline.framing import FramesConfig, frames
from ctrlchan.pipeline.ingesting import IngestConfig, Ingested, ingest, write_ingested
from ctrlchan.pipeline.logs.merge import MergedLogs, MergeLogsConfig, merge_logs
from ctrlchan.pipeline.monitoring.job import Monitor, MonitorConfig, monitor
from ctrlchan.pipeline.reporting import Report, ReportConfig, report, write_report
from ctrlchan.pipeline.session import running, session, stop
from ctrlchan.pipeline.source import CtrlchanSource
from ctrlchan.pipeline.story.job import ExplainConfig, TopicPartition, explain
from ctrlchan.pipeline.tables import (
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
