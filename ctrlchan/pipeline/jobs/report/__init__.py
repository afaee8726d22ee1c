"""Reports by broker and API what was sent, how long it took and how it ended, and which brokers are stale.

In: a journal folder, and a snapshot of the state that every broker should have. Out: tables (``Report``,
Parquet) and one HTML page. ``figures`` adds up, ``acknowledged`` and ``divergence`` compare, ``findings``
writes sentences, ``page`` and ``charts`` make the page.
"""

from __future__ import annotations

from ctrlchan.pipeline.jobs.report.job import Report, ReportConfig, report
from ctrlchan.pipeline.jobs.report.writing import Summary, write_report

__all__ = ["Report", "ReportConfig", "Summary", "report", "write_report"]
