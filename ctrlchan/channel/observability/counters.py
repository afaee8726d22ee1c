"""Counts outcomes and their times per broker and API, one chunk of outcomes at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ctrlchan.channel.outcome import OutcomeKind
from ctrlchan.errors import ErrorCode
from ctrlchan.journal.rows import Chunk, Rows

__all__ = ["EDGES", "TIMES", "Key", "OutcomeCounters", "quantile"]

#: Upper ends of the buckets in seconds; a last bucket counts the rest. A response on the same rack takes a
#: millisecond, that of a busy broker takes seconds, and 30 s is the socket timeout.
EDGES: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)
_EDGES_NS: Final = np.array([edge * 1e9 for edge in EDGES], dtype=np.int64)
_BUCKETS: Final = len(EDGES) + 1

#: The times that are measured: encoding, from queueing to the first byte of the last attempt, from there to
#: its last byte, from there to the response.
TIMES: Final = ("encode", "queue", "send", "remote")

#: An API key fits: keys are one byte so far.
_API_BITS: Final = 8


class Key(NamedTuple):
    broker_id: int
    api_key: int


class OutcomeCounters:
    """Counters of outcomes by broker and API. Not thread-safe.

    ``rows``: key -> its row in the arrays; their other rows are free. ``requests``, ``bytes``, ``attempts``:
    int64, one for each row; ``bytes`` counts a merged request once, and one with several attempts once.
    ``buckets``: (TIMES, rows, buckets) int64, not cumulative; ``sums``: (TIMES, rows) float64, seconds.
    ``outcomes``: (key, kind) -> count, ``errors``: (key, error) -> count; ``kinds`` counts the outcomes of
    all brokers, removed ones included.
    """

    def __init__(self) -> None:
        self.rows: dict[Key, int] = {}
        self._free: list[int] = []
        self._size = 0
        self.requests = np.zeros(0, dtype=np.int64)
        self.bytes = np.zeros(0, dtype=np.int64)
        self.attempts = np.zeros(0, dtype=np.int64)
        self.buckets = np.zeros((len(TIMES), 0, _BUCKETS), dtype=np.int64)
        self.sums = np.zeros((len(TIMES), 0), dtype=np.float64)
        self.outcomes: Counter[tuple[Key, str]] = Counter()
        self.errors: Counter[tuple[Key, str]] = Counter()
        self.kinds: Counter[str] = Counter()

    def copy(self) -> OutcomeCounters:
        """Return a copy to be read while this one goes on counting."""
        other = OutcomeCounters()
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if hasattr(value, "copy") else value)
        return other

    def add(self, chunk: Chunk) -> None:
        rows = chunk.rows
        packed = (rows["broker"].astype(np.int64) << _API_BITS) | rows["api"]
        groups, group = np.unique(packed, return_inverse=True)
        keys = [Key(number >> _API_BITS, number & ((1 << _API_BITS) - 1)) for number in groups.tolist()]
        at = np.array([self._row_of(key) for key in keys], dtype=np.int64)
        count = len(keys)
        self.requests[at] += np.bincount(group, minlength=count)
        self.bytes[at] += _sum(group, _sent_bytes(rows), count)
        self.attempts[at] += _sum(group, rows["attempts"], count)
        for number, (known, nanoseconds) in enumerate(_times_of(rows)):
            of, spent = group[known], nanoseconds[known]
            bucket = np.searchsorted(_EDGES_NS, spent)
            counts = np.bincount(of * _BUCKETS + bucket, minlength=count * _BUCKETS)
            self.buckets[number][at] += counts.reshape(count, _BUCKETS)
            self.sums[number][at] += np.bincount(of, weights=spent, minlength=count) / 1e9
        self._count_outcomes(chunk, keys, group)

    def _count_outcomes(self, chunk: Chunk, keys: list[Key], group: NDArray[np.int64]) -> None:
        rows, texts = chunk.rows, chunk.texts
        both, counts = np.unique(group * len(texts) + rows["kind"], return_counts=True)
        for number, times in zip(both.tolist(), counts.tolist(), strict=True):
            of, text = divmod(number, len(texts))
            self.outcomes[keys[of], texts[text]] += times
            self.kinds[texts[text]] += times
        if len(texts) > 2 or texts[0] != OutcomeKind.ACKNOWLEDGED.value:
            self._count_errors(rows, keys, group)

    def _count_errors(self, rows: Rows, keys: list[Key], group: NDArray[np.int64]) -> None:
        failed = np.flatnonzero(rows["error_code"])
        codes, code = np.unique(rows["error_code"][failed], return_inverse=True)
        both, counts = np.unique(group[failed] * max(1, len(codes)) + code, return_counts=True)
        for number, times in zip(both.tolist(), counts.tolist(), strict=True):
            of, which = divmod(number, len(codes))
            self.errors[keys[of], ErrorCode.name_of(int(codes[which]))] += times

    def keep(self, broker_ids: Container[int]) -> None:
        """Remove the counters of all brokers but these."""
        for key in [key for key in self.rows if key.broker_id not in broker_ids]:
            row = self.rows.pop(key)
            self._free.append(row)
            for column in (self.requests, self.bytes, self.attempts):
                column[row] = 0
            self.buckets[:, row] = 0
            self.sums[:, row] = 0
        for counter in (self.outcomes, self.errors):
            for pair in [pair for pair in counter if pair[0] not in self.rows]:
                del counter[pair]

    def _row_of(self, key: Key) -> int:
        row = self.rows.get(key)
        if row is None:
            if not self._free:
                self._grow()
            row = self.rows[key] = self._free.pop()
        return row

    def _grow(self) -> None:
        more = max(16, self._size)
        self._free = list(range(self._size, self._size + more))[::-1]
        self._size += more
        self.requests = _longer(self.requests, more, 0)
        self.bytes = _longer(self.bytes, more, 0)
        self.attempts = _longer(self.attempts, more, 0)
        self.buckets = _longer(self.buckets, more, 1)
        self.sums = _longer(self.sums, more, 1)


def _times_of(rows: Rows) -> list[tuple[NDArray[np.bool_], NDArray[np.int64]]]:
    """Return for each of TIMES which rows have it, and the nanoseconds."""
    answered, encoded = rows["response"] != 0, rows["encoded"] != 0
    return [
        (encoded, rows["encoding"]),
        (answered, rows["first_byte"] - rows["enqueued"]),
        (answered, rows["last_byte"] - rows["first_byte"]),
        (answered, rows["response"] - rows["last_byte"]),
    ]


def _sent_bytes(rows: Rows) -> NDArray[np.float64]:
    """Return the bytes that each row adds to the bytes sent: its share of a merged request."""
    share: NDArray[np.float64] = rows["bytes"] / rows["merged"]
    share[rows["attempts"] == 0] = 0
    return share


def _sum(group: NDArray[np.int64], values: NDArray[Any], count: int) -> NDArray[np.int64]:
    # Sums of a chunk are far below 2**53.
    return np.rint(np.bincount(group, weights=values, minlength=count)).astype(np.int64)


def _longer(array: NDArray[Any], more: int, axis: int) -> NDArray[Any]:
    widths = [(0, more if at == axis else 0) for at in range(array.ndim)]
    return np.pad(array, widths)


def quantile(buckets: NDArray[np.int64], share: float, edges: Sequence[float] = EDGES) -> float:
    """Return the seconds below which ``share`` (0 to 1) of a histogram lies, NaN when it is empty.

    ``buckets``: counts, one for each of ``edges`` (their upper ends, seconds) and one for the rest. Values
    are taken as evenly spread within a bucket; those of the last bucket count as the last edge.
    """
    total = int(buckets.sum())
    if total == 0:
        return float("nan")
    cumulative = np.cumsum(buckets)
    bucket = int(np.searchsorted(cumulative, share * total))
    if bucket >= len(edges):
        return edges[-1]
    below = int(cumulative[bucket - 1]) if bucket else 0
    low = edges[bucket - 1] if bucket else 0.0
    inside = int(buckets[bucket])
    return low + (edges[bucket] - low) * ((share * total - below) / inside if inside else 0.0)
