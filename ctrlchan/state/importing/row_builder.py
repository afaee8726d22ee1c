"""Single partitions, in any order -> the contents of a state."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn, StringColumn, Topics
from ctrlchan.errors import InvalidStateError
from ctrlchan.protocol import NO_LEADER
from ctrlchan.state.brokers import Broker, brokers_from
from ctrlchan.state.lists import empty_lists, take
from ctrlchan.state.liveness import offline_lists, online_ids
from ctrlchan.state.new_rows import NO_LEADERSHIP
from ctrlchan.state.parts import StateParts
from ctrlchan.state.rows import sort_keys
from ctrlchan.state.table import FIXED_COLUMNS, make_partitions
from ctrlchan.state.values import HIGHEST, LOWEST
from ctrlchan.topic_names import ZERO_ID

__all__ = ["RowBuilder"]

Int32 = npt.NDArray[np.int32]

_MAX_INT32 = 2**31 - 1


class RowBuilder:
    """Collects rows in any order as numbers, without a Python object for each. Does not check topic names."""

    def __init__(self) -> None:
        self._topics: dict[str, int] = {}
        self._fixed = {name: array("i") for name in FIXED_COLUMNS}
        self._lists = {name: _Lists() for name in ("isr", "replicas", "adding", "removing")}

    def __len__(self) -> int:
        return len(self._fixed["partition"])

    def add(
        self,
        topic: str,
        partition: int,
        replicas: Sequence[int],
        *,
        leader: int = NO_LEADER,
        isr: Sequence[int] = (),
        leader_epoch: int = NO_LEADERSHIP,
        partition_epoch: int = -1,
        controller_epoch: int = -1,
        recovery_state: int = 0,
        adding: Sequence[int] = (),
        removing: Sequence[int] = (),
    ) -> None:
        """Add a partition, once. Without the keyword arguments its leadership is not known.

        Raises InvalidStateError, naming the column, for a value outside the column's range.
        """
        fixed = {
            "partition": partition,
            "controller_epoch": controller_epoch,
            "leader": leader,
            "leader_epoch": leader_epoch,
            "partition_epoch": partition_epoch,
            "recovery_state": recovery_state,
        }
        for name, value in fixed.items():
            lowest, highest = LOWEST[name], HIGHEST.get(name, _MAX_INT32)
            if not lowest <= value <= highest:
                raise InvalidStateError(f"{name} {value} is not in {lowest} .. {highest}")
        lists = {"isr": isr, "replicas": replicas, "adding": adding, "removing": removing}
        for name, brokers in lists.items():
            for broker in brokers:
                if not 0 <= broker <= _MAX_INT32:
                    raise InvalidStateError(f"{name} has {broker}, which is no broker id")
        self._fixed["topic_row"].append(self._topics.setdefault(topic, len(self._topics)))
        for name, value in fixed.items():
            self._fixed[name].append(value)
        for name, brokers in lists.items():
            self._lists[name].append(brokers)

    def parts(
        self,
        topic_ids: Mapping[str, bytes],
        brokers: Iterable[Broker],
        *,
        deleting: Iterable[str] = (),
        cluster_id: str = "",
        controller_id: int = -1,
        controller_epoch: int = 0,
    ) -> StateParts:
        """Return a state's contents: topics in the order of their names, partitions ascending.

        Replicas on brokers that are not live are offline. Topics without partitions are left out, also of
        those that are queued for deletion.
        """
        names = sorted(self._topics, key=str.encode)
        rank = np.empty(len(names), np.int32)
        rank[[self._topics[name] for name in names]] = np.arange(len(names), dtype=np.int32)
        fixed = {name: _numbers(values) for name, values in self._fixed.items()}
        fixed["topic_row"] = rank[fixed["topic_row"]]
        order = np.argsort(sort_keys(fixed["topic_row"], fixed["partition"]))
        fixed = {name: values[order] for name, values in fixed.items()}
        lists = {name: take(column.column(), order) for name, column in self._lists.items()}
        columns = brokers_from(brokers)
        online = online_ids(columns, frozenset())
        lists["offline"] = offline_lists(lists["replicas"], empty_lists(len(self)), online, online)
        ids = np.frombuffer(b"".join(topic_ids.get(name, ZERO_ID) for name in names), np.uint8)
        return StateParts(
            topics=Topics(StringColumn.from_strings(names), ids.reshape(-1, len(ZERO_ID))),
            partitions=make_partitions(fixed, lists),
            brokers=columns,
            cluster_id=cluster_id,
            controller_id=controller_id,
            controller_epoch=controller_epoch,
            deleting=self._topics.keys() & set(deleting),
        )


class _Lists:
    def __init__(self) -> None:
        self._lengths = array("i")
        self._values = array("i")

    def append(self, brokers: Sequence[int]) -> None:
        self._lengths.append(len(brokers))
        self._values.extend(brokers)

    def column(self) -> ListColumn:
        lengths = _numbers(self._lengths)
        starts = np.cumsum(lengths, dtype=np.int64) - lengths
        return ListColumn(starts.astype(np.int32), lengths, _numbers(self._values))


def _numbers(values: array[int]) -> Int32:
    """Return a copy: an ``array`` that NumPy looks into cannot grow any more."""
    return np.array(values, dtype=np.int32)
