"""Writes journals with planted faults, as a channel writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ctrlchan.journal.channels import write_channel
from ctrlchan.journal.rows import BrokerStatus, ChannelStatus, Unfinished
from ctrlchan.state.storage.schemas import JOURNAL

__all__ = ["STATE", "Planted", "unfinished"]

STATE: Final = "state-1"
_START: Final = int(datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()) * 10**6
_SECOND: Final = 10**9


@dataclass
class Planted:
    """Collects the rows of a journal, each a second after the one before, and writes it."""

    path: Path
    channel: str = "channel-1"
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, broker: int, version: int, *, outcome: str = "acknowledged", **values: Any) -> None:
        """Add an outcome; ``names`` is short for ``partitions`` of topic ``orders``."""
        if "names" in values:
            values["partitions"] = [f"orders-{number}" for number in values.pop("names")]
        number = len(self.rows)
        enqueued = (number + 1) * _SECOND
        row: dict[str, Any] = {
            "channel": self.channel,
            "sequence": number,
            "host": "host",
            "controller_id": 0,
            "controller_epoch": 7,
            "broker": broker,
            "broker_epoch": 1,
            "generation": broker,
            "api": 6,
            "version": 8,
            "state_version": version,
            "state_id": STATE,
            "bytes": 100,
            "rows": 1,
            "attempts": 1,
            "merged": 1,
            "outcome": outcome,
            "error_code": 0,
            "detail": "",
            "enqueue_ns": enqueued,
            "first_byte_ns": enqueued + 10**6,
            "last_byte_ns": enqueued + 2 * 10**6,
            "response_ns": enqueued + 5 * 10**6,
            "end_ns": enqueued + 6 * 10**6,
        }
        self.rows.append(row | values)

    def full(self, *brokers: int, version: int = 0, **values: Any) -> None:
        """Add an outcome of a request with all partitions for each broker."""
        for broker in brokers:
            self.add(broker, version, from_version=-1, **values)

    def write(
        self,
        *,
        closed: bool = True,
        outcomes: int | None = None,
        waiting: Mapping[int, tuple[Unfinished, ...]] | None = None,
        generations: dict[int, tuple[int, int]] | None = None,
    ) -> Path:
        """Write the journal and return its folder.

        ``waiting``: broker -> unfinished requests; ``generations``: broker -> (slot, epoch) of the current
        generation; by default that of its last row.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        for row in self.rows:
            for name in ("enqueue", "first_byte", "last_byte", "response", "end"):
                at = row[f"{name}_ns"]
                row[f"{name}_at"] = None if at is None else at // 1_000 + _START
        table = pa.Table.from_pylist(self.rows, schema=JOURNAL)
        pq.write_table(table, self.path / f"20261121T120000.000000Z-{self.channel}.parquet")
        current = {
            row["broker"]: (row["generation"] or row["broker"], row["broker_epoch"]) for row in self.rows
        }
        current |= generations or {}
        statuses = []
        for broker, (slot, epoch) in sorted(current.items()):
            requests = (waiting or {}).get(broker, ())
            size = sum(one.bytes for one in requests)
            error = "connecting failed (Connection refused)" if requests else ""
            statuses.append(
                BrokerStatus(
                    broker,
                    epoch,
                    slot,
                    10**6,
                    "backing off",
                    3 if requests else 0,
                    error,
                    False,
                    len(requests),
                    size,
                    requests,
                )
            )
        count = len(self.rows) if outcomes is None else outcomes
        status = ChannelStatus(self.channel, 0, closed, count, tuple(statuses))
        now = (len(self.rows) + 2) * _SECOND
        write_channel(self.path, status, "host", now, _START * 1_000)
        return self.path


def unfinished(
    version: int, names: list[int] | None = None, *, from_version: int | None = None
) -> Unfinished:
    """Return an UpdateMetadata that waits since second 50."""
    named = None if names is None else ",".join(f"orders-{number}" for number in names)
    return Unfinished(50 * _SECOND, 6, 8, 7, version, STATE, from_version, named, 1, 100, True)
