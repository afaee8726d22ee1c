"""After any sequence of changes a state equals a plain dict with the same changes."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ctrlchan._codec import ListColumn
from ctrlchan.state import Broker, ClusterState
from tests.unit.state.helpers import Rows, assert_packed_alike, default_row, message, rows_of

NAMES = st.sampled_from(["a", "b", "c-long", "d", "e"])
NUMBERS = st.integers(0, 6)
BROKER_IDS = st.integers(0, 5)
LISTS = st.lists(BROKER_IDS, max_size=4)
REPLICAS = st.lists(BROKER_IDS, min_size=1, max_size=4, unique=True)
ASSIGNMENTS = st.dictionaries(NUMBERS, REPLICAS, min_size=1, max_size=4)
INTS = st.integers(-1, 9)
WIRE_ROWS = st.fixed_dictionaries(
    {
        **dict.fromkeys(("controller_epoch", "leader", "leader_epoch", "partition_epoch"), INTS),
        "recovery_state": st.integers(0, 1),
        **dict.fromkeys(("isr", "replicas", "adding", "removing", "offline"), LISTS),
    }
)
WIRE_TOPICS = st.lists(
    st.tuples(
        NAMES,
        st.sampled_from([bytes(16), b"1" * 16, b"2" * 16]),
        st.dictionaries(NUMBERS, WIRE_ROWS, max_size=4),
    ),
    max_size=4,
)
WireTopics: TypeAlias = list[tuple[str, bytes, dict[int, dict[str, Any]]]]
BROKERS = st.lists(st.builds(Broker, BROKER_IDS, st.integers(0, 2)), unique_by=lambda broker: broker.id)


class StateMachine(RuleBasedStateMachine):
    """Compares a state with its model, ``self.rows`` and ``self.ids``."""

    @initialize(brokers=BROKERS)
    def begin(self, brokers: list[Broker]) -> None:
        self.state = ClusterState.empty()
        self.rows: Rows = {}
        self.ids: dict[str, bytes] = {}
        self.brokers: dict[int, int] = {}
        self.shutting_down: set[int] = set()
        # A side column that numbers rows: each row keeps the number that it was added with.
        self.next_number = 0
        self.numbers = self.state.attach_column(self.number_rows)
        self.numbered: dict[tuple[str, int], int] = {}
        self.set_brokers(brokers)

    def number_rows(self, count: int) -> npt.NDArray[np.int32]:
        first, self.next_number = self.next_number, self.next_number + count
        return np.arange(first, self.next_number, dtype=np.int32)

    # -- what is online

    def online(self) -> set[int]:
        return self.brokers.keys() - self.shutting_down

    def follow(self, trusted: set[int]) -> None:
        online = self.online()
        for row in self.rows.values():
            failed = {broker for broker in row["offline"] if broker in trusted}
            row["offline"] = [
                broker for broker in row["replicas"] if broker not in online or broker in failed
            ]

    def change_brokers(self, brokers: dict[int, int], shutting_down: set[int]) -> None:
        before, epochs = self.online(), self.brokers
        self.brokers, self.shutting_down = brokers, shutting_down & brokers.keys()
        trusted = {broker for broker in before if brokers.get(broker) == epochs[broker]}
        # Offline replicas are computed again only when the online brokers have changed.
        if trusted != before or self.online() != before:
            self.follow(trusted)

    @rule(brokers=BROKERS)
    def set_brokers(self, brokers: list[Broker]) -> None:
        self.state.set_brokers(brokers)
        self.change_brokers({broker.id: broker.epoch for broker in brokers}, self.shutting_down)

    @rule(brokers=BROKERS)
    def add_brokers(self, brokers: list[Broker]) -> None:
        self.state.add_brokers(brokers)
        self.change_brokers(
            self.brokers | {broker.id: broker.epoch for broker in brokers}, self.shutting_down
        )

    @rule(data=st.data())
    def remove_brokers(self, data: st.DataObject) -> None:
        gone = data.draw(st.sets(st.sampled_from(sorted(self.brokers))) if self.brokers else st.just(set()))
        self.state.remove_brokers(gone)
        stay = {broker: epoch for broker, epoch in self.brokers.items() if broker not in gone}
        self.change_brokers(stay, self.shutting_down)

    @rule(data=st.data())
    def set_shutting_down(self, data: st.DataObject) -> None:
        ids = data.draw(st.sets(st.sampled_from(sorted(self.brokers))) if self.brokers else st.just(set()))
        self.state.set_shutting_down(ids)
        self.change_brokers(self.brokers, set(ids))

    # -- partitions

    @rule(name=NAMES, assignment=ASSIGNMENTS, leader=INTS, isr=LISTS)
    def add(self, name: str, assignment: dict[int, list[int]], leader: int, isr: list[int]) -> None:
        """Add a topic, or partitions to an existing one."""
        if name not in self.ids:
            self.state.add_topic(name, assignment, leader=leader, isr=isr)
            self.ids[name] = bytes(16)
        else:
            assignment = {number: r for number, r in assignment.items() if (name, number) not in self.rows}
            if not assignment:
                return
            self.state.add_partitions(name, assignment, leader=leader, isr=isr)
        for number, replicas in assignment.items():
            offline = [broker for broker in replicas if broker not in self.online()]
            self.rows[name, number] = default_row(replicas=replicas, leader=leader, isr=isr, offline=offline)

    @rule(data=st.data())
    def remove_topics(self, data: st.DataObject) -> None:
        names = data.draw(
            st.sets(st.sampled_from(sorted(self.ids)), max_size=2) if self.ids else st.just(set())
        )
        self.state.remove_topics(names)
        self.rows = {key: row for key, row in self.rows.items() if key[0] not in names}
        self.ids = {name: topic_id for name, topic_id in self.ids.items() if name not in names}

    @rule(data=st.data())
    def remove_rows(self, data: st.DataObject) -> None:
        rows = self.some_rows(data)
        keys = list(rows_of(self.state))
        self.state.remove_rows(rows)
        gone = {keys[row] for row in rows.tolist()}
        self.rows = {key: row for key, row in self.rows.items() if key not in gone}
        left = {name for name, _ in self.rows}
        emptied = {name for name, _ in gone} - left
        self.ids = {name: topic_id for name, topic_id in self.ids.items() if name not in emptied}

    def some_rows(self, data: st.DataObject) -> Any:
        count = len(self.rows)
        return np.array(data.draw(st.lists(st.integers(0, count - 1)) if count else st.just([])), np.int64)

    @rule(data=st.data(), scalar=st.booleans(), whole=st.booleans())
    def update(self, data: st.DataObject, scalar: bool, whole: bool) -> None:
        keys = list(rows_of(self.state))
        rows = np.arange(len(keys)) if whole else self.some_rows(data)
        count = len(rows)
        values: dict[str, Any] = {}
        for name in data.draw(st.sets(st.sampled_from(["leader", "leader_epoch", "partition_epoch"]))):
            values[name] = data.draw(INTS if scalar else st.lists(INTS, min_size=count, max_size=count))
        for name in data.draw(st.sets(st.sampled_from(["isr", "replicas", "adding", "removing", "offline"]))):
            values[name] = data.draw(LISTS if scalar else st.lists(LISTS, min_size=count, max_size=count))
        given: dict[str, Any] = {
            name: ListColumn.from_lists(value) if name[0] in "irao" and not scalar else value
            for name, value in values.items()
        }
        self.state.update("all" if whole else rows, **given)
        before = {row: self.rows[keys[row]]["offline"] for row in rows.tolist()}
        for i, row in enumerate(rows.tolist()):
            target = self.rows[keys[row]]
            target.update({name: value if scalar else value[i] for name, value in values.items()})
        if "replicas" in values and "offline" not in values:
            for row in rows.tolist():
                target, online = self.rows[keys[row]], self.online()
                target["offline"] = [b for b in target["replicas"] if b not in online or b in before[row]]

    @rule(
        topics=WIRE_TOPICS,
        columns=st.none()
        | st.sets(st.sampled_from(["leader", "leader_epoch", "isr", "replicas", "offline"])),
    )
    def upsert(self, topics: WireTopics, columns: set[str] | None) -> None:
        self.do_upsert(topics, columns)

    @rule(leader=INTS, isr=LISTS)
    def upsert_every_row(self, leader: int, isr: list[int]) -> None:
        """Upsert a request with all rows of the state, as a full UpdateMetadata has."""
        topics: dict[str, dict[int, dict[str, Any]]] = {
            name: {} for name in self.state.topics.names.to_list() if name
        }
        for (name, number), row in rows_of(self.state).items():
            topics[name][number] = {**row, "leader": leader, "isr": isr}
        self.do_upsert([(name, bytes(16), rows) for name, rows in topics.items()], None)

    def do_upsert(self, topics: WireTopics, columns: set[str] | None) -> None:
        wire = message(*topics)
        rows = self.state.upsert(*wire) if columns is None else self.state.upsert(*wire, columns=columns)
        keys_of_request = []
        here = set(self.rows)
        for name, topic_id, partitions in topics:
            self.ids[name] = topic_id if any(topic_id) else self.ids.get(name, topic_id)
            for number, values in partitions.items():
                keys_of_request.append((name, number))
                if columns is None or (name, number) not in here:
                    self.rows[name, number] = dict(values)
                else:
                    self.rows[name, number].update({column: values[column] for column in columns})
        keys = list(rows_of(self.state))
        assert [keys[row] for row in rows.tolist()] == keys_of_request

    # -- equal

    @invariant()
    def equals_the_model(self) -> None:
        state = self.state
        assert rows_of(state) == self.rows
        names = state.topics.names.to_list()
        ids = {str(name): bytes(topic_id) for name, topic_id in zip(names, state.topics.ids, strict=True)}
        assert ids == self.ids
        assert (
            dict(zip(state.brokers.ids.tolist(), state.brokers.epochs.tolist(), strict=True)) == self.brokers
        )
        assert state.shutting_down == self.shutting_down
        assert_packed_alike(state)
        for row, (name, number) in enumerate(rows_of(state)):
            assert state.row(name, number) == row

    @invariant()
    def side_values_move_with_rows(self) -> None:
        first_new = max(self.numbered.values(), default=-1) + 1
        numbered = dict(zip(rows_of(self.state), self.numbers.array.tolist(), strict=True))
        for key, number in numbered.items():
            assert number == self.numbered.get(key, number)
            assert key in self.numbered or number >= first_new
        assert len(set(numbered.values())) == len(numbered)
        self.numbered = numbered


TestStateMachine = pytest.mark.filterwarnings("error")(StateMachine.TestCase)
TestStateMachine.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
