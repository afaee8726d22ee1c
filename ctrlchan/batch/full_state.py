"""The whole state as one UpdateMetadata, made when a broker that was away for long can take it.

In: a state, on another thread than the one that changes it. Out: what the channel asks a ``FullStateSource``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ctrlchan._codec import update_metadata_body
from ctrlchan.batch.differences import Told, lack_of
from ctrlchan.batch.endpoints import plaintext_only
from ctrlchan.batch.selection import Int32
from ctrlchan.channel import FullState
from ctrlchan.state import ClusterState
from ctrlchan.state.changes import Gone

__all__ = ["StateSource"]


@dataclass(frozen=True)
class StateSource:
    """A ``FullStateSource``: what there is to be told of this state. Two of one state are equal.

    Holds the state's lock until the channel has written what it was given.
    """

    state: ClusterState

    @contextmanager
    def __call__(
        self, version: int, known: Hashable | None, deletions: Mapping[bytes, Int32]
    ) -> Iterator[FullState]:
        """Raises IllegalStateError for v0 when a broker has no PLAINTEXT endpoint."""
        state = self.state
        with state.lock:
            gone = [Gone(*one, np.zeros(len(one[1]), np.int64)) for one in deletions.items()]
            lack, after = lack_of(state, known if isinstance(known, Told) else None, gone)
            brokers = plaintext_only(state.brokers) if version == 0 else state.brokers
            if lack is None:
                nothing = np.zeros(0, dtype=np.int64)
                shared_body = update_metadata_body(version, state.topics, state.partitions, brokers, nothing)
            else:
                shared_body = update_metadata_body(version, lack.topics, lack.partitions, brokers, lack.rows)
            yield FullState(shared_body, state.changes.version, after)
