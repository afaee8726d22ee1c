"""Brokers in this process that handle requests at once: of the driver's batch, or of the rows of a diff."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from ctrlchan._codec import (
    LEADER_AND_ISR,
    UPDATE_METADATA,
    ListColumn,
    Partitions,
    SharedBody,
    StringColumn,
    Topics,
    encode_head,
    encode_request_header,
    leader_and_isr_body,
    request_header_version,
    stop_replica_body,
    update_metadata_body,
)
from ctrlchan.broker.core import BrokerCore
from ctrlchan.channel import ControlRequest, OutcomeKind, Sent
from ctrlchan.channel.endpoints import live_leaders
from ctrlchan.channel.listeners import ListenerRule
from ctrlchan.channel.outcome import OutcomeCallback
from ctrlchan.channel.queues.acknowledged import MetadataStatus
from ctrlchan.channel.request import RequestBody
from ctrlchan.metadata_broker.table import served_apis
from ctrlchan.pipeline.jobs.diff.steps import MetadataScope, Step
from ctrlchan.protocol import request_versions
from ctrlchan.server.request_handler import RequestHandler
from ctrlchan.state import Broker, ClusterState
from ctrlchan.state.brokers import brokers_list
from ctrlchan.state.table import FIXED_COLUMNS, make_partitions
from tests.unit.batch.manual_channel import ManualChannel, publish
from tests.unit.broker.cores import broker_core
from tests.unit.server.contexts import LOCAL_CLIENT

Row = Mapping[str, Any]

_LISTS = {
    "isr": "isr",
    "replicas": "replicas",
    "adding": "adding_replicas",
    "removing": "removing_replicas",
    "offline": "offline_replicas",
}
_SIZE_FIELD = 4
_METADATA_FIRST = (Step.STOP_FORMER, Step.UPDATE_METADATA, Step.LEADER_AND_ISR, Step.STOP_REPLICA)
_VERSIONS = request_versions("3.9")


class Cores(ManualChannel):
    """The live brokers of a state, as a channel and without one."""

    def __init__(self, state: ClusterState) -> None:
        super().__init__([], "3.9")
        self.cores: dict[int, BrokerCore] = {}
        self.follow(state)

    def follow(self, state: ClusterState) -> set[int]:
        """Brokers come, go and restart as the state says; those of a new generation have no metadata."""
        fresh = set()
        live = brokers_list(state.brokers)
        for broker in live:
            core = self.cores.get(broker.id)
            if core is None or core.epoch != broker.epoch:
                self.cores[broker.id] = new_core(broker)
                self.statuses[broker.id] = MetadataStatus(broker.epoch, 0)
                fresh.add(broker.id)
        for gone in self.cores.keys() - {broker.id for broker in live}:
            del self.cores[gone], self.statuses[gone]
        return fresh

    def send_requests(
        self, broker_ids: Sequence[int], request: ControlRequest, callback: OutcomeCallback | None = None
    ) -> list[Sent]:
        sent = [Sent(broker_id, request, None, 0) for broker_id in broker_ids]
        for one in sent:
            self.deliver(
                one.broker_id,
                request.shared_body,
                request.controller_epoch,
                delete=bool(request.delete_partitions),
            )
            publish(one, OutcomeKind.ACKNOWLEDGED)
        return sent

    def deliver(
        self,
        broker_id: int,
        shared_body: SharedBody | RequestBody,
        controller_epoch: int,
        *,
        delete: bool = False,
    ) -> None:
        core = self.cores[broker_id]
        api, version = shared_body.api_key, shared_body.version
        frame = bytearray(encode_request_header(request_header_version(api, version), api, version, 77, b"1"))
        frame += encode_head(api, version, 1, controller_epoch, core.epoch, delete_partitions=delete)
        at = len(frame)
        frame += bytes(shared_body.size)
        shared_body.write_into(frame, at)
        _handle(core, bytes(frame))

    def apply(self, rows: Iterable[Any], scopes: Mapping[int, str], new: ClusterState) -> None:
        """``rows`` of ``Diff.per_broker``; requests as the frames of a diff are made."""
        by_broker: dict[int, list[Row]] = {broker_id: [] for broker_id in scopes}
        for row in sorted(rows, key=_order):
            by_broker[row["broker"]].append(row)
        for broker_id, own in by_broker.items():
            steps = {step: list(some) for step, some in groupby(own, key=lambda row: row["step"])}
            requests = sorted(steps.items())
            if scopes[broker_id] == MetadataScope.ALL:
                steps.setdefault(Step.UPDATE_METADATA, [])
                requests = [(step, steps[step]) for step in _METADATA_FIRST if step in steps]
            elif scopes[broker_id] == MetadataScope.BROKERS and Step.LEADER_AND_ISR in steps:
                requests.insert(int(Step.STOP_FORMER in steps), (Step.UPDATE_METADATA, []))
            elif scopes[broker_id] == MetadataScope.BROKERS:
                requests = sorted({Step.UPDATE_METADATA: [], **steps}.items())
            for step, some in requests:
                self.deliver(broker_id, _shared_body(step, some, new), new.controller_epoch)

    def handle(self, frames: Iterable[Any]) -> None:
        """Rows of ready frames, each broker's in their order."""
        for row in frames:
            _handle(self.cores[row["broker"]], bytes(row["frame"])[_SIZE_FIELD:])


def _handle(core: BrokerCore, frame: bytes) -> None:
    """Let a broker handle one request; the response has no error."""
    handler = RequestHandler(core, served_apis())
    handler.serve(frame, LOCAL_CLIENT)
    assert not any(counters.errors for counters in handler.counters.values())


def replicas_of(core: BrokerCore) -> dict[tuple[str, int], tuple[Any, ...]]:
    """What a broker hosts; without ISR and partition epoch, which a leader learns by AlterPartition and a
    follower does not need: two controllers may send them at different times."""
    hosted, columns = core.replicas, core.replicas.columns
    return {
        (hosted.names[columns.topic_row[row]].decode(), int(columns.partition[row])): (
            hosted.topic_ids[row].tobytes(),
            *(int(getattr(columns, name)[row]) for name in FIXED_COLUMNS[2:] if name != "partition_epoch"),
            *(getattr(columns, name)[row].tolist() for name in ("replicas", "adding", "removing")),
        )
        for row in range(len(columns))
    }


def new_core(broker: Broker) -> BrokerCore:
    return broker_core(broker.id, endpoint=broker.endpoints[0], epoch=broker.epoch, rack=broker.rack)


def _order(row: Row) -> tuple[Any, ...]:
    return row["broker"], row["step"], row["topic"], row["gone"], row["partition"]


def _shared_body(step: int, rows: Sequence[Row], new: ClusterState) -> SharedBody:
    names = list(dict.fromkeys(row["topic"] for row in rows))
    ids = {row["topic"]: bytes(row["topic_id"]) for row in rows}
    topics = Topics(
        StringColumn.from_strings(names),
        np.frombuffer(b"".join(ids[name] for name in names), np.uint8).reshape(-1, 16),
    )
    assert all(bytes(row["topic_id"]) == ids[row["topic"]] for row in rows)
    place = {name: i for i, name in enumerate(names)}

    def column(name: str) -> Any:
        return np.array([row[name] for row in rows], dtype=np.int32)

    topic_row = np.array([place[row["topic"]] for row in rows], dtype=np.int32)
    if step in (Step.STOP_FORMER, Step.STOP_REPLICA):
        delete = np.array([row["delete"] for row in rows], dtype=np.uint8)
        return stop_replica_body(
            _VERSIONS.stop_replica, topics, topic_row, column("partition"), column("leader_epoch"), delete
        )
    partitions: Partitions = make_partitions(
        {"topic_row": topic_row, **{name: column(name) for name in FIXED_COLUMNS[1:]}},
        {name: ListColumn.from_lists([row[other] for row in rows]) for name, other in _LISTS.items()},
    )
    if step == Step.LEADER_AND_ISR:
        assert all(row["api"] == LEADER_AND_ISR for row in rows)
        leaders, _ = live_leaders(new.brokers, partitions.leader, ListenerRule("PLAINTEXT"))
        is_new = np.array([row["is_new"] for row in rows], dtype=np.uint8)
        return leader_and_isr_body(_VERSIONS.leader_and_isr, topics, partitions, leaders, is_new=is_new)
    assert all(row["api"] == UPDATE_METADATA for row in rows)
    return update_metadata_body(_VERSIONS.update_metadata, topics, partitions, new.brokers)
