"""Reads the unfinished requests of each broker from the channel files of a journal."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from ctrlchan.journal import read_channels
from ctrlchan.storage import PathLike

__all__ = ["BrokerWait", "RequestKey", "UnfinishedRequests", "read_unfinished"]


class RequestKey(NamedTuple):
    """The identity of a request."""

    channel: str
    broker: int
    enqueue_ns: int


@dataclass(frozen=True)
class BrokerWait:
    """The unfinished requests of one broker."""

    broker: int
    #: May be more than the channel file lists, without those that have ended since.
    unfinished: int
    #: When the oldest of them was queued, microseconds since 1970.
    oldest_at: int | None
    state: str
    attempts: int
    last_error: str
    needs_resync: bool


@dataclass(frozen=True)
class UnfinishedRequests:
    """The content of the channel files.

    ``requests``: key -> when the request was queued, microseconds since 1970. ``rows``: the rows of channels
    that have not been replaced by newer ones.
    """

    requests: dict[RequestKey, int]
    rows: list[dict[str, Any]]

    def waits(self, ended: Collection[RequestKey]) -> list[BrokerWait]:
        """Return one entry for each broker. ``ended``: requests that have ended since."""
        found: dict[int, BrokerWait] = {}
        for row in self.rows:
            keys = [_key(row, one) for one in row["requests"]]
            open_keys = [key for key in keys if key not in ended]
            over = len(keys) - len(open_keys)
            times = [self.requests[key] for key in open_keys]
            wait = BrokerWait(
                broker=row["broker"],
                # Requests that are not listed were queued later than the listed ones.
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


def read_unfinished(journal: PathLike) -> UnfinishedRequests:
    """Read the channel files; of several channels from a controller to a broker the newest counts.

    So the file of a killed channel counts until its successor connects. Raises JournalError.
    """
    newest: dict[tuple[int, int], dict[str, Any]] = {}
    for row in read_channels(journal).to_pylist():
        ends = (row["controller_id"], row["broker"])
        other = newest.get(ends)
        if other is None or row["since_at"] > other["since_at"]:
            newest[ends] = row
    rows = [row for row in newest.values() if not row["closed"]]
    requests = {
        _key(row, one): round(one["enqueue_at"].timestamp() * 1e6) for row in rows for one in row["requests"]
    }
    return UnfinishedRequests(requests, rows)


def _key(row: dict[str, Any], request: dict[str, Any]) -> RequestKey:
    return RequestKey(row["channel"], row["broker"], request["enqueue_ns"])
