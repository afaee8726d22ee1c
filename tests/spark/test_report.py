"""Tests of the report: figures against NumPy, files, texts, and the page in a browser."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from bench.journals import write_journal
from ctrlchan.cli.commands import app
from ctrlchan.errors import ConfigError, JournalError, PipelineError
from ctrlchan.journal import read_journal
from ctrlchan.pipeline import ReportConfig, report, write_report
from ctrlchan.pipeline.jobs.report.charts import charts_of
from ctrlchan.pipeline.jobs.report.figures import ACCURACY, bucket_of
from tests.browser import chromium, in_chromium, pixels
from tests.spark.conftest import small_inputs
from tests.spark.planted import Planted, unfinished

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.standalone import StandaloneCluster

TABLES: Final = {"figures", "errors", "series", "channels", "waiting", "brokers", "divergence"}
SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

Summary = dict[str, Any]


@pytest.fixture(scope="module")
def synthetic(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Summary]:
    """Return journal, report and summary; one broker has more requests than percentiles are exact for."""
    folder = tmp_path_factory.mktemp("report")
    write_journal(folder / "journal", 60_000, brokers=2, partitions=100)
    made = report(spark, ReportConfig(journal=folder / "journal"))
    return folder / "journal", folder / "report", write_report(spark, made, folder / "report")


@pytest.fixture(scope="module")
def nasty(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Summary]:
    """Return a report with names and errors that look like HTML."""
    folder = tmp_path_factory.mktemp("nasty")
    planted = Planted(folder / "journal")
    planted.full(1, 2)
    evil = "<script>document.title='evil'</script>-0"
    planted.add(
        1, 1, partitions=[evil], outcome="refused", error_code=31, detail="</td><img src=x onerror=boom()>"
    )
    waiting = {2: (unfinished(2)._replace(partitions="{{ 7 * 7 }}-1"),)}
    config = ReportConfig(journal=planted.write(closed=False, waiting=waiting))
    with small_inputs(spark):
        return folder / "report", write_report(spark, report(spark, config), folder / "report")


# -- figures


def spans(rows: pa.Table) -> dict[str, np.ndarray[Any, np.dtype[np.int64]]]:
    def column(name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        return rows[name].to_numpy()

    times = {name: column(f"{name}_ns") for name in ("enqueue", "first_byte", "last_byte", "response", "end")}
    return {
        "encode": column("encoding_ns"),
        "queue": times["first_byte"] - times["enqueue"],
        "send": times["last_byte"] - times["first_byte"],
        "remote": times["response"] - times["last_byte"],
        "total": times["end"] - times["enqueue"],
    }


def test_figures_equal_those_of_numpy(synthetic: tuple[Path, Path, Summary]) -> None:
    journal, output, _ = synthetic
    rows = read_journal(journal)
    figures = pq.read_table(output / "figures").to_pylist()
    assert sorted((row["broker"], row["api"]) for row in figures) == [
        (b, api) for b in (0, 1) for api in (4, 5, 6)
    ]
    approximate = 0
    for row in figures:
        chosen = (rows["broker"].to_numpy() == row["broker"]) & (rows["api"].to_numpy() == row["api"])
        of = rows.filter(pa.array(chosen))
        count = of.num_rows
        acknowledged = of["outcome"].to_pylist().count("acknowledged")
        assert (row["requests"], row["acknowledged"], row["failed"]) == (
            count,
            acknowledged,
            count - acknowledged,
        )
        for name in ("bytes", "rows", "attempts"):
            assert row[name] == of[name].to_numpy().sum()
        assert row["last_at"].replace(tzinfo=UTC) == max(filter(None, of["end_at"].to_pylist()))
        for name, values in spans(of).items():
            ordered = np.sort(values)
            assert row[f"{name}_max_ms"] == ordered[-1] / 1e6
            for share, part in SHARES.items():
                reported = row[f"{name}_{share}_ms"]
                if count <= ACCURACY:
                    assert reported == np.percentile(values, part * 100, method="inverted_cdf") / 1e6
                else:
                    approximate += 1
                    # The ranks, from 1, of the reported value.
                    first = np.searchsorted(ordered, round(reported * 1e6)) + 1
                    last = np.searchsorted(ordered, round(reported * 1e6), "right")
                    assert first <= last
                    assert first - part * count <= count / ACCURACY + 1
                    assert part * count - last <= count / ACCURACY + 1
    assert approximate == 2 * 5 * len(SHARES)


def test_series_and_errors_add_up(synthetic: tuple[Path, Path, Summary]) -> None:
    journal, output, summary = synthetic
    rows = read_journal(journal)
    series = pq.read_table(output / "series").to_pylist()
    assert sum(row["requests"] for row in series) == summary["rows"] == rows.num_rows
    assert sum(row["bytes"] for row in series) == rows["bytes"].to_numpy().sum()
    longest = max(int(values.max()) for name, values in spans(rows).items() if name == "total")
    assert max(row["longest_ms"] for row in series) == longest / 1e6
    errors = pq.read_table(output / "errors").to_pylist()
    refused = sum(row["requests"] for row in errors if row["outcome"] == "refused")
    assert refused == sum(row["failed"] for row in series) == rows["outcome"].to_pylist().count("refused")
    assert {row["error"] for row in errors} <= {"NONE", "CLUSTER_AUTHORIZATION_FAILED"}


def test_the_slow_broker_is_named_with_its_reason(synthetic: tuple[Path, Path, Summary]) -> None:
    summary = synthetic[2]
    assert summary["slow"] == [0]
    [slow] = [one for one in summary["findings"] if one["kind"] == "slow"]
    assert "It takes long to answer" in slow["text"]
    assert "roker 0 is slow" in summary["result"]


@pytest.mark.parametrize(("seconds", "bucket"), [(0, 1), (120, 1), (121, 5), (86_400, 900), (10**9, 604_800)])
def test_buckets_fit_the_range(seconds: float, bucket: int) -> None:
    assert bucket_of(seconds) == bucket


@pytest.mark.usefixtures("small")
def test_only_requests_of_a_time_range_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    planted = Planted(tmp_path / "journal")
    planted.full(1, 2, 3)
    journal = planted.write()
    third = max(row["end_at"] for row in read_journal(journal).to_pylist())
    made = report(spark, ReportConfig(journal=journal, until=third))
    assert [row["broker"] for row in made.figures.collect()] == [1, 2]
    assert made.about["rows"] == 2
    made = report(spark, ReportConfig(journal=journal, since=third))
    assert [row["broker"] for row in made.figures.collect()] == [3]
    # Lost outcomes are counted in the whole journal.
    assert [row["lost"] for row in made.channels.collect()] == [0]


def test_wrong_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="bucket"):
        ReportConfig(journal=tmp_path, bucket=0)
    now = datetime.now(UTC)
    with pytest.raises(ConfigError, match="must be before"):
        ReportConfig(journal=tmp_path, since=now, until=now - timedelta(1))


def test_an_empty_journal_gives_a_report(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    with small_inputs(spark):
        made = report(spark, ReportConfig(journal=tmp_path / "journal"))
        summary = write_report(spark, made, tmp_path / "report")
    assert summary["result"] == "The journal is empty."
    assert "The journal is empty." in (tmp_path / "report" / "report.html").read_text()


def test_an_existing_output_is_not_replaced(
    spark: SparkSession, nasty: tuple[Path, Summary], tmp_path: Path
) -> None:
    with pytest.raises(JournalError, match="no such journal folder"):
        report(spark, ReportConfig(journal=tmp_path / "nowhere"))
    planted = Planted(tmp_path / "journal")
    planted.full(1)
    made = report(spark, ReportConfig(journal=planted.write()))
    output, _ = nasty
    before = (output / "report.html").read_bytes()
    with pytest.raises(PipelineError, match="already there"):
        write_report(spark, made, output)
    assert (output / "report.html").read_bytes() == before


# -- the page


def test_the_page_loads_nothing(nasty: tuple[Path, Summary]) -> None:
    page = (nasty[0] / "report.html").read_text()
    assert not re.search(r"<(link|img|iframe|script[^>]+src|[^>]+ src=.?https?:)", page)
    assert "@import" not in page.split("</style>")[0]
    assert "prefers-color-scheme: dark" in page


def test_names_are_escaped(nasty: tuple[Path, Summary]) -> None:
    page = (nasty[0] / "report.html").read_text()
    assert "<script>document.title" not in page
    assert "&lt;script&gt;document.title=&#39;evil&#39;&lt;/script&gt;-0" in page
    assert "<img src=x" not in page
    assert "{{ 7 * 7 }}" in page


def test_stale_brokers_are_among_the_lines_over_time() -> None:
    """Also when others are slower, and when none of its requests has ended."""
    begin = datetime(2026, 11, 21, tzinfo=UTC)
    figures = [
        {"broker": broker, "api_name": "UpdateMetadata"}
        | {
            f"{part}_{share}_ms": 9.0 - broker
            for part in ("queue", "send", "remote", "total")
            for share in SHARES
        }
        for broker in range(8)
    ]
    series = [
        {
            "at": begin + timedelta(seconds=second),
            "broker": row["broker"],
            "longest_ms": 1.0,
            "requests": 1,
            "failed": 0,
        }
        for second in range(3)
        for row in figures
    ]
    waiting = [{"broker": 9, "enqueue_at": begin, "seen_at": begin + timedelta(seconds=30)}]
    script, _ = charts_of(figures, series, 1, stale=[7, 9], waiting=waiting)["times"]
    assert {int(broker) for broker in re.findall(r'"broker (\d)"', script)} == {0, 1, 2, 7, 9}
    assert '"broker 9, waits"' in script
    assert "30000.0" in script


@in_chromium
def test_no_table_is_cut_on_a_narrow_page(synthetic: tuple[Path, Path, Summary], tmp_path: Path) -> None:
    page = (synthetic[1] / "report.html").read_text()
    cut = "tables.filter((one) => one.offsetWidth > one.parentElement.clientWidth).length"
    (tmp_path / "page.html").write_text(
        page.replace(
            "</body>", f"<script>document.title = `${{tables.length}} tables, ${{{cut}}} cut`</script></body>"
        )
    )
    for width in (600, 900, 1_280):
        seen = chromium(f"--window-size={width},900", "--dump-dom", (tmp_path / "page.html").as_uri()).stdout
        [title] = re.findall("<title>(.*)</title>", seen)
        assert re.fullmatch(r"[1-9]\d* tables, 0 cut", title), (width, title)
    # Its wide tables are lists of named cells.
    assert 'data-name="Remote p95"' in seen


@in_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_the_page(
    synthetic: tuple[Path, Path, Summary], nasty: tuple[Path, Summary], tmp_path: Path, scheme: str
) -> None:
    colours = f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"
    for output, result in ((synthetic[1], synthetic[2]["result"]), (nasty[0], nasty[1]["result"])):
        picture, page = tmp_path / "page.png", (output / "report.html").as_uri()
        shown = chromium(colours, "--window-size=1280,1600", f"--screenshot={picture}", page)
        # Bokeh logs when it is done; Chromium logs errors of its own.
        logged = [line for line in shown.stderr.splitlines() if "CONSOLE" in line]
        assert logged
        assert all("[bokeh" in line and "document idle" in line for line in logged), logged
        seen = chromium(colours, "--virtual-time-budget=10000", "--dump-dom", page).stdout
        assert f"<h1>{result}</h1>" in seen
        assert f"<title>Control plane: {result}</title>" in seen
        # The script has drawn the charts.
        assert seen.count('class="bk-Figure') == seen.count('class="chart"') >= 1
        grey = pixels(picture)
        assert (grey.mean() > 128) == (scheme == "light")
        assert len(np.unique(grey)) > 50


# -- the command


def test_the_files_of_a_report(synthetic: tuple[Path, Path, Summary]) -> None:
    _, output, summary = synthetic
    assert {path.name for path in output.iterdir()} == {"report.html", "report.json", *TABLES}
    assert json.loads((output / "report.json").read_text()) == summary
    stale = Counter(map(str, pq.read_table(output / "divergence")["broker"].to_pylist()))
    assert summary["stale"] == stale == {}


@pytest.mark.long
def test_the_command_on_a_real_cluster(cluster: StandaloneCluster, tmp_path: Path) -> None:
    planted = Planted(tmp_path / "journal")
    planted.full(1, 2, 3)
    planted.add(1, 1, names=[3])
    planted.add(2, 1, names=[3], outcome="refused", error_code=31)
    command = [sys.executable, "-m", "ctrlchan", "pipeline", "report", str(planted.write()), "--json"]
    ran = subprocess.run(
        [*command, "-o", str(tmp_path / "report"), *cluster.arguments()],
        stdout=subprocess.PIPE,
        check=True,
        timeout=280,
    )
    summary = json.loads(ran.stdout)
    assert summary["stale"] == {"2": 1}
    assert (tmp_path / "report" / "report.html").is_file()


def test_help_has_an_example() -> None:
    output = CliRunner().invoke(app, ["pipeline", "report", "--help"]).output
    assert "ctrlchan pipeline report outcomes --snapshot live -o report" in output
