"""The table of replica states equals a dict with the same changes."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ctrlchan.controller.machines.replica_table import ReplicaTable, replica_keys
from ctrlchan.controller.machines.states import ReplicaState

REPLICAS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4) | st.just(2**31 - 1)), max_size=8)
STATES = st.sampled_from([state for state in ReplicaState if state is not ReplicaState.NON_EXISTENT])


def keys(replicas: list[tuple[int, int]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    pairs = np.array(replicas, dtype=np.int32).reshape(-1, 2)
    return replica_keys(pairs[:, 0], pairs[:, 1])


class TableMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.table = ReplicaTable()
        self.states: dict[tuple[int, int], ReplicaState] = {}

    @rule(replicas=REPLICAS, state=STATES)
    def put(self, replicas: list[tuple[int, int]], state: ReplicaState) -> None:
        self.table.put(keys(replicas), state)
        self.states.update(dict.fromkeys(replicas, state))

    @rule(states=st.dictionaries(st.tuples(st.integers(0, 5), st.integers(0, 4)), STATES))
    def put_each(self, states: dict[tuple[int, int], ReplicaState]) -> None:
        self.table.put(keys(list(states)), np.array(list(states.values()), dtype=np.int8))
        self.states.update(states)

    @rule(replicas=REPLICAS)
    def remove(self, replicas: list[tuple[int, int]]) -> None:
        self.table.remove(keys(replicas))
        for replica in replicas:
            self.states.pop(replica, None)

    @rule(ids=st.lists(st.integers(0, 5)))
    def remove_partitions(self, ids: list[int]) -> None:
        self.table.remove_partitions(np.array(ids, dtype=np.int32))
        self.states = {replica: state for replica, state in self.states.items() if replica[0] not in ids}

    @rule(replicas=REPLICAS)
    def get(self, replicas: list[tuple[int, int]]) -> None:
        expected = [self.states.get(replica, ReplicaState.NON_EXISTENT) for replica in replicas]
        assert self.table.get(keys(replicas)).tolist() == expected

    @invariant()
    def equals_the_dict(self) -> None:
        table = self.table
        replicas = zip(table.partition_ids.tolist(), table.brokers.tolist(), strict=True)
        found = list(zip(replicas, table.states.tolist(), strict=True))
        assert found == sorted(self.states.items())
        assert len(table) == len(self.states)


TestTableMachine = TableMachine.TestCase
TestTableMachine.settings = settings(max_examples=50, deadline=None)
