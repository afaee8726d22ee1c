"""PySpark jobs over snapshots, frames, journals and state-change logs.

Each job is a function of a Spark session and a configuration that returns DataFrames, for notebooks and for
``ctrlchan pipeline``. ``session`` starts Spark. Of ctrlchan only this package needs PySpark.

``jobs`` has a room for each job, ``spark`` what they share, ``settings`` the form of their configurations.
Names are loaded when they are first used, so that help texts and configurations need no PySpark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ctrlchan.pipeline.jobs.diff.config import DiffConfig
    from ctrlchan.pipeline.jobs.diff.job import Diff, diff, diff_snapshots
    from ctrlchan.pipeline.jobs.diff.tables import read_diff, write_diff
    from ctrlchan.pipeline.jobs.dispatch.config import DispatchConfig
    from ctrlchan.pipeline.jobs.dispatch.job import Dispatched, by_broker, dispatch
    from ctrlchan.pipeline.jobs.explain.config import ExplainConfig, TopicPartition
    from ctrlchan.pipeline.jobs.explain.job import explain
    from ctrlchan.pipeline.jobs.frames.config import FramesConfig
    from ctrlchan.pipeline.jobs.frames.job import frames
    from ctrlchan.pipeline.jobs.ingest.config import IngestConfig
    from ctrlchan.pipeline.jobs.ingest.job import Ingested, ingest
    from ctrlchan.pipeline.jobs.ingest.writing import write_ingested
    from ctrlchan.pipeline.jobs.merge_logs.config import MergeLogsConfig
    from ctrlchan.pipeline.jobs.merge_logs.job import MergedLogs, merge_logs
    from ctrlchan.pipeline.jobs.monitor.config import MonitorConfig
    from ctrlchan.pipeline.jobs.monitor.job import Monitor, monitor
    from ctrlchan.pipeline.jobs.report.config import ReportConfig
    from ctrlchan.pipeline.jobs.report.job import Report, report
    from ctrlchan.pipeline.jobs.report.writing import write_report
    from ctrlchan.pipeline.sessions import running, session, stop
    from ctrlchan.pipeline.source import CtrlchanSource
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

_HOMES: Final = {
    "CtrlchanSource": "source",
    "Diff": "jobs.diff.job",
    "DiffConfig": "jobs.diff.config",
    "DispatchConfig": "jobs.dispatch.config",
    "Dispatched": "jobs.dispatch.job",
    "ExplainConfig": "jobs.explain.config",
    "Frames": "spark.tables",
    "FramesConfig": "jobs.frames.config",
    "IngestConfig": "jobs.ingest.config",
    "Ingested": "jobs.ingest.job",
    "MergeLogsConfig": "jobs.merge_logs.config",
    "MergedLogs": "jobs.merge_logs.job",
    "Monitor": "jobs.monitor.job",
    "MonitorConfig": "jobs.monitor.config",
    "Report": "jobs.report.job",
    "ReportConfig": "jobs.report.config",
    "Snapshot": "spark.tables",
    "TopicPartition": "jobs.explain.config",
    "by_broker": "jobs.dispatch.job",
    "diff": "jobs.diff.job",
    "diff_snapshots": "jobs.diff.job",
    "dispatch": "jobs.dispatch.job",
    "explain": "jobs.explain.job",
    "frames": "jobs.frames.job",
    "ingest": "jobs.ingest.job",
    "merge_logs": "jobs.merge_logs.job",
    "monitor": "jobs.monitor.job",
    "read_diff": "jobs.diff.tables",
    "read_frames": "spark.tables",
    "read_journal": "spark.tables",
    "read_snapshot": "spark.tables",
    "report": "jobs.report.job",
    "running": "sessions",
    "session": "sessions",
    "stop": "sessions",
    "write_diff": "jobs.diff.tables",
    "write_frames": "spark.tables",
    "write_ingested": "jobs.ingest.writing",
    "write_report": "jobs.report.writing",
    "write_snapshot": "spark.tables",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
