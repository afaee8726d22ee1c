"""Requests that brokers have not answered, as the channels of a journal show them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ctrlchan.journal import read_channels

__all__ = ["BrokerWait", "RequestKey", "Shown", "shown_by"]


class RequestKey(NamedTuple):
    """What tells a request from all others."""

    channel: str
    broker: int
    enqueue_ns: int


@dataclass(frozen=True)
class BrokerWait:
    """What one broker is owed."""

    broker: int
    #: More than are known one by one; those that have ended since are not among them.
    unfinished: int
    #: Of the oldest of them, microseconds since 1970.
    oldest_at: int | None
    state: str
    attempts: int
    last_error: str
    needs_resync: bool


@dataclass(frozen=True)
class Shown:
    """What the channel files show: ``requests`` by key with the time they were queued (microseconds), and the
    rows of those channels that count."""

    requests: dict[RequestKey, int]
    rows: list[dict[str, Any]]

    def waits(self, ended: Collection[RequestKey]) -> list[BrokerWait]:
        """By broker. ``ended``: requests that have ended since they were shown."""
        found: dict[int, BrokerWait] = {}
        for row in self.rows:
            keys = [_key(row, one) for one in row["requests"]]
            open_keys = [key for key in keys if key not in ended]
            over = len(keys) - len(open_keys)
            times = [self.requests[key] for key in open_keys]
            wait = BrokerWait(
                broker=row["broker"],
                # Those that are not shown one by one are behind the shown: while one of these waits, they do.
                unfinished=max(row["unfinished"] - over, len(open_keys)) if open_keys else 0,
                oldest_at=min(times, default=None),
                state=row["state"],
                # Attempts and error are those of the request at the head.
                attempts=row["attempts"] if keys and keys[0] not in ended else 0,
                last_error=row["last_error"] if keys and keys[0] not in ended else "",
                needs_resync=row["needs_resync"],
            )
            before = found.get(wait.broker)
            if before is None or (wait.oldest_at or 2**63) < (before.oldest_at or 2**63):
                found[wait.broker] = wait
        return [found[broker] for broker in sorted(found)]


def shown_by(journal: str | Path) -> Shown:
    """What counts is the newest channel that a controller has to a broker: one that was killed goes on
    showing what it left undone, until its successor connects. Raises JournalError for a broken file."""
    newest: dict[tuple[int, int], dict[str, Any]] = {}
    for row in read_channels(journal).to_pylist():
        whose = (row["controller_id"], row["broker"])
        other = newest.get(whose)
        if other is None or row["since_at"] > other["since_at"]:
            newest[whose] = row
    rows = [row for row in newest.values() if not row["closed"]]
    requests = {
        _key(row, one): round(one["enqueue_at"].timestamp() * 1e6) for row in rows for one in row["requests"]
    }
    return Shown(requests, rows)


def _key(row: dict[str, Any], request: dict[str, Any]) -> RequestKey:
    return RequestKey(row["channel"], row["broker"], request["enqueue_ns"])
