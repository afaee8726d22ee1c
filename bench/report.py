"""Benchmark JSON -> the tables of ``bench/RESULTS.md``.

Command: ``python -m bench.report build/bench/codec.json build/bench/channel.json`` (``--output FILE``);
``make bench`` runs the suites and this.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Final

from ctrlchan.versions import API_NAMES

__all__ = ["main", "report"]

_DEFAULT_OUTPUT: Final = Path(__file__).parent / "RESULTS.md"
_PACKAGES: Final = ("numpy", "multiprocess", "pytest-benchmark")

_CODEC_ORDER: Final = ("api_key", "direction", "partitions", "caches")

_INTRODUCTION: Final = """\
# Results

Written by `make bench`, not by hand. Each figure is a median, its minimum in brackets. Where there is a peer
it runs before every timed round of ours, so both sides see the same machine; ratios are of one run. Absolute
figures of one machine move by a factor of two, ratios less.
"""

_CODEC: Final = """\
## Codec

ns per partition; columns are there before. *memcpy* copies the same number of bytes. *cold*: before each side
more memory is read than the caches hold; *hot*: nothing else runs. Command: `python -m pytest
bench/test_codec.py --benchmark-json=build/bench/codec.json`.
"""

_PUSH: Final = """\
## Full push: UpdateMetadata v8 of every partition to every broker

From `new_batch` to the last outcome, ms. *limit*: `bench/peers/blast.c`, a finished buffer of the same size
to as many connections of the same sink. *first*: the channel's first push. *memory*: PSS after the last
push of the controller, all its sender processes and the sink. Command: `python -m pytest
bench/test_channel.py -k push --benchmark-json=build/bench/channel.json`.
"""

_SMALL: Final = """\
## Small requests: UpdateMetadata of one partition

Requests a second, all brokers together; each round of one request to every broker awaited before the next, or
all rounds queued ahead. Command: `python -m pytest bench/test_channel.py -k small
--benchmark-json=build/bench/channel.json`.
"""


@dataclass(frozen=True)
class Benchmark:
    """One benchmark of the JSON: our times and, where it has one, its peer's, in milliseconds."""

    times_ms: list[float]
    extra: dict[str, Any]

    @property
    def peer_ms(self) -> list[float]:
        """The peer's times of our timed rounds; those of the warm-up rounds come before them."""
        times: list[float] = self.extra["peer_ms"]
        return times[len(times) - len(self.times_ms) :]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write the benchmark tables.")
    parser.add_argument("json", nargs="+", type=Path, help="files written by --benchmark-json")
    parser.add_argument("--output", type=Path, default=_DEFAULT_OUTPUT)
    options = parser.parse_args(arguments)
    options.output.write_text(report([json.loads(file.read_text()) for file in options.json]))
    print(f"wrote {options.output.name}")


def report(runs: list[dict[str, Any]]) -> str:
    """Markdown of what these JSON documents hold; a suite that did not run has no section."""
    benchmarks = [
        Benchmark([seconds * 1e3 for seconds in entry["stats"]["data"]], entry["extra_info"])
        for run in runs
        for entry in run["benchmarks"]
    ]
    sections = [_INTRODUCTION, _machine(runs[0])]
    for suite, title, table in (
        ("codec", _CODEC, _codec_table),
        ("push", _PUSH, _push_table),
        ("small", _SMALL, _small_table),
    ):
        chosen = [one for one in benchmarks if one.extra["suite"] == suite]
        if chosen:
            sections.append(f"{title}\n{table(chosen)}")
    return "\n".join(sections)


def _machine(run: dict[str, Any]) -> str:
    info = run["machine_info"]
    versions = ", ".join(f"{package} {version(package)}" for package in _PACKAGES)
    commit = run["commit_info"]
    changed = " with uncommitted changes" if commit.get("dirty") else ""
    return (
        f"{run['datetime'][:10]}, commit {str(commit.get('id'))[:12]}{changed}. "
        f"{info['cpu'].get('brand_raw', platform.processor())}, {info['cpu'].get('count')} cores, "
        f"{info['system']} {info['release']}, Python {info['python_version']}, {versions}.\n"
    )


def _codec_table(benchmarks: Iterable[Benchmark]) -> str:
    ordered = sorted(benchmarks, key=lambda one: [one.extra[name] for name in _CODEC_ORDER], reverse=True)
    rows = [
        (
            f"{API_NAMES[extra['api_key']]} v{extra['version']} {extra['direction']}",
            f"{extra['partitions']:,}",
            f"{extra['bytes']:,}",
            extra["caches"],
            _figure(one.times_ms, 1e6 / extra["partitions"], 2),
            _figure(one.peer_ms, 1e6 / extra["partitions"], 2),
            _ratio(one),
        )
        for one in ordered
        for extra in [one.extra]
    ]
    headings = ("message", "partitions", "bytes", "caches", "ours", "memcpy", "ours / memcpy")
    return _table(*headings, rows=rows)


def _push_table(benchmarks: Iterable[Benchmark]) -> str:
    rows = [
        (
            f"{extra['partitions']:,}",
            f"{extra['brokers']:,}",
            extra["senders"],
            _figure(one.times_ms, 1, 1),
            _figure(one.peer_ms, 1, 1),
            _ratio(one),
            f"{extra['first_ms']:.0f}",
            f"{extra['pss_mib']:.0f} MiB",
        )
        for one in benchmarks
        for extra in [one.extra]
    ]
    headings = (
        "partitions",
        "brokers",
        "sender processes",
        "ours",
        "limit",
        "ours / limit",
        "first",
        "memory",
    )
    return _table(*headings, rows=rows)


def _small_table(benchmarks: Iterable[Benchmark]) -> str:
    rows = [
        (
            f"{extra['brokers']:,}",
            extra["senders"],
            "each round awaited" if extra["awaited"] else "queued ahead",
            f"{extra['requests'] / median(one.times_ms) * 1e3:,.0f}",
            f"{extra['requests'] / min(one.times_ms) * 1e3:,.0f}",
        )
        for one in benchmarks
        for extra in [one.extra]
    ]
    return _table("brokers", "senders", "", "requests/s", "best", rows=rows)


def _figure(times_ms: list[float], scale: float, digits: int) -> str:
    return f"{median(times_ms) * scale:.{digits}f} ({min(times_ms) * scale:.{digits}f})"


def _ratio(one: Benchmark) -> str:
    return f"{median(one.times_ms) / median(one.peer_ms):.2f} ({min(one.times_ms) / min(one.peer_ms):.2f})"


def _table(*headings: str, rows: Iterable[tuple[str, ...]]) -> str:
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main()
