"""The samples of a run as a result of ``bench/report.py``, in ``bench/results.json``."""

from __future__ import annotations

from datetime import UTC, datetime

from pytest_benchmark.plugin import pytest_benchmark_generate_machine_info
from pytest_benchmark.utils import get_commit_info

from bench import report
from bench.scale.record import Record

__all__ = ["write"]


def write(record: Record, command: str) -> None:
    """Replace the result ``scale`` in ``bench/results.json``."""
    run = {
        "machine_info": pytest_benchmark_generate_machine_info(),  # type: ignore[no-untyped-call]
        "commit_info": get_commit_info(),  # type: ignore[no-untyped-call]
        "datetime": datetime.now(UTC).isoformat(),
        "benchmarks": [{"extra_info": samples.as_json()} for samples in record.all.values()],
    }
    report.write(report.results_of(run, command))
