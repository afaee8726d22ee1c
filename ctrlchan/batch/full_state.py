"""The full state as one UpdateMetadata, made when a broker with a long backlog can take it.

In: a state, read on the channel's thread. Out: what the channel asks a ``FullStateSource`` for.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ctrlchan._codec import update_metadata_body
from ctrlchan.batch.known_metadata import KnownMetadata, missing_metadata
from ctrlchan.batch.selection import Int32
from ctrlchan.channel import FullState
from ctrlchan.channel.endpoints import plaintext_only
from ctrlchan.state import ClusterState
from ctrlchan.state.changes import RemovedPartitions

__all__ = ["StateSource"]


@dataclass(frozen=True)
class StateSource:
    """A ``FullStateSource`` that reads this state. Two sources of one state are equal.

    Holds the state's lock until the channel has encoded the body.
    """

    state: ClusterState

    @contextmanager
    def __call__(
        self, version: int, known: Hashable | None, deletions: Mapping[bytes, Int32]
    ) -> Iterator[FullState]:
        """Raise IllegalStateError for v0 when a broker has no PLAINTEXT endpoint."""
        state = self.state
        with state.lock:
            removed = [RemovedPartitions(*one, np.zeros(len(one[1]), np.int64)) for one in deletions.items()]
            missing, after = missing_metadata(
                state, known if isinstance(known, KnownMetadata) else None, removed
            )
            brokers = plaintext_only(state.live_brokers) if version == 0 else state.live_brokers
            if missing is None:
                nothing = np.zeros(0, dtype=np.int64)
                shared_body = update_metadata_body(version, state.topics, state.partitions, brokers, nothing)
            else:
                shared_body = update_metadata_body(
                    version, missing.topics, missing.partitions, brokers, missing.rows
                )
            yield FullState(shared_body, state.changes.version, after)
