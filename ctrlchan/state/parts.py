"""The contents of a state, as a snapshot stores them and an importer makes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ctrlchan._codec import Brokers, Partitions, Topics
from ctrlchan.state.changes import Changes

__all__ = ["StateParts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateParts:
    """What ``ClusterState.from_parts`` puts together. ``changes``: None to count from now on."""

    topics: Topics
    partitions: Partitions
    brokers: Brokers
    cluster_id: str = ""
    controller_id: int = -1
    controller_epoch: int = 0
    shutting_down: Iterable[int] = ()
    #: Names of topics that are queued for deletion; names of other topics are not allowed.
    deleting: Iterable[str] = ()
    deletion_in_progress: Iterable[str] = ()
    changes: Changes | None = None
