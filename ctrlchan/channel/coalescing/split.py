"""Splits a request that is too large into parts: between topics, and within a topic only if necessary.

Sent in order, the parts leave a broker in the same state as the request. Every part of an UpdateMetadata has
all live brokers; every part of a LeaderAndIsr has the live leaders of its own rows. A *full* request (type 2,
which only a KRaft controller sends) is never split: the broker would delete the partitions missing in a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from ctrlchan._codec import ControlResponse, StringColumn, Topics
from ctrlchan.channel.coalescing.bodies import rows_of, shared_body_of_rows
from ctrlchan.channel.outcome import OutcomeKind, RequestResult, partition_errors_text

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
    """Return shared bodies of at most ``limit`` bytes each, or None if the body cannot be split.

    Topics are kept together where possible.
    """
    if getattr(body, "request_type", 0) == _FULL:
        return None
    rows = rows_of(body)
    if rows == 0:
        return None
    # A first guess, as if all rows had the same size.
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
    """Return the end of the longest range of rows from ``first`` on that fits; ``first`` if none fits."""
    rows = rows_of(body)
    fits, step = first, guess
    last = min(rows, first + step)
    while shared_body_of_rows(body, first, last).size <= limit:
        if last == rows:
            return rows
        fits, step = last, step * 2
        last = min(rows, first + step)
    # Invariant: rows up to ``fits`` fit, rows up to ``last`` do not.
    while last - fits > 1:
        middle = (fits + last) // 2
        if shared_body_of_rows(body, first, middle).size <= limit:
            fits = middle
        else:
            last = middle
    return fits


def _topic_boundary(body: ControlRequestBody, first: int, last: int) -> int:
    """Return the end of the last complete topic in these rows; ``last`` if there is none."""
    starts = body.topic_starts
    start = int(starts[np.searchsorted(starts, last, "right") - 1])
    return start if start > first else last


def worst_of(results: Sequence[RequestResult]) -> RequestResult:
    """Return the result of a split request: its worst part's, with the partition errors of all parts."""
    worst = max(results, key=lambda result: _SEVERITY[result.kind])
    responses = [result.response for result in results if result.response is not None]
    if worst.response is None or len(responses) == 1:
        return worst
    joined = _joined(worst.response, responses)
    if worst.kind is OutcomeKind.PARTITION_ERRORS:
        return worst._replace(response=joined, detail=partition_errors_text(joined.partition_error))
    return worst._replace(response=joined)


def _joined(worst: ControlResponse, responses: Sequence[ControlResponse]) -> ControlResponse:
    """Concatenate the topics and partitions of all parts, with the error code of ``worst``."""
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
