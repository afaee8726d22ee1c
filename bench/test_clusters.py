"""Measures what people use as a Kafka in their tests: ours, Kafka's JVM, kfake, librdkafka's mock cluster.

Command: ``python -m bench clusters``, or by itself ``python -m pytest bench/test_clusters.py
--benchmark-json=build/bench/clusters.json`` (``--no-kafka``, ``--quick``, ``-k lives``).

Each round is a life of every candidate in turn, in a new process with confluent-kafka imported: start, the
first record of a topic, that record by a consumer of a new group, memory, stop. ``bench/testing`` has them.
"""

from __future__ import annotations

import compileall
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.alternate import OURS, Side, side_by_side
from bench.peers.native import build_go
from bench.peers.process import ROOT
from bench.testing.candidates import COMMAND, EMBEDDED, KFAKE, KRAFT, MOCK
from bench.testing.first_test import Begun, begin_first_test
from bench.testing.installation import bytes_of_jars, bytes_of_kfake, bytes_of_packages, wheel

ROUNDS: Final = 5
_TIMEOUT: Final = 3600
_LIFE_SECONDS: Final = 300.0
_TRIAL_SECONDS: Final = 900.0

#: Rows of the table -> arguments of ``python -m bench.testing live``. A second cluster has a row of its own.
_SECOND: Final = "ours, the second in a process"
_LIVES: Final = {
    OURS: (EMBEDDED, "--times", "2"),
    "ours, three brokers": (EMBEDDED, "--brokers", "3"),
    "ours, `ctrlchan cluster`": (COMMAND,),
    "Kafka 3.9.1 (KRaft)": (KRAFT,),
    "kfake": (KFAKE,),
    "librdkafka's mock": (MOCK,),
}


@pytest.fixture(scope="module")
def candidates(with_kafka: bool) -> set[str]:
    """Prepare all candidates that can run here, so that no figure contains it, and return their names."""
    # As pip does it for an installed package; a checkout may be without, for PYTHONDONTWRITEBYTECODE.
    compileall.compile_dir(ROOT / "ctrlchan", quiet=1)
    found = {EMBEDDED, COMMAND, MOCK}
    if shutil.which("go"):
        build_go("kfake")
        found.add(KFAKE)
    if with_kafka:
        # Makes the archives of classes.
        _lines("live", KRAFT, seconds=_LIFE_SECONDS)
        found.add(KRAFT)
    return found


@pytest.mark.timeout(_TIMEOUT)
def test_lives(benchmark: BenchmarkFixture, scaled: Callable[[int], int], candidates: set[str]) -> None:
    lives: dict[str, list[dict[str, float]]] = {}
    failed: dict[str, int] = {}

    def run(name: str) -> None:
        try:
            found = _lines("live", *_LIVES[name], seconds=_LIFE_SECONDS)
        except subprocess.CalledProcessError:
            # Such as a record that was not acknowledged: the table says how many of these there were.
            failed[name] = failed.get(name, 0) + 1
            return
        for row, life in zip((name, _SECOND), found, strict=False):
            lives.setdefault(row, []).append(life)

    def run_others() -> None:
        for name, (candidate, *_) in _LIVES.items():
            if name != OURS and candidate in candidates:
                run(name)

    benchmark.extra_info.update(suite="clusters", lives=lives, failed=failed)
    benchmark.pedantic(lambda: run(OURS), setup=run_others, rounds=scaled(ROUNDS))  # type: ignore[no-untyped-call]


@pytest.mark.timeout(_TIMEOUT)
def test_semantics(benchmark: BenchmarkFixture, candidates: set[str]) -> None:
    tried = [one for one in (EMBEDDED, KRAFT, KFAKE, MOCK) if one in candidates]
    reasons: dict[str, dict[str, str | None]] = {}

    def try_all() -> None:
        for candidate in tried:
            reasons[candidate] = dict(_lines("try", candidate, seconds=_TRIAL_SECONDS))

    benchmark.extra_info.update(suite="clusters_semantics", reasons=reasons)
    benchmark.pedantic(try_all, rounds=1)  # type: ignore[no-untyped-call]


def test_first_test(benchmark: BenchmarkFixture, scaled: Callable[[int], int], candidates: set[str]) -> None:
    wanted: dict[str, Callable[[], Begun]] = {
        "no fixture": lambda: begin_first_test(""),
        OURS: lambda: begin_first_test("kafka_cluster", hypothesis=False),
        "three brokers": lambda: begin_first_test("kafka_cluster", "--kafka-brokers=3", hypothesis=False),
        "Hypothesis": lambda: begin_first_test("kafka_cluster"),
    }
    processor: dict[str, list[float]] = {name: [] for name in wanted}

    def side(name: str) -> Side:
        def call() -> float:
            begun = wanted[name]()
            processor[name].append(begun.processor)
            return begun.ms

        return Side(call=call, warmups=0)

    sides = {name: side(name) for name in wanted}
    side_by_side(benchmark, sides, scaled(ROUNDS), suite="clusters_first_test", processor=processor)


@pytest.mark.timeout(_TIMEOUT)
def test_installation(benchmark: BenchmarkFixture, candidates: set[str], tmp_path: Path) -> None:
    sizes: dict[str, int] = {}

    def measure() -> None:
        ours = wheel(tmp_path / "wheel")
        sizes["`ctrlchan[testing]`"] = bytes_of_packages(tmp_path / "now", f"{ours}[testing]")
        sizes["`ctrlchan[testing,parquet]`, with pyarrow"] = bytes_of_packages(
            tmp_path / "parquet", f"{ours}[testing,parquet]"
        )
        sizes["librdkafka's mock: `confluent-kafka`"] = bytes_of_packages(
            tmp_path / "mock", "confluent-kafka"
        )
        if KRAFT in candidates:
            sizes["Kafka 3.9.1: its jars, without Java"] = bytes_of_jars()
        if KFAKE in candidates:
            sizes["kfake: a program"] = bytes_of_kfake()

    benchmark.extra_info.update(suite="clusters_installation", bytes=sizes)
    benchmark.pedantic(measure, rounds=1)  # type: ignore[no-untyped-call]


def _lines(*arguments: str, seconds: float) -> list[Any]:
    """Run ``python -m bench.testing`` and return its lines. Raises CalledProcessError, TimeoutExpired."""
    ran = subprocess.run(
        [sys.executable, "-m", "bench.testing", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=seconds,
        check=True,
    )
    return [json.loads(line) for line in ran.stdout.splitlines()]
