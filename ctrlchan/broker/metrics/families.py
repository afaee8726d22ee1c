"""What the areas share: families of one value, and labels."""

from __future__ import annotations

from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

__all__ = ["PARTITION", "counter", "gauge"]

#: The labels of a partition.
PARTITION: Final = ("topic", "partition")


def gauge(name: str, text: str, value: float) -> Metric:
    """Return a value that rises and falls."""
    return GaugeMetricFamily(name, text, value=value)


def counter(name: str, text: str, value: float) -> Metric:
    """Return a number that only rises."""
    return CounterMetricFamily(name, text, value=value)
