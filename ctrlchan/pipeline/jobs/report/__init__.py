"""A journal as a report: per broker and API what was sent, how long it took and how it ended, over time;
which broker
is stale, of which partitions, and why.

In: a journal folder, and a snapshot of the state that should be everywhere. Out: tables (``Report``, Parquet)
and one HTML page for people. ``figures`` adds up, ``knowledge`` and ``divergence`` compare, ``findings`` says
it in words, ``page`` draws. Nothing here knows a channel.
"""

from __future__ import annotations

from ctrlchan.pipeline.jobs.report.job import Report, ReportConfig, report
from ctrlchan.pipeline.jobs.report.writing import Summary, write_report

__all__ = ["Report", "ReportConfig", "Summary", "report", "write_report"]
