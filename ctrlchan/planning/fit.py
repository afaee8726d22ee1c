"""Finds costs in measured times: the numbers, none of them negative, that explain the times best."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

__all__ = ["fit"]


def fit(amounts: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    """Return the cost of each column of ``amounts``, so that their sums come near to ``seconds``.

    One row for each measured time. A time of a second and one of a millisecond count the same, because the
    relative errors are made small. Few columns: each choice of columns that may be above 0 is tried.
    """
    times = np.asarray(seconds, dtype=float)
    relative = np.asarray(amounts, dtype=float) / times[:, None]
    columns = relative.shape[1]
    best, least = np.zeros(columns), float("inf")
    for count in range(1, columns + 1):
        for chosen in combinations(range(columns), count):
            part = relative[:, chosen]
            # Columns of very different sizes: bytes and partitions.
            scale = np.maximum(np.abs(part).max(axis=0), np.finfo(float).tiny)
            found = np.linalg.lstsq(part / scale, np.ones(len(times)), rcond=None)[0] / scale
            error = float(((part @ found - 1) ** 2).sum())
            if (found >= 0).all() and error < least:
                best, least = np.zeros(columns), error
                best[list(chosen)] = found
    return [float(one) for one in best]
