"""Rows of partitions that are added to a state, from an assignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import Partitions
from ctrlchan.errors import InvalidStateError
from ctrlchan.protocol import NO_LEADER
from ctrlchan.state.lists import empty_lists
from ctrlchan.state.liveness import offline_lists
from ctrlchan.state.table import FIXED_COLUMNS, PartitionTable, make_partitions
from ctrlchan.state.values import IntValues, Lists, as_columns, as_lists

__all__ = ["NO_LEADERSHIP", "NewRowValues", "new_rows"]

#: ``leader_epoch`` of a partition whose leadership is not known: UpdateMetadata leaves it out.
NO_LEADERSHIP: Final = -1

_MAX_INT32: Final = 2**31 - 1


class NewRowValues(TypedDict, total=False):
    """Columns of added rows, as for ``ClusterState.update``."""

    leader: IntValues
    leader_epoch: IntValues
    partition_epoch: IntValues
    controller_epoch: IntValues
    recovery_state: IntValues
    isr: Lists
    adding: Lists
    removing: Lists


def new_rows(
    topic_row: int,
    assignment: Mapping[int, Sequence[int]],
    values: NewRowValues,
    online: npt.NDArray[np.int32],
) -> Partitions:
    """Return the rows of one topic, ascending; replicas on brokers that are not ``online`` are offline.

    Raises InvalidStateError for an invalid assignment or value.
    """
    unknown = values.keys() - NewRowValues.__annotations__.keys()
    if unknown:
        raise InvalidStateError(f"no such column of new rows: {', '.join(sorted(unknown))}")
    numbers = _checked_numbers(assignment)
    count = len(numbers)
    replicas = as_lists("replicas", [list(assignment[number]) for number in numbers], count)
    zeros = np.zeros(count, np.int32)
    table = PartitionTable(
        make_partitions(
            {
                **dict.fromkeys(FIXED_COLUMNS, zeros),
                "topic_row": np.full(count, topic_row, np.int32),
                "partition": np.array(numbers, dtype=np.int32),
                "leader": np.full(count, NO_LEADER, np.int32),
            },
            {
                "isr": empty_lists(count),
                "replicas": replicas,
                "offline": offline_lists(replicas, empty_lists(count), online, online),
            },
        )
    )
    table.assign(slice(0, count), *as_columns(values, count))
    return table.columns


def _checked_numbers(assignment: Mapping[int, Sequence[int]]) -> list[int]:
    """Return the partitions of an assignment, ascending."""
    if not assignment:
        raise InvalidStateError("an assignment without partitions")
    numbers = sorted(assignment)
    for number in numbers:
        brokers = assignment[number]
        if not 0 <= number <= _MAX_INT32:
            raise InvalidStateError(f"partition {number} is not in 0 .. {_MAX_INT32}")
        if not len(brokers) or len(set(brokers)) != len(brokers):
            raise InvalidStateError(
                f"partition {number}: replicas {list(brokers)} are empty or name one twice"
            )
    return numbers
