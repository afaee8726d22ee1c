"""A request that is too large, as several that are not: between topics, and within one only where it must be.

Sent in order, the parts leave a broker as the whole would have. Every part of an UpdateMetadata tells all
live brokers, every part of a LeaderAndIsr the live leaders of its own rows. A *full* request (type 2, which
only a KRaft controller sends) is never split: what a part does not say would be taken for deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from ctrlchan._codec import ControlResponse, StringColumn, Topics
from ctrlchan.channel.coalescing.bodies import rows_of, shared_body_of_rows
from ctrlchan.channel.outcome import OutcomeKind, Verdict, partition_errors_text

if TYPE_CHECKING:
    from ctrlchan._codec import ControlRequestBody, SharedBody

__all__ = ["split", "worst_of"]

#: AbstractControlRequest.Type.FULL.
_FULL: Final = 2

_SEVERITY: Final = {
    kind: severity
    for severity, kind in enumerate(
        (
            OutcomeKind.ACKNOWLEDGED,
            OutcomeKind.PARTITION_ERRORS,
            OutcomeKind.REFUSED,
            OutcomeKind.TOO_LARGE,
            OutcomeKind.FENCED,
            OutcomeKind.BROKER_GONE,
        )
    )
}


def split(body: ControlRequestBody, limit: int) -> list[SharedBody] | None:
    """Shared bodies of at most ``limit`` bytes each, with whole topics where that goes. None: it cannot be
    done."""
    if getattr(body, "request_type", 0) == _FULL:
        return None
    rows = rows_of(body)
    if rows == 0:
        return None
    # As if rows were equally large; what is exact is found from there.
    guess = max(1, rows * limit // max(1, shared_body_of_rows(body, 0, rows).size))
    shared_bodies: list[SharedBody] = []
    first = 0
    while first < rows:
        last = _reach(body, first, limit, guess)
        if last == first:
            return None
        guess = last - first
        if last < rows:
            last = _topic_boundary(body, first, last)
        shared_bodies.append(shared_body_of_rows(body, first, last))
        first = last
    return shared_bodies


def _reach(body: ControlRequestBody, first: int, limit: int, guess: int) -> int:
    """The most rows from ``first`` on that fit: where they end. ``first``: not even one does."""
    rows = rows_of(body)
    fits, step = first, guess
    last = min(rows, first + step)
    while shared_body_of_rows(body, first, last).size <= limit:
        if last == rows:
            return rows
        fits, step = last, step * 2
        last = min(rows, first + step)
    # Invariant: up to ``fits`` it fits, up to ``last`` it does not.
    while last - fits > 1:
        middle = (fits + last) // 2
        if shared_body_of_rows(body, first, middle).size <= limit:
            fits = middle
        else:
            last = middle
    return fits


def _topic_boundary(body: ControlRequestBody, first: int, last: int) -> int:
    """Where the last whole topic of these rows ends; ``last`` when there is none."""
    starts = body.topic_starts
    start = int(starts[np.searchsorted(starts, last, "right") - 1])
    return start if start > first else last


def worst_of(verdicts: Sequence[Verdict]) -> Verdict:
    """One verdict for the whole: its worst part's, with the partition errors of all parts."""
    worst = max(verdicts, key=lambda verdict: _SEVERITY[verdict.kind])
    responses = [verdict.response for verdict in verdicts if verdict.response is not None]
    if worst.response is None or len(responses) == 1:
        return worst
    joined = _joined(worst.response, responses)
    if worst.kind is OutcomeKind.PARTITION_ERRORS:
        return worst._replace(response=joined, detail=partition_errors_text(joined.partition_error))
    return worst._replace(response=joined)


def _joined(worst: ControlResponse, responses: Sequence[ControlResponse]) -> ControlResponse:
    """All parts' topics and partitions one behind another, under the worst one's error code."""
    names: list[bytes | None] = []
    starts = [np.zeros(1, dtype=np.int64)]
    rows = 0
    for response in responses:
        names += [response.topics.names[i] for i in range(len(response.topics))]
        starts.append(response.topic_starts[1:] + rows)
        rows += len(response.partition)
    return ControlResponse(
        api_key=worst.api_key,
        version=worst.version,
        error_code=worst.error_code,
        topics=Topics(
            StringColumn.from_strings(names), np.concatenate([response.topics.ids for response in responses])
        ),
        topic_starts=np.concatenate(starts),
        partition=np.concatenate([response.partition for response in responses]),
        partition_error=np.concatenate([response.partition_error for response in responses]),
    )
