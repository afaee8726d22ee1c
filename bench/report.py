"""Writes the measured times into ``bench/results.json``, the page, and the tables of ``bench/RESULTS.md``.

``results.json`` has every time of the last run of each suite, with its date, machine, versions and command.
The tables are made from it. In ``RESULTS.md`` a table is between ``<!-- table: NAME -->`` and
``<!-- end: NAME -->``; the rest is written by hand. ``python -m bench.report`` makes the tables again.
"""

from __future__ import annotations

import json
import platform
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeAlias

from bench.alternate import OURS
from bench.page.page import page_of
from ctrlchan.channel.config import PER_BROKER
from ctrlchan.protocol import API_NAMES
from tests.kafka.jars import KafkaUnavailableError, java_version

__all__ = ["results_of", "tables", "write"]

_HERE: Final = Path(__file__).parent
_RAW: Final = _HERE / "results.json"
_PROSE: Final = _HERE / "RESULTS.md"
_PAGE: Final = _HERE.parent / "docs" / "benchmarks.html"
#: Columns of a line of a document.
_WIDTH: Final = 110
_PACKAGES: Final = ("numpy", "multiprocess", "kio", "kafka-python", "confluent-kafka", "pyspark")

#: One table: ``name``, ``date``, ``machine``, ``versions``, ``command``, and ``benchmarks``: the
#: ``extra_info`` of each test, with ``ms``: side -> times.
Result: TypeAlias = dict[str, Any]
Benchmark: TypeAlias = Mapping[str, Any]


def results_of(run: Mapping[str, Any], command: str) -> list[Result]:
    """Return the results of each table that one run of pytest-benchmark has figures for."""
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
    }
    benchmarks = [entry["extra_info"] for entry in run["benchmarks"]]
    names = dict.fromkeys(one["suite"] for one in benchmarks)
    return [
        {"name": name, **described, "benchmarks": [one for one in benchmarks if one["suite"] == name]}
        for name in names
    ]


def tables(results: Iterable[Result]) -> dict[str, str]:
    """Return the tables by name, in Markdown: each with its machine, date and command below."""
    made = {}
    for result in results:
        headings, rows = _TABLES[result["name"]](result["benchmarks"])
        source = f"{result['date']}, commit {result['commit']}; {result['machine']}; {result['versions']}."
        lines = _wrapped(source) + _wrapped(f"`{result['command']}`")
        made[result["name"]] = "\n".join((_markdown(headings, rows), *lines, ""))
    return made


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def write(results: Iterable[Result], raw: Path = _RAW, prose: Path = _PROSE, page: Path = _PAGE) -> None:
    """Replace these results in ``raw``, the tables of all results of ``raw`` in ``prose``, and the page.

    Raises ValueError when ``prose`` has no place for a table.
    """
    known = {result["name"]: result for result in json.loads(raw.read_text())} if raw.exists() else {}
    known.update({result["name"]: result for result in results})
    text = prose.read_text()
    for name, table in tables(known.values()).items():
        begin, end = f"<!-- table: {name} -->", f"<!-- end: {name} -->"
        place = re.compile(f"{re.escape(begin)}.*{re.escape(end)}", re.DOTALL)
        text, found = place.subn(lambda _, block=f"{begin}\n{table}{end}": block, text)  # type: ignore[misc]
        if not found:
            raise ValueError(f"{prose.name} has no place for the table {name!r}")
    prose.write_text(text)
    raw.write_text(_raw_text(known.values()))
    page.write_text(page_of(json.loads(raw.read_text())))
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


# -- the tables

Rows: TypeAlias = Iterable[Sequence[str]]


def _codec(benchmarks: list[Benchmark]) -> tuple[Sequence[str], Rows]:
    headings = ("message", "partitions", "bytes", "buffers", "ours", "memcpy", "ours / memcpy")
    return headings, (
        (
            _message(one),
            f"{one['partitions']:,}",
            f"{one['bytes']:,}",
            one["buffers"],
            _each(one, OURS),
            _each(one, "memcpy"),
            _ratio(one, OURS, "memcpy", 2),
        )
        for one in benchmarks
    )


def _peers(benchmarks: list[Benchmark]) -> tuple[Sequence[str], Rows]:
    names = ("kafka-clients", "kio", "kafka-python")
    return ("message", OURS, *names, "the fastest of them / ours"), (
        (
            _message(one),
            _each(one, OURS),
            *(_each(one, name) for name in names),
            f"{min(median(one['ms'][name]) for name in names if name in one['ms']) / _median(one, OURS):.1f}",
        )
        for one in benchmarks
    )


def _push(benchmarks: list[Benchmark]) -> tuple[Sequence[str], Rows]:
    headings = (
        "partitions → brokers",
        "limit",
        OURS,
        "ours / limit",
        "process per broker",
        "Kafka",
        "Kafka / ours",
        "first push: ours, Kafka",
        "memory: ours, per broker, Kafka",
        "Kafka / ours",
    )
    return headings, (
        (
            f"{one['partitions']:,} → {one['brokers']:,}",
            _figure(one, "blast"),
            _figure(one, OURS),
            _ratio(one, OURS, "blast", 2),
            _figure(one, PER_BROKER),
            _figure(one, "kafka"),
            _ratio(one, "kafka", OURS, 1),
            ", ".join(_number(one["first_ms"].get(side)) for side in (OURS, "kafka")),
            ", ".join(_number(one["pss_mib"].get(side)) for side in (OURS, PER_BROKER, "kafka")),
            f"{one['pss_mib']['kafka'] / one['pss_mib'][OURS]:.1f}" if "kafka" in one["pss_mib"] else "",
        )
        for one in benchmarks
    )


def _small(benchmarks: list[Benchmark]) -> tuple[Sequence[str], Rows]:
    headings = (
        "brokers",
        "",
        "limit",
        OURS,
        "process per broker",
        "Kafka",
        "ours / Kafka",
        "first: ours, Kafka",
    )
    return headings, (
        (
            f"{one['brokers']:,}",
            one["mode"],
            *(_rate(one, side) for side in ("blast", OURS, PER_BROKER, "kafka")),
            _ratio(one, "kafka", OURS, 1),
            ", ".join(_first_rate(one, side) for side in (OURS, "kafka")),
        )
        for one in benchmarks
    )


def _start(benchmarks: list[Benchmark]) -> tuple[Sequence[str], Rows]:
    headings = ("partitions → brokers", "", "start", "first push", "warm push", "first / warm")
    return headings, (
        (
            f"{one['partitions']:,} → {one['brokers']:,}",
            side,
            _figure(one, side, 0),
            f"{median(one['first_ms'][side]):.0f}",
            f"{median(one['warm_ms'][side]):.0f}",
            f"{median(one['first_ms'][side]) / median(one['warm_ms'][side]):.1f}",
        )
        for one in benchmarks
        for side in (OURS, PER_BROKER, "kafka")
        if side in one["ms"]
    )


def _features(benchmarks: list[Benchmark]) -> tuple[Sequence[str], Rows]:
    headings = ("feature", "work", "with", "without", "cost")
    return headings, (
        (
            one["feature"],
            one["work"],
            _figure(one, OURS),
            _figure(one, "without"),
            f"{_more(median(one['ms'][OURS]), median(one['ms']['without']))} "
            f"({_more(min(one['ms'][OURS]), min(one['ms']['without']))})",
        )
        for one in benchmarks
    )


def _spark(benchmarks: list[Benchmark]) -> tuple[Sequence[str], Rows]:
    headings = (
        "job",
        "",
        OURS,
        "without",
        "ours / without",
        "ours, s a million",
        "memory, MiB: ours, without",
    )
    return headings, (
        (
            one["job"],
            f"{one['rows']:,} {one['work']}",
            _figure(one, OURS, 0),
            _figure(one, "without", 0),
            _ratio(one, OURS, "without", 2),
            f"{_median(one, OURS) * 1e3 / one['rows']:.2f}",
            ", ".join(_number(one["pss_mib"][side]) for side in (OURS, "without")),
        )
        for one in benchmarks
    )


def _spark_small(benchmarks: list[Benchmark]) -> tuple[Sequence[str], Rows]:
    [one] = benchmarks
    return ("job", "processor time, ms", "job / session"), (
        (name, _figure(one, name, 0), _ratio(one, name, "session", 2)) for name in one["ms"]
    )


def _spark_stores(benchmarks: list[Benchmark]) -> tuple[Sequence[str], Rows]:
    stores = list(benchmarks[0]["ms"])
    first, *others = stores
    headings = ("job", *(f"{name}, ms" for name in stores), *(f"{name} / {first}" for name in others))
    return headings, (
        (
            one["job"],
            *(_figure(one, name, 0) for name in stores),
            *(_ratio(one, name, first, 2) for name in others),
        )
        for one in benchmarks
    )


def _controller(benchmarks: list[Benchmark]) -> tuple[Sequence[str], Rows]:
    headings = (
        "partitions → brokers",
        "event",
        "Kafka",
        OURS,
        "Kafka / ours",
        "processor time, s: Kafka, ours",
    )
    rows = []
    for one in benchmarks:
        shape = f"{one['partitions']:,} → {one['brokers']:,}"
        for event, times in one["ms"].items():
            repetitions = {"ms": times}
            rows.append(
                (
                    shape,
                    event,
                    _figure(repetitions, "kafka", 0),
                    _figure(repetitions, OURS, 0),
                    _ratio(repetitions, "kafka", OURS, 1),
                    ", ".join(_seconds(one["cpu_seconds"][event].get(side)) for side in ("kafka", OURS)),
                )
            )
        kafka, ours = (one["pss_mib"].get(side) for side in ("kafka", OURS))
        ratio = f"{kafka / ours:.1f}" if kafka and ours else ""
        rows.append((shape, "memory, MiB", _number(kafka), _number(ours), ratio, ""))
    return headings, rows


def _broker(benchmarks: list[Benchmark]) -> tuple[Sequence[str], Rows]:
    headings = ("", "unit", "Kafka", "kfake", OURS, "limit", "Kafka / ours", "kfake / ours", "ours / limit")
    ratios = (("kafka", OURS, 1), ("kfake", OURS, 1), (OURS, "limit", 1))
    return headings, _compared(benchmarks, ("kafka", "kfake", OURS, "limit"), ratios)


def _compared(
    benchmarks: list[Benchmark], sides: Sequence[str], ratios: Sequence[tuple[str, str, int]]
) -> Rows:
    """Yield a row for each figure: its name, its unit, the sides, then ratios (side, other side, digits)."""
    for one in benchmarks:
        for what, (unit, figures) in one["figures"].items():
            repetitions = {"ms": figures}
            digits = 2 if min(min(values) for values in figures.values()) < 10 else 0
            yield (
                what,
                unit,
                *(_figure(repetitions, side, digits) for side in sides),
                *(_ratio(repetitions, *ratio) for ratio in ratios),
            )


def _security(benchmarks: list[Benchmark]) -> tuple[Sequence[str], Rows]:
    most = "100,000"
    sides = ("without", "reading", "10,000", most, "kafka")
    headings = (
        "",
        "unit",
        "without ACLs",
        "reading",
        "10,000 ACLs",
        f"{most} ACLs",
        f"Kafka, {most} ACLs",
        f"without, reading / {most}",
        "Kafka / ours",
    )
    rows = []
    for one in benchmarks:
        for what, (unit, figures) in one["figures"].items():
            repetitions = {"ms": figures}
            least = next(side for side in ("without", "reading") if side in figures)
            rows.append(
                (
                    what,
                    unit,
                    *(_figure(repetitions, side, 2) for side in sides),
                    _ratio(repetitions, least, most, 2),
                    _ratio(repetitions, "kafka", most, 1),
                )
            )
    return headings, rows


def _tls(benchmarks: list[Benchmark]) -> tuple[Sequence[str], Rows]:
    headings = (
        "", "unit", "Kafka", OURS, "limit", "plaintext", "Kafka / ours", "limit / ours", "ours / plaintext",
    )  # fmt: skip
    ratios = (("kafka", OURS, 1), ("limit", OURS, 2), (OURS, "plaintext", 1))
    return headings, _compared(benchmarks, ("kafka", OURS, "limit", "plaintext"), ratios)


def _transactions(benchmarks: list[Benchmark]) -> tuple[Sequence[str], Rows]:
    headings = ("", "unit", "Kafka", OURS, "Kafka / ours", "goal")
    rows = []
    for one in benchmarks:
        for what, (unit, figures) in one["figures"].items():
            repetitions = {"ms": figures}
            least = min(min(values) for values in figures.values())
            digits = 2 if least < 10 else 0
            # Without a ratio: what has one of its own, and counts that may be 0.
            compares = unit != "×" and least > 0
            rows.append(
                (
                    what,
                    unit,
                    *(_figure(repetitions, side, digits) for side in ("kafka", OURS)),
                    _ratio(repetitions, "kafka", OURS, 1) if compares else "",
                    one["goals"][what],
                )
            )
    return headings, rows


def _clusters(benchmarks: list[Benchmark]) -> tuple[Sequence[str], Rows]:
    headings = (
        "cluster",
        "ready",
        "first record acknowledged",
        "read by a group",
        "read / ours",
        "processor time, s",
        "processor time / ours",
        "stop",
        "memory, MiB",
        "memory / ours",
    )
    [one] = benchmarks
    lives, failed = one["lives"], one["failed"]
    rows = []
    for name in sorted(lives, key=lambda name: not name.startswith(OURS)):
        sides = {
            what: {"ms": {side: [life[what] for life in lives[side]] for side in (OURS, name)}}
            for what in lives[name][0]
        }
        note = (
            f" ({failed[name]} of {failed[name] + len(lives[name])} lives failed)" if name in failed else ""
        )
        rows.append(
            (
                name + note,
                *(_figure(sides[what], name, 0) for what in ("ready", "acknowledged", "read")),
                _ratio(sides["read"], name, OURS, 1),
                _figure(sides["processor"], name, 2),
                _ratio(sides["processor"], name, OURS, 1),
                *(_figure(sides[what], name, 0) for what in ("stop", "memory")),
                _ratio(sides["memory"], name, OURS, 1),
            )
        )
    return headings, rows


def _clusters_semantics(benchmarks: list[Benchmark]) -> tuple[Sequence[str], Rows]:
    [one] = benchmarks
    reasons = one["reasons"]
    trials = dict.fromkeys(trial for tried in reasons.values() for trial in tried)
    return ("tried by a client", *reasons), (
        (trial, *(_tried(reasons[name], trial) for name in reasons)) for trial in trials
    )


def _clusters_first_test(benchmarks: list[Benchmark]) -> tuple[Sequence[str], Rows]:
    [one] = benchmarks
    names = {
        "no fixture": "no fixture",
        OURS: "`kafka_cluster`",
        "three brokers": "`kafka_cluster`, `--kafka-brokers 3`",
        "Hypothesis": "`kafka_cluster`, Hypothesis is installed",
    }
    return ("the first test asks for", "begins, ms", "processor time, s"), (
        (text, _figure(one, name, 0), _figure({"ms": one["processor"]}, name, 2))
        for name, text in names.items()
    )


def _clusters_installation(benchmarks: list[Benchmark]) -> tuple[Sequence[str], Rows]:
    [one] = benchmarks
    return ("in a new environment", "MB"), (
        (name, f"{size / 1e6:,.0f}") for name, size in one["bytes"].items()
    )


_TABLES: Final[Mapping[str, Callable[[list[Benchmark]], tuple[Sequence[str], Rows]]]] = {
    "codec": _codec,
    "peers": _peers,
    "push": _push,
    "small": _small,
    "start": _start,
    "features": _features,
    "spark": _spark,
    "spark_small": _spark_small,
    "spark_stores": _spark_stores,
    "controller": _controller,
    "broker": _broker,
    "transactions": _transactions,
    "security": _security,
    "tls": _tls,
    "clusters": _clusters,
    "clusters_semantics": _clusters_semantics,
    "clusters_first_test": _clusters_first_test,
    "clusters_installation": _clusters_installation,
}


# -- the cells; empty for a side that did not run


def _message(one: Benchmark) -> str:
    return f"{API_NAMES[one['api_key']]} v{one['version']} {one['direction']}"


def _median(one: Benchmark, side: str) -> float:
    times: list[float] = one["ms"][side]
    return median(times)


def _figure(one: Benchmark, side: str, digits: int = 1) -> str:
    """Format milliseconds: median (minimum)."""
    times = one["ms"].get(side)
    return f"{median(times):,.{digits}f} ({min(times):,.{digits}f})" if times else ""


def _each(one: Benchmark, side: str) -> str:
    """Format nanoseconds a partition: median (minimum)."""
    times = one["ms"].get(side)
    if not times:
        return ""
    scale = 1e6 / one["partitions"]
    return f"{median(times) * scale:,.1f} ({min(times) * scale:,.1f})"


def _rate(one: Benchmark, side: str) -> str:
    """Format requests a second: median (best)."""
    times = one["ms"].get(side)
    if not times:
        return ""
    return f"{one['requests'] / median(times) * 1e3:,.0f} ({one['requests'] / min(times) * 1e3:,.0f})"


def _first_rate(one: Benchmark, side: str) -> str:
    """Format requests a second of the first call."""
    milliseconds = one["first_ms"].get(side)
    return _number(milliseconds and one["requests"] / milliseconds * 1e3)


def _ratio(one: Benchmark, side: str, other: str, digits: int) -> str:
    """Format the ratio of two sides: median to median (minimum to minimum)."""
    times, others = one["ms"].get(side), one["ms"].get(other)
    # An allocator may give more memory back than a connection needs: 0, or less.
    if not times or not others or min(others) <= 0:
        return ""
    return f"{median(times) / median(others):.{digits}f} ({min(times) / min(others):.{digits}f})"


def _tried(reasons: Mapping[str, str | None], trial: str) -> str:
    if trial not in reasons:
        return ""
    return "yes" if reasons[trial] is None else "no"


def _more(value: float, base: float) -> str:
    return f"{(value / base - 1) * 100:+.1f} %"


def _seconds(values: list[float] | None) -> str:
    return f"{median(values):.2f}" if values else "–"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _markdown(headings: Sequence[str], rows: Rows) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    write([])
