"""The benchmark report: from pytest-benchmark's JSON to tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.report import main, report

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


def a_run(*benchmarks: dict[str, Any]) -> dict[str, Any]:
    return RUN | {"benchmarks": list(benchmarks)}


def a_benchmark(seconds: list[float], **extra: Any) -> dict[str, Any]:
    return {"stats": {"data": seconds}, "extra_info": extra}


CODEC = a_benchmark(
    [0.003, 0.001, 0.002],
    suite="codec", api_key=6, version=8, direction="encode", partitions=100_000, bytes=4_841_391,
    caches="cold",
    # The first of the peer's times was beside a warm-up round.
    peer="memcpy", peer_ms=[99.0, 2.0, 1.0, 0.5],
)  # fmt: skip
PUSH = a_benchmark(
    [0.030, 0.020, 0.025],
    suite="push", partitions=100_000, brokers=30, senders="2", bytes=4_841_391, first_ms=41.2, pss_mib=98.7,
    peer="blast", peer_ms=[20.0, 25.0, 10.0],
)  # fmt: skip
SMALL = a_benchmark([0.1, 0.05], suite="small", brokers=30, senders="per-broker", requests=3000, awaited=True)


def test_tables() -> None:
    text = report([a_run(CODEC), a_run(PUSH, SMALL)])
    assert "2026-01-02, commit 0123456789ab. A CPU, 2 cores, Linux 6.1, Python 3.11.7" in text
    assert "| UpdateMetadata v8 encode | 100,000 | 4,841,391 | cold | 20.00 (10.00) | 10.00 (5.00) |" in text
    assert "| 2.00 (2.00) |" in text
    assert "| 100,000 | 30 | 2 | 25.0 (20.0) | 20.0 (10.0) | 1.25 (2.00) | 41 | 99 MiB |" in text
    assert "| 30 | per-broker | each round awaited | 40,000 | 60,000 |" in text


def test_a_suite_that_did_not_run_has_no_section(tmp_path: Path) -> None:
    run, output = tmp_path / "codec.json", tmp_path / "RESULTS.md"
    run.write_text(json.dumps(a_run(CODEC)))
    main([str(run), "--output", str(output)])
    headings = [line for line in output.read_text().splitlines() if line.startswith("#")]
    assert headings == ["# Results", "## Codec"]
