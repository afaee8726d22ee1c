"""Writes the nodes of topics from the state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ctrlchan.controller.core import ControllerCore
from ctrlchan.state.lists import take

__all__ = ["write_topic_nodes"]

Int32: TypeAlias = npt.NDArray[np.int32]


def write_topic_nodes(core: ControllerCore, names: Sequence[bytes]) -> Int32:
    """Write ids and assignments of these topics; return a ``ResultCode`` for each.

    ``names``: in the order of the state, as ``ControllerContext.names_of`` returns them. Raises
    ControllerMovedError, ZooKeeperError. Source: ``KafkaZkClient.setTopicAssignmentRaw``.
    """
    columns, topics = core.state.partitions, core.state.topics
    assert columns.adding is not None
    assert columns.removing is not None
    rows = core.context.rows_of_topics(names)
    topic_rows = np.array([core.state.topic_row(name) for name in names], np.int64)
    errors: Int32 = core.nodes.write_topic_assignments(
        names,
        topics.ids[topic_rows],
        np.searchsorted(topic_rows, columns.topic_row[rows]).astype(np.int32),
        columns.partition[rows],
        take(columns.replicas, rows),
        take(columns.adding, rows),
        take(columns.removing, rows),
    )
    return errors
