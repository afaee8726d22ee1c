"""Writes the measured times into ``bench/results.json``, the page, and the tables of ``bench/RESULTS.md``.

``results.json`` has every time of the last run of each suite, with its date, machine, versions and command.
The page and the tables are made of it. ``python -m bench.page`` makes them again.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from bench.measures.measure import number, short
from bench.measures.suites import Result, measures_of
from bench.page.page import page_of
from bench.summary import with_tables
from tests.kafka.jars import KafkaUnavailableError, java_version

__all__ = ["results_of", "texts_of", "write"]

_HERE: Final = Path(__file__).parent
_RAW: Final = _HERE / "results.json"
_PROSE: Final = _HERE / "RESULTS.md"
_PAGE: Final = _HERE.parent / "docs" / "benchmarks.html"
_PACKAGES: Final = ("numpy", "multiprocess", "kio", "kafka-python", "confluent-kafka", "pyspark")


def results_of(run: Mapping[str, Any], command: str, load: float | None = None) -> list[Result]:
    """Return the results of each suite that one run of pytest-benchmark has figures of.

    ``load``: that of the machine before the run.
    """
    info, commit = run["machine_info"], run["commit_info"]
    cpu = info["cpu"]
    changed = " with uncommitted changes" if commit.get("dirty") else ""
    described = {
        "date": run["datetime"][:10],
        "commit": f"{str(commit.get('id'))[:12]}{changed}",
        "machine": f"{cpu.get('brand_raw', platform.processor())}, {cpu.get('count')} cores, "
        f"{info['system']} {info['release']}",
        "versions": f"Python {info['python_version']}, {_versions()}",
        "command": command,
        **({} if load is None else {"load": load}),
    }
    benchmarks = [entry["extra_info"] for entry in run["benchmarks"]]
    names = dict.fromkeys(one["suite"] for one in benchmarks)
    return [
        {"name": name, **described, "benchmarks": [one for one in benchmarks if one["suite"] == name]}
        for name in names
    ]


def texts_of(results: Iterable[Result]) -> str:
    """Return one line for each measure: median and best sample of all sides, and the ratios."""
    lines = []
    for result in results:
        lines.append(result["name"])
        for one in measures_of(result):
            ran = [side for side, samples in one.sides.items() if samples]
            sides = [f"{short(side)} {number(one.median(side))} ({number(one.best(side))})" for side in ran]
            ratios = [
                f"{ratio.name} {number(ratio.of_medians)} ({number(ratio.of_best)})"
                for ratio in map(one.compared_with, ran)
                if ratio
            ]
            lines.append(f"  {one.what}, {one.unit}: {'; '.join([*sides, *ratios])}")
    return "\n".join(lines)


def write(results: Iterable[Result], raw: Path = _RAW, prose: Path = _PROSE, page: Path = _PAGE) -> None:
    """Replace these results in ``raw``, and make ``page`` and the tables of ``prose`` of all results.

    Raises ValueError if ``prose`` has no place for a table.
    """
    known = {result["name"]: result for result in json.loads(raw.read_text())} if raw.exists() else {}
    known.update({result["name"]: result for result in results})
    text = _raw_text(known.values())
    rounded = json.loads(text)
    prose_text, page_text = with_tables(prose.read_text(), rounded), page_of(rounded)
    raw.write_text(text)
    prose.write_text(prose_text)
    page.write_text(page_text)
    print(f"wrote {raw.name}, {page.name} and {prose.name}")


def _versions() -> str:
    found = [f"{package} {version(package)}" for package in _PACKAGES]
    try:
        found.append(f"Java {java_version()}")
    except KafkaUnavailableError:
        found.append("no Java")
    return ", ".join(found)


def _raw_text(results: Iterable[Result]) -> str:
    """Return JSON with one benchmark a line; times are rounded to 0.1 microseconds."""
    texts = []
    for result in results:
        described = json.dumps({key: value for key, value in result.items() if key != "benchmarks"})
        benchmarks = ",\n  ".join(json.dumps(_rounded(one)) for one in result["benchmarks"])
        texts.append(f'{described[:-1]}, "benchmarks": [\n  {benchmarks}\n]}}')
    return "[" + ",\n".join(texts) + "]\n"


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return round(value, 4)
        case list():
            return [_rounded(each) for each in value]
        case dict():
            return {key: _rounded(each) for key, each in value.items()}
    return value
