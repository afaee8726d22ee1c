"""Tests of the benchmark report, from pytest-benchmark's JSON to tables within the text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from bench.report import results_of, tables, write

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


def prose(*names: str) -> str:
    return "\n".join(
        f"before {name}\n<!-- table: {name} -->\nold\n<!-- end: {name} -->\nafter" for name in names
    )


def test_a_job_beside_spark_alone() -> None:
    made = tables(results_of(a_run(SPARK), COMMAND))["spark"]
    row = "| frames | 500,000 partitions | 1,100 (1,000) | 900 (800) | 1.22 (1.25) | 2.20 | 1,500, 1,400 |"
    assert row in made


def test_small_jobs_beside_a_session() -> None:
    one = {"suite": "spark_small", "ms": {"session": [9000.0, 8000.0], "`ingest`": [18_000.0, 17_000.0]}}
    made = tables(results_of(a_run(one), COMMAND))["spark_small"]
    assert "| `ingest` | 17,500 (17,000) | 2.06 (2.12) |" in made


def test_transactions_beside_their_goals() -> None:
    figures = {
        "1 record": ("µs", {"ours": [400.0, 500.0], "kafka": [4000.0, 3000.0]}),
        "CONCURRENT_TRANSACTIONS": ("answers", {"ours": [0.0], "kafka": [90.0]}),
        "longest / shortest": ("×", {"ours": [1.05]}),
    }
    goals = {"1 record": "≥ 4", "CONCURRENT_TRANSACTIONS": "ours 0", "longest / shortest": "ours flat"}
    one = {"suite": "transactions", "figures": figures, "goals": goals}
    made = tables(results_of(a_run(one), COMMAND))["transactions"]
    assert "| 1 record | µs | 3,500 (3,000) | 450 (400) | 7.8 (7.5) | ≥ 4 |" in made
    assert "| CONCURRENT_TRANSACTIONS | answers | 90.00 (90.00) | 0.00 (0.00) |  | ours 0 |" in made
    assert "| longest / shortest | × |  | 1.05 (1.05) |  | ours flat |" in made


def test_a_job_on_several_stores() -> None:
    one = {"suite": "spark_stores", "job": "`frames`", "ms": {"disk": [1000.0], "HDFS": [1500.0]}}
    made = tables(results_of(a_run(one), COMMAND))["spark_stores"]
    assert "| job | disk, ms | HDFS, ms | HDFS / disk |" in made
    assert "| `frames` | 1,000 (1,000) | 1,500 (1,500) | 1.50 (1.50) |" in made


def test_a_controller_beside_kafkas() -> None:
    made = tables(results_of(a_run(CONTROLLER), COMMAND))["controller"]
    assert "| 10,000 → 300 | failover | 1,550 (1,500) | 100 (90) | 15.5 (16.7) | 2.50, 0.20 |" in made
    assert "| 10,000 → 300 | memory, MiB | 650 | 100 | 6.5 |  |" in made


def test_a_controller_without_kafka() -> None:
    times = {"failover": {"ours": [1.0]}}
    alone = {**CONTROLLER, "ms": times, "cpu_seconds": times, "pss_mib": {"ours": 100.0}}
    made = tables(results_of(a_run(alone), COMMAND))["controller"]
    assert "| 10,000 → 300 | failover |  | 1 (1) |  | –, 1.00 |" in made
    assert "| 10,000 → 300 | memory, MiB | – | 100 |  |  |" in made


def test_clusters_for_tests() -> None:
    life = {"ready": 1e3, "acknowledged": 1.1e3, "read": 2e3, "stop": 4e2, "memory": 70.0, "processor": 0.5}
    slow = {"ready": 5e3, "acknowledged": 5.1e3, "read": 8e3, "stop": 9e2, "memory": 210.0, "processor": 2.0}
    one = {
        "suite": "clusters",
        "lives": {"Kafka": [slow], "ours": [life, life | {"read": 1e3}]},
        "failed": {"Kafka": 2},
    }
    *_, ours, kafka = tables(results_of(a_run(one), COMMAND))["clusters"].partition("\n\n")[0].splitlines()
    assert ours.startswith(
        "| ours | 1,000 (1,000) | 1,100 (1,100) | 1,500 (1,000) | 1.0 (1.0) | 0.50 (0.50) |"
    )
    assert kafka.startswith("| Kafka (2 of 3 lives failed) | 5,000 (5,000) | 5,100 (5,100) | 8,000 (8,000) |")
    assert kafka.endswith("| 5.3 (8.0) | 2.00 (2.00) | 4.0 (4.0) | 900 (900) | 210 (210) | 3.0 (3.0) |")


def test_semantics_of_clusters_for_tests() -> None:
    reasons = {"ours": {"groups": None, "transactions": "refused"}, "mock": {"groups": "no record"}}
    one = {"suite": "clusters_semantics", "reasons": reasons}
    made = tables(results_of(a_run(one), COMMAND))["clusters_semantics"]
    assert "| tried by a client | ours | mock |" in made
    assert "| groups | yes | no |" in made
    assert "| transactions | no |  |" in made


def test_first_test_and_installation() -> None:
    first = {
        "suite": "clusters_first_test",
        "ms": {"no fixture": [1.0], "ours": [900.0, 700.0], "three brokers": [1000.0], "Hypothesis": [2e3]},
        "processor": {"no fixture": [0.0], "ours": [0.9, 0.8], "three brokers": [1.5], "Hypothesis": [2.0]},
    }
    size = {"suite": "clusters_installation", "bytes": {"`ctrlchan`": 170_400_000}}
    made = tables(results_of(a_run(first, size), COMMAND))
    assert "| `kafka_cluster` | 800 (700) | 0.85 (0.80) |" in made["clusters_first_test"]
    assert "| `ctrlchan` | 170 |" in made["clusters_installation"]


def test_tables() -> None:
    made = tables(results_of(a_run(CODEC, PUSH, SMALL), COMMAND))
    assert list(made) == ["codec", "push", "small"]
    assert (
        "| UpdateMetadata v8 encode | 100,000 | 4,841,391 | rotating | 5.0 (4.0) | 2.5 (2.0) | 2.00 (2.00) |"
        in made["codec"]
    )
    assert (
        "| 100,000 → 30 | 20.0 (10.0) | 25.0 (20.0) | 1.25 (2.00) |  | 1,000.0 (1,000.0) | 40.0 (50.0) |"
        in made["push"]
    )
    assert "| 41, 5,000 | 60, –, 3,000 | 50.0 |" in made["push"]
    assert (
        "| 30 | awaited |  | 40,000 (60,000) | 20,000 (30,000) | 10,000 (10,000) | 4.0 (6.0) | 20,000, – |"
        in made["small"]
    )
    source = "2026-01-02, commit 0123456789ab; A CPU, 2 cores, Linux 6.1; Python 3.11.7, "
    assert all(source in table and table.endswith("`python -m bench`\n") for table in made.values())


def test_a_side_that_did_not_run_leaves_its_cells_empty() -> None:
    alone = PUSH | {"ms": {"ours": [30.0], "blast": [20.0]}, "pss_mib": {"ours": 60.0}}
    assert (
        "| 20.0 (20.0) | 30.0 (30.0) | 1.50 (1.50) |  |  |  | 41, 5,000 | 60, –, – |  |"
        in (tables(results_of(a_run(alone), COMMAND))["push"])
    )


def test_the_prose_stays_and_so_do_tables_of_other_suites(tmp_path: Path) -> None:
    raw, file = tmp_path / "results.json", tmp_path / "RESULTS.md"
    file.write_text(prose("codec", "push"))
    write(results_of(a_run(CODEC, PUSH), COMMAND), raw, file)
    both = file.read_text()
    slower = PUSH | {"ms": {"ours": [60.0], "blast": [20.0]}}
    write(results_of(a_run(slower), "another command"), raw, file)
    text = file.read_text()
    assert "old" not in both
    assert text.split("before push")[0] == both.split("before push")[0]
    assert "60.0 (60.0)" in text
    assert text.count("after") == 2
    assert [result["command"] for result in json.loads(raw.read_text())] == [COMMAND, "another command"]
    write([], raw, file)
    assert file.read_text() == text


def test_a_table_without_a_place_raises(tmp_path: Path) -> None:
    file = tmp_path / "RESULTS.md"
    file.write_text(prose("codec"))
    with pytest.raises(ValueError, match="no place for the table 'push'"):
        write(results_of(a_run(PUSH), COMMAND), tmp_path / "results.json", file)


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
