"""A batch sends what a dict of partitions holds, however its partitions were named.

The model below is Kafka's: a map of maps, filled one partition at a time, read by one request per broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ctrlchan._codec import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.protocol import request_versions
from ctrlchan.state import ClusterState
from tests.unit.batch.recording import RecordingChannel, cluster, stops, topic_partitions

BROKERS = [1, 2, 3, 4]
DEAD = 9
TOPICS = ["a", "b", "c"]
PARTITIONS = 3
ROWS = PARTITIONS * len(TOPICS)
#: A row without leadership information: UpdateMetadata leaves it out, it is never added to LeaderAndIsr.
LEADERLESS = 4
LED = [row for row in range(ROWS) if row != LEADERLESS]
DELETING = "c"

Rows: TypeAlias = list[int] | int | slice | Literal["all"]

BROKER_LISTS = st.lists(st.sampled_from([-1, *BROKERS, DEAD]), max_size=4)
CALLS = st.lists(
    st.tuples(
        st.sampled_from(["leader_and_isr", "stop_replica", "update_metadata"]),
        BROKER_LISTS,
        st.one_of(
            st.lists(st.integers(0, ROWS - 1), max_size=ROWS),
            st.integers(0, ROWS - 1),
            st.tuples(st.integers(0, ROWS), st.integers(0, ROWS)).map(lambda ends: slice(*sorted(ends))),
            st.just("all"),
        ),
        st.booleans(),
    ),
    max_size=8,
)
IBPS = st.sampled_from(["0.9.0", "1.0", "2.2", "2.4", "2.6", "3.9"])


@dataclass
class Model:
    leader_and_isr: dict[int, dict[int, bool]] = field(default_factory=dict)
    #: Broker -> row -> (leader epoch, delete).
    stop_replica: dict[int, dict[int, tuple[int, bool]]] = field(default_factory=dict)
    metadata_brokers: set[int] = field(default_factory=set)
    metadata: set[int] = field(default_factory=set)
    #: Leader epochs rise with each call.
    turn: int = 0

    def add(self, api: str, brokers: list[int], row: int, flag: bool) -> None:
        if api == "update_metadata":
            self.metadata_brokers |= {broker for broker in brokers if broker >= 0}
            self.metadata.add(row)
            return
        for broker in brokers:
            if broker >= 0 and api == "stop_replica":
                stops = self.stop_replica.setdefault(broker, {})
                stops[row] = epoch_of(row, self.turn), flag or stops.get(row, (0, False))[1]
            elif broker >= 0:
                new = self.leader_and_isr.setdefault(broker, {})
                new[row] = flag or new.get(row, False)
        if api == "leader_and_isr":
            self.add("update_metadata", BROKERS, row, False)


def a_state() -> ClusterState:
    state = cluster(BROKERS, PARTITIONS, 3, {name: bytes([1]) * 16 for name in TOPICS})
    state.update(LED, leader=1, leader_epoch=np.array(LED) + 10, isr=[1], controller_epoch=1)
    state.mark_topics_deleting([DELETING])
    return state


def partition_of(row: int) -> tuple[str, int]:
    return TOPICS[row // PARTITIONS], row % PARTITIONS


def rows_of(rows: Rows) -> list[int]:
    if isinstance(rows, list):
        return list(rows)
    if isinstance(rows, int):
        return [rows]
    return list(range(*rows.indices(ROWS))) if isinstance(rows, slice) else list(range(ROWS))


@given(CALLS, IBPS, st.booleans())
def test_selections_singles_and_the_model_agree(
    calls: list[tuple[str, list[int], Rows, bool]], ibp: str, one_by_one: bool
) -> None:
    state, channel, model = a_state(), RecordingChannel(ibp), Model()
    batch = ControllerBrokerRequestBatch(channel, state)
    for api, brokers, rows, flag in calls:
        wanted = rows_of(rows)
        if api == "leader_and_isr" and LEADERLESS in wanted:
            wanted.remove(LEADERLESS)
            if LEADERLESS in wanted:
                continue
            rows = wanted
        for row in wanted:
            model.add(api, brokers, row, flag)
        if api == "update_metadata":
            # Brokers are sent the live brokers even when no partition is named.
            model.metadata_brokers |= {broker for broker in brokers if broker >= 0}
            for row in wanted if one_by_one else []:
                batch.add_update_metadata(brokers, row)
            batch.add_update_metadata(brokers, () if one_by_one else rows)
        else:
            add = batch.add_leader_and_isr if api == "leader_and_isr" else batch.add_stop_replica
            for row in wanted if one_by_one else []:
                add(brokers, partition_of(row), flag)
            add(brokers, () if one_by_one else rows, flag)
        model.turn += 1
        state.update(LED, leader_epoch=np.array([epoch + 10 + model.turn for epoch in LED]))

    batch.send_requests_to_brokers(1)

    versions = request_versions(ibp)
    for broker in BROKERS:
        expected = model.leader_and_isr.get(broker, {})
        sent = channel.bodies(broker, LeaderAndIsrRequest)
        assert [topic_partitions(body) for body in sent] == ([in_order(expected)] if expected else [])
        if sent and versions.leader_and_isr >= 1:
            assert sent[0].is_new.tolist() == [expected[row] for row in sorted(expected)]

        metadata = [topic_partitions(body) for body in channel.bodies(broker, UpdateMetadataRequest)]
        named = in_order(row for row in model.metadata if row != LEADERLESS)
        assert metadata == ([named] if broker in model.metadata_brokers else [])

        stops_expected = model.stop_replica.get(broker, {})
        stopped = channel.bodies(broker, StopReplicaRequest)
        if versions.stop_replica >= 3:
            merged = [{partition_of(row): stops_expected[row] for row in sorted(stops_expected)}]
            assert [stops(body) for body in stopped] == (merged if stops_expected else [])
        else:
            split = {
                delete: in_order(row for row, (_, flag) in stops_expected.items() if flag is delete)
                for delete in (True, False)
            }
            assert [(body.delete_partitions, topic_partitions(body)) for body in stopped] == [
                (delete, partitions) for delete, partitions in split.items() if partitions
            ]
    assert DEAD not in channel.brokers()


def in_order(rows: Iterable[int]) -> list[tuple[str, int]]:
    return [partition_of(row) for row in sorted(rows)]


def epoch_of(row: int, turn: int) -> int:
    if partition_of(row)[0] == DELETING:
        return -2
    return -1 if row == LEADERLESS else row + 10 + turn
