"""Tests of the benchmark report, from pytest-benchmark's JSON to measures, and to tables within the text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from bench.measures.measure import Measure
from bench.measures.suites import measures_of
from bench.report import results_of, texts_of, write

ROOT: Final = Path(__file__).parents[2]
RUN: dict[str, Any] = {
    "datetime": "2026-01-02T03:04:05+00:00",
    "commit_info": {"id": "0123456789abcdef", "dirty": False},
    "machine_info": {
        "cpu": {"brand_raw": "A CPU", "count": 2},
        "system": "Linux",
        "release": "6.1",
        "python_version": "3.11.7",
    },
}
COMMAND = "python -m bench"

CODEC = {
    "suite": "codec", "api_key": 6, "version": 8, "direction": "encode", "buffers": "rotating",
    "partitions": 100_000, "bytes": 4_841_391, "ms": {"ours": [0.6, 0.4, 0.5], "memcpy": [0.3, 0.25, 0.2]},
}  # fmt: skip
PUSH = {
    "suite": "push", "partitions": 100_000, "brokers": 30, "bytes": 4_841_391,
    "start_ms": {"ours": 70.0, "kafka": 280.0}, "first_ms": {"ours": 41.2, "kafka": 5000.0},
    "ms": {"ours": [30.0, 20.0, 25.0], "kafka": [1000.0], "blast": [20.0, 25.0, 10.0]},
    "pss_mib": {"ours": 60.0, "kafka": 3000.0},
}  # fmt: skip
SMALL = {
    "suite": "small", "brokers": 30, "mode": "awaited", "requests": 3000,
    "first_ms": {"ours": 150.0},
    "ms": {"ours": [100.0, 50.0], "per-broker": [200.0, 100.0], "kafka": [300.0]},
}  # fmt: skip
SPARK = {
    "suite": "spark", "job": "frames", "work": "partitions", "rows": 500_000,
    "ms": {"ours": [1200.0, 1000.0, 1100.0], "without": [1000.0, 800.0]},
    "pss_mib": {"ours": 1500.2, "without": 1400.0},
}  # fmt: skip
CONTROLLER = {
    "suite": "controller", "partitions": 10_000, "brokers": 300,
    "ms": {"failover": {"ours": [90.0, 110.0, 100.0], "kafka": [1600.0, 1500.0]}},
    "cpu_seconds": {"failover": {"ours": [0.1, 0.2, 0.3], "kafka": [2.0, 3.0]}},
    "pss_mib": {"ours": 100.0, "kafka": 650.0},
}  # fmt: skip


def a_run(*extra_infos: dict[str, Any]) -> dict[str, Any]:
    return RUN | {"benchmarks": [{"extra_info": extra_info} for extra_info in extra_infos]}


PROSE = """before
<!-- answers -->
old
<!-- end of answers -->
between
<!-- shortfalls -->
<!-- end of shortfalls -->
after
"""


def read(*extra_infos: dict[str, Any]) -> dict[str, Measure]:
    """Return the measures of a run by their names."""
    results = results_of(a_run(*extra_infos), COMMAND)
    return {one.what: one for result in results for one in measures_of(result)}


def ratio(measure: Measure, side: str) -> tuple[str, float]:
    found = measure.compared_with(side)
    assert found is not None
    return found.name, round(found.of_medians, 2)


def test_a_push() -> None:
    made = read(PUSH)
    assert list(made) == [
        "full push, 100,000 → 30", "first push of a new process, 100,000 → 30", "memory, 100,000 → 30",
    ]  # fmt: skip
    push, _, memory = made.values()
    assert (push.unit, push.median(), push.best()) == ("ms", 25.0, 20.0)
    assert ratio(push, "kafka") == ("Kafka / ours", 40.0)
    assert ratio(push, "limit") == ("ours / limit", 1.25)
    assert ratio(memory, "kafka") == ("Kafka / ours", 50.0)
    assert push.size == ("partitions", 100_000)


def test_small_requests_are_a_rate() -> None:
    awaited, first = read(SMALL).values()
    assert (awaited.unit, awaited.median(), awaited.best()) == ("requests/s", 45_000.0, 60_000.0)
    assert ratio(awaited, "kafka") == ("ours / Kafka", 4.5)
    assert first.sides == {"ours": [20_000.0]}


def test_the_codec_in_nanoseconds_of_a_partition() -> None:
    [one] = read(CODEC).values()
    assert one.what == "UpdateMetadata v8 encode, 100,000 partitions, rotating buffers"
    assert (round(one.median(), 2), round(one.best(), 2)) == (5.0, 4.0)
    assert ratio(one, "memcpy") == ("ours / memcpy", 2.0)


def test_a_start() -> None:
    one = {
        "suite": "start", "partitions": 10_000, "brokers": 300, "ms": {"ours": [100.0], "kafka": [900.0]},
        "first_ms": {"ours": [30.0], "kafka": [3000.0]}, "warm_ms": {"ours": [15.0], "kafka": [600.0]},
    }  # fmt: skip
    made = read(one)
    assert made["first push / warm push, 10,000 → 300"].sides == {"ours": [2.0], "kafka": [5.0]}
    assert ratio(made["start, 10,000 → 300"], "kafka") == ("Kafka / ours", 9.0)


def test_a_feature_beside_the_same_without_it() -> None:
    one = {
        "suite": "features",
        "feature": "journal",
        "work": "push",
        "ms": {"ours": [22.0], "without": [20.0]},
    }
    assert ratio(read(one)["journal: push"], "without") == ("ours / without", 1.1)


def test_a_job_beside_spark_alone() -> None:
    time, memory = read(SPARK).values()
    assert time.what == "frames, 500,000 partitions: time"
    assert ratio(time, "Spark alone") == ("ours / Spark alone", 1.22)
    assert (memory.unit, memory.sides) == ("MiB", {"ours": [1500.2], "Spark alone": [1400.0]})


def test_small_jobs_beside_a_session() -> None:
    one = {"suite": "spark_small", "ms": {"session": [9000.0, 8000.0], "`ingest`": [18_000.0, 17_000.0]}}
    [ingest] = read(one).values()
    assert ingest.what == "ingest"
    assert ratio(ingest, "session") == ("ours / session", 2.06)


def test_a_job_on_several_stores() -> None:
    one = {"suite": "spark_stores", "job": "`frames`", "ms": {"disk": [1000.0], "HDFS": [1500.0]}}
    assert ratio(read(one)["frames: HDFS"], "disk") == ("ours / disk", 1.5)


def test_a_controller_beside_kafkas() -> None:
    made = read(CONTROLLER)
    assert ratio(made["failover, 10,000 → 300"], "kafka") == ("Kafka / ours", 15.5)
    assert made["failover, 10,000 → 300: processor time"].median() == 0.2
    assert ratio(made["memory, 10,000 → 300"], "kafka") == ("Kafka / ours", 6.5)


def test_figures_and_their_goals() -> None:
    figures = {
        "1 record": ("µs", {"ours": [400.0, 500.0], "kafka": [4000.0, 3000.0]}),
        "CONCURRENT_TRANSACTIONS": ("answers", {"ours": [0.0], "kafka": [90.0]}),
    }
    goals = {"1 record": "≥ 4", "CONCURRENT_TRANSACTIONS": ""}
    record, answers = read({"suite": "transactions", "figures": figures, "goals": goals}).values()
    assert (record.unit, record.goals) == ("µs", ("≥ 4",))
    assert (answers.goals, answers.compared_with("kafka")) == ((), None)


def test_many_acls_are_ours() -> None:
    figures = {
        "Fetch of 1 KB": ("µs", {"without": [9.0], "10,000": [9.5], "100,000": [10.0], "kafka": [40.0]})
    }
    [one] = read({"suite": "security", "figures": figures}).values()
    assert ratio(one, "kafka") == ("Kafka / ours", 4.0)
    assert ratio(one, "without") == ("ours / without", 1.11)


def test_clusters_for_tests() -> None:
    life = {"ready": 1e3, "acknowledged": 1.1e3, "read": 2e3, "stop": 4e2, "memory": 70.0, "processor": 0.5}
    slow = {"ready": 5e3, "acknowledged": 5.1e3, "read": 8e3, "stop": 9e2, "memory": 210.0, "processor": 2.0}
    one = {
        "suite": "clusters",
        "lives": {"Kafka": [slow], "ours": [life, life | {"read": 1e3}]},
        "failed": {"Kafka": 2},
    }
    made = read(one)
    kafka = "Kafka (2 of 3 lives failed)"
    assert ratio(made["first record read by a group"], kafka) == (f"{kafka} / ours", 5.33)
    assert made["memory"].sides == {"ours": [70.0, 70.0], kafka: [210.0]}


def test_semantics_of_clusters_for_tests() -> None:
    reasons = {"ours": {"groups": None, "transactions": "refused"}, "mock": {"groups": "no record"}}
    [one] = read({"suite": "clusters_semantics", "reasons": reasons}).values()
    assert one.what == "semantics of 2 that clients tried"
    assert one.sides == {"ours": [1], "librdkafka's mock": [0]}


def test_first_test_and_installation() -> None:
    first = {
        "suite": "clusters_first_test",
        "ms": {"no fixture": [1.0], "ours": [900.0, 700.0], "three brokers": [1000.0], "Hypothesis": [2e3]},
        "processor": {"no fixture": [0.0], "ours": [0.9, 0.8], "three brokers": [1.5], "Hypothesis": [2.0]},
    }
    size = {"suite": "clusters_installation", "bytes": {"`ctrlchan[testing]`": 170_400_000}}
    made = read(first, size)
    assert made["the first test begins"].sides["ours, three brokers"] == [1000.0]
    assert made["installation"].sides == {"ours": [170.4]}


def test_facts_of_a_run() -> None:
    [result] = results_of(a_run(PUSH), COMMAND, 0.3)
    assert result["commit"] == "0123456789ab"
    assert result["machine"] == "A CPU, 2 cores, Linux 6.1"
    assert (result["date"], result["command"], result["load"]) == ("2026-01-02", COMMAND, 0.3)


def test_texts_of_a_quick_run() -> None:
    text = texts_of(results_of(a_run(PUSH), COMMAND))
    assert "full push, 100,000 → 30, ms: ours 25.0 (20.0); Kafka 1,000 (1,000); limit 20.0 (10.0)" in text
    assert "Kafka / ours 40.0 (50.0)" in text


def test_the_prose_stays_and_so_do_results_of_other_suites(tmp_path: Path) -> None:
    raw, file, page = (tmp_path / name for name in ("results.json", "RESULTS.md", "page.html"))
    file.write_text(PROSE)
    write(results_of(a_run(CODEC, PUSH), COMMAND), raw, file, page)
    both = file.read_text()
    slower = PUSH | {"ms": {"ours": [60.0], "blast": [20.0]}}
    write(results_of(a_run(slower), "another command"), raw, file, page)
    text = file.read_text()
    assert "old" not in both
    assert "25.0 ms; Kafka / ours 40.0; ours / limit 1.25 | met | `push` |" in both
    assert "60.0 ms; ours / limit 3.00 | 0 of 1 met | `push` |" in text
    assert "ours / limit ≤ 1.25: 3.00" in text.split("between")[1]
    assert [line for line in text.splitlines() if line in ("before", "between", "after")] == [
        "before", "between", "after",
    ]  # fmt: skip
    assert [result["command"] for result in json.loads(raw.read_text())] == [COMMAND, "another command"]
    made = page.read_text()
    assert 'id="push-full-push-100000-to-30"' in made
    write([], raw, file, page)
    assert file.read_text() == text


def test_a_table_without_a_place_raises_and_nothing_is_written(tmp_path: Path) -> None:
    raw, file = tmp_path / "results.json", tmp_path / "RESULTS.md"
    file.write_text("no place")
    with pytest.raises(ValueError, match="no place for the table 'answers'"):
        write(results_of(a_run(PUSH), COMMAND), raw, file, tmp_path / "page.html")
    assert [one.name for one in tmp_path.iterdir()] == ["RESULTS.md"]


def test_headers_of_the_limits_in_c_exist() -> None:
    """The programs are compiled when a suite runs: a header that was moved is noticed here."""
    sources = [*(ROOT / "bench").rglob("*.c")]
    included = [
        (source.parent / name)
        for source in sources
        for name in re.findall(r'^#include "([^"]+)"', source.read_text(), re.MULTILINE)
    ]
    assert included
    assert [str(one) for one in included if not one.exists()] == []
