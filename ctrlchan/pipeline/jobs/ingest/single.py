"""Entries about brokers and the cluster, in the driver: there are thousands at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ctrlchan.pipeline.jobs.ingest.entries import About
from ctrlchan.pipeline.jobs.ingest.snapshots import KIND as SNAPSHOT
from ctrlchan.state import Broker

__all__ = ["SINGLE_COLUMNS", "SingleEntries", "broker_row"]

SINGLE_COLUMNS: Final = ("kind", "file", "about", "key", "broker", "cluster", "reasons")
_FACTS: Final = ("cluster_id", "controller_id", "controller_epoch")


@dataclass(frozen=True)
class SingleEntries:
    """The validated entries, as dicts of ``SINGLE_COLUMNS``."""

    rows: Sequence[dict[str, Any]]

    def brokers(self) -> list[dict[str, Any]]:
        """Return the brokers that are described, as rows of a snapshot."""
        by_key: dict[str, dict[str, Any]] = {}
        for row in self._taken(About.BROKER):
            by_key.setdefault(row["key"], row["broker"])
        return list(by_key.values())

    def cluster_facts(self) -> list[dict[str, Any]]:
        """Return the facts of each snapshot, and the facts of each other kind of input together."""
        found: dict[tuple[str, str | None], dict[str, Any]] = {}
        for row in self._taken(About.CLUSTER):
            of = row["file"] if row["kind"] == SNAPSHOT else None
            facts = found.setdefault((row["kind"], of), dict.fromkeys(_FACTS))
            for name, value in row["cluster"].items():
                if value is not None and (facts[name] is None or value > facts[name]):
                    facts[name] = value
        return list(found.values())

    def controller_epoch(self) -> int | None:
        """Return the highest epoch, or None."""
        epochs = (facts["controller_epoch"] for facts in self.cluster_facts())
        return max((epoch for epoch in epochs if epoch is not None), default=None)

    def _taken(self, about: str) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["about"] == about and not row["reasons"]]


def broker_row(broker: Broker) -> dict[str, Any]:
    """Return a broker as a row of a snapshot."""
    return {
        "id": broker.id,
        "epoch": broker.epoch,
        "rack": broker.rack,
        "endpoints": [
            {
                "listener": one.listener,
                "security_protocol": one.security_protocol.name,
                "host": one.host,
                "port": one.port,
            }
            for one in broker.endpoints
        ],
    }
