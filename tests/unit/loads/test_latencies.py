"""Latencies: the same percentiles as NumPy, in one histogram or merged from the text of many."""

from __future__ import annotations

import numpy as np
import pytest

from ctrlchan.loads.latencies import Latencies
from ctrlchan.loads.result import PERCENTILES, Operation, Result

#: Of a histogram with three significant digits.
PRECISION = 1e-3
VALUES = np.random.default_rng(7).lognormal(mean=-7, sigma=1.5, size=130_000)


def recorded(values: np.ndarray) -> Latencies:
    made = Latencies()
    for one in values.tolist():
        made.record(one)
    return made


def expected(values: np.ndarray) -> list[float]:
    # The nearest value that was seen, as the histogram has it.
    ranks = [round(one / 100 * len(values)) for one in PERCENTILES]
    return [float(one) * 1e3 for one in np.sort(values)[np.array(ranks) - 1]]


def test_percentiles_are_those_of_numpy() -> None:
    latencies = recorded(VALUES)
    assert len(latencies) == len(VALUES)
    assert latencies.milliseconds(PERCENTILES) == pytest.approx(expected(VALUES), rel=PRECISION, abs=2e-3)
    assert latencies.mean_ms == pytest.approx(VALUES.mean() * 1e3, rel=PRECISION)
    assert latencies.max_ms == pytest.approx(VALUES.max() * 1e3, rel=PRECISION)


def test_parts_that_travelled_as_text_merge_into_the_same() -> None:
    # Parts of unequal sizes and ranges: an average of percentiles would be another one.
    parts = np.split(np.sort(VALUES), [100, 40_000, 40_001])
    merged = Latencies.merged(Latencies.decode(recorded(one).encode()) for one in parts)
    whole = recorded(VALUES)
    assert len(merged) == len(whole)
    assert merged.milliseconds(PERCENTILES) == whole.milliseconds(PERCENTILES)
    assert merged.mean_ms == whole.mean_ms
    assert merged.max_ms == pytest.approx(whole.max_ms, rel=PRECISION)


def test_results_of_workers_merge() -> None:
    parts = []
    for number, values in enumerate(np.split(VALUES, 2)):
        one = Operation(recorded(values), count=len(values), items=3, bytes=5, warmup=7, last=1.5 + number)
        one.errors["LATE"] = number
        parts.append(Result.decode(Result({"commit": one}, seconds=2.0).encode()))
    shown = Result.merged(parts).describe()["commit"]
    assert shown["count"] == len(VALUES)
    assert (shown["items"], shown["warmup_items"], shown["errors"]) == (6, 14, {"LATE": 1})
    # The later end of both counts.
    assert shown["seconds"] == 2.5
    assert shown["per_second"] == len(VALUES) / 2.5
    assert shown["latency_ms"]["p99"] == pytest.approx(expected(VALUES)[2], rel=PRECISION)


def test_no_latencies_and_those_out_of_the_range() -> None:
    assert Latencies.decode(Latencies().encode()).milliseconds(PERCENTILES) == [0.0] * len(PERCENTILES)
    out = recorded(np.array([0.0, -1.0, 1e9]))
    assert len(out) == 3
    assert out.milliseconds([50.0]) == [1e-3]
    assert out.max_ms == pytest.approx(3.6e6, rel=PRECISION)
