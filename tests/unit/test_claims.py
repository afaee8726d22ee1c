"""Each figure that a document claims is a row of the benchmarks' page, rounded."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median
from typing import Any, Final

import pytest

from bench.measures.measure import Measure
from bench.measures.suites import measures_of

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final[list[dict[str, Any]]] = json.loads((ROOT / "bench" / "results.json").read_text())
MEASURES: Final[dict[str, Measure]] = {one.id: one for result in RESULTS for one in measures_of(result)}
DOCUMENTS: Final = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").rglob("*.md")]
)
_START: Final = "clusters-start-and-life-processor-time"
_MEMORY: Final = "clusters-memory"
_SEMANTICS: Final = "clusters-semantics-semantics-of-23-that-clients-tried"
_IDLE: Final = "tls-memory-of-an-idle-connection"
_KRAFT: Final = "Kafka 3.9.1 (KRaft)"
_MOCK: Final = "librdkafka's mock"

#: Document, claim, row of the page, side, and how its median is rounded.
CLAIMS: Final[tuple[tuple[str, str, str, str, str], ...]] = (
    ("README.md", "0.9 s", _START, "ours", "{:.1f} s"),
    ("README.md", "4.4 s", _START, _KRAFT, "{:.1f} s"),
    ("README.md", "0.0 s", _START, "kfake", "{:.1f} s"),
    ("README.md", "0.0 s", _START, _MOCK, "{:.1f} s"),
    ("README.md", "59 MiB", _MEMORY, "ours", "{:.0f} MiB"),
    ("README.md", "228 MiB", _MEMORY, _KRAFT, "{:.0f} MiB"),
    ("README.md", "10 MiB", _MEMORY, "kfake", "{:.0f} MiB"),
    ("README.md", "1 MiB", _MEMORY, _MOCK, "{:.0f} MiB"),
    ("README.md", "20 of 23", _SEMANTICS, "ours", "{:.0f} of 23"),
    ("README.md", "20 of 23", _SEMANTICS, "kafka", "{:.0f} of 23"),
    ("README.md", "23 of 23", _SEMANTICS, "kfake", "{:.0f} of 23"),
    ("README.md", "5 of 23", _SEMANTICS, _MOCK, "{:.0f} of 23"),
    ("docs/broker.md", "0.5 KiB", _IDLE, "plaintext", "{:.1f} KiB"),
    ("docs/tls.md", "13 KiB", _IDLE, "ours", "{:.0f} KiB"),
)
#: A figure of speed, memory, or of how many, in the text of a document.
FIGURE: Final = re.compile(r"(?<![\w.,:])\d[\d.,]* (?:s|ms|µs|ns|×|[KMG]iB|[kMG]B|of \d+)(?!\w)")


@pytest.mark.parametrize(("document", "claim", "row", "side", "rounded"), CLAIMS)
def test_a_claim_is_a_row(document: str, claim: str, row: str, side: str, rounded: str) -> None:
    assert rounded.format(MEASURES[row].median(side)) == claim
    [line] = [one for one in linked_rows(document, row) if claim in one][:1]
    assert re.search(rf"(?<![\d.]){re.escape(claim)}", line)


def linked_rows(document: str, row: str) -> list[str]:
    """Return the lines of a document that lead to a row of the page."""
    return [line for line in (ROOT / document).read_text().splitlines() if f"benchmarks.html#{row}" in line]


def test_readme_claims_in_the_order_of_the_sides() -> None:
    """Each line of README's table has the claims about its row, and no others."""
    readme = re.sub(r"```.*?```|`[^`]*`", "", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    found = {
        row: FIGURE.findall(line)
        for line in readme.splitlines()
        for row in re.findall(r"benchmarks\.html#([\w-]+)", line)
        if row in MEASURES
    }
    claimed: dict[str, list[str]] = {}
    for document, claim, row, *_ in CLAIMS:
        if document == "README.md":
            claimed.setdefault(row, []).append(claim)
    assert found == claimed
    elsewhere = [
        line for line in readme.splitlines() if FIGURE.search(line) and "benchmarks.html#" not in line
    ]
    assert elsewhere == []


def test_figures_that_lead_to_the_page_are_claims() -> None:
    claims = {(document, claim, row) for document, claim, row, *_ in CLAIMS}
    for document in (ROOT / "docs").rglob("*.md"):
        name = document.relative_to(ROOT).as_posix()
        for row, text in re.findall(r'<a href="benchmarks\.html#([\w-]+)">([^<]+)</a>', document.read_text()):
            assert (name, text, row) in claims


def test_links_to_the_page_lead_to_rows_and_suites() -> None:
    page = (ROOT / "docs" / "benchmarks.html").read_text()
    anchors = set(re.findall(r'\bid="([\w-]+)"', page))
    broken = [
        f"{document.relative_to(ROOT)}: {anchor}"
        for document in DOCUMENTS
        for anchor in re.findall(r"benchmarks\.html#([\w-]+)", document.read_text())
        if anchor not in anchors
    ]
    assert broken == []


def test_the_chart_of_readme_has_the_medians() -> None:
    """``python -m bench.chart`` draws it again."""
    chart = (ROOT / "docs" / "push.svg").read_text()
    [push] = [result for result in RESULTS if result["name"] == "push"]
    shown = [
        f"{median(one['ms'][side]):,.0f} ms"
        for one in push["benchmarks"]
        if "kafka" in one["ms"]
        for side in ("blast", "ours", "kafka")
    ]
    assert shown
    assert [figure for figure in shown if f">{figure}<" not in chart] == []
