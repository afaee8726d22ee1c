"""The part of ``ClusterState`` that functions over a whole state read.

They take this protocol and not the class, which imports them.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import Brokers, Partitions, Topics
from ctrlchan.state.changes import Changes

__all__ = ["StateView"]


class StateView(Protocol):
    """See ``ClusterState`` for each attribute."""

    cluster_id: str
    controller_id: int
    controller_epoch: int

    @property
    def topics(self) -> Topics: ...
    @property
    def partitions(self) -> Partitions: ...
    @property
    def brokers(self) -> Brokers: ...
    @property
    def shutting_down(self) -> frozenset[int]: ...
    @property
    def deletion_in_progress(self) -> frozenset[str]: ...
    @property
    def online_broker_ids(self) -> npt.NDArray[np.int32]: ...
    @property
    def changes(self) -> Changes: ...
    def topic_name(self, row: int) -> str: ...
    def topic_row(self, name: str | bytes) -> int: ...
    def rows_of_topic(self, topic: str | bytes) -> slice: ...
