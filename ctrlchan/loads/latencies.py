"""Latencies: a histogram of HdrHistogram that takes many values at once and travels as text."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Final, Self

import numpy as np
from hdrh.histogram import HdrHistogram

__all__ = ["Latencies"]

#: Microseconds: from one to an hour, three significant digits.
_LOWEST: Final = 1
_HIGHEST: Final = 3_600_000_000
_DIGITS: Final = 3
#: Values that are collected before the histogram counts them: a call of its own for each costs 2 µs.
_COLLECTED: Final = 50_000
_MICROSECONDS: Final = 1e6
_MILLISECONDS: Final = 1e3


class Latencies:
    """Times of operations, in seconds. Values above an hour count as an hour. Not thread-safe."""

    def __init__(self) -> None:
        self._histogram: Any = HdrHistogram(_LOWEST, _HIGHEST, _DIGITS)
        self._collected = array("d")

    def record(self, seconds: float) -> None:
        """Count one latency."""
        self._collected.append(seconds)
        if len(self._collected) >= _COLLECTED:
            self._count_collected()

    def __len__(self) -> int:
        """Return how many latencies there are."""
        self._count_collected()
        return int(self._histogram.total_count)

    def add(self, other: Latencies) -> None:
        """Count the latencies of another one, too."""
        self._count_collected()
        other._count_collected()
        if other._histogram.total_count:
            self._histogram.add(other._histogram)

    def encode(self) -> str:
        """Return HdrHistogram's compressed form (V2) as base64."""
        self._count_collected()
        return bytes(self._histogram.encode()).decode()

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return what ``encode`` has made. Minimum and maximum are those of their counters' ranges."""
        made = cls()
        made._histogram.decode_and_add(text.encode())
        return made

    @classmethod
    def merged(cls, parts: Iterable[Self]) -> Self:
        made = cls()
        for one in parts:
            made.add(one)
        return made

    def milliseconds(self, percentiles: Sequence[float]) -> list[float]:
        """Return the latency at each percentile, in milliseconds; zeros if there are none."""
        self._count_collected()
        found = self._histogram.get_percentile_to_value_dict(list(percentiles))
        return [found.get(one, 0) / _MILLISECONDS for one in percentiles]

    @property
    def mean_ms(self) -> float:
        self._count_collected()
        return float(self._histogram.get_mean_value()) / _MILLISECONDS

    @property
    def max_ms(self) -> float:
        self._count_collected()
        return float(self._histogram.get_max_value()) / _MILLISECONDS

    def _count_collected(self) -> None:
        if not self._collected:
            return
        seconds = np.frombuffer(self._collected, dtype=np.float64)
        values = np.clip(np.rint(seconds * _MICROSECONDS), _LOWEST, _HIGHEST).astype(np.int64)
        for value, count in zip(
            *(one.tolist() for one in np.unique(values, return_counts=True)), strict=True
        ):
            self._histogram.record_value(value, count)
        del seconds
        self._collected = array("d")
