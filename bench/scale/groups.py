"""Groups of 10 and 1,000 members, and 10, 1,000 and 10,000 groups of one member."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition
from kio.schema.types import GroupId
from kio.static.primitive import i32Timedelta

from bench.peers.brokers import HOST
from bench.scale import messages
from bench.scale.crowd import Crowd
from bench.scale.record import Record
from bench.scale.sides import MeasuredBroker, create_topics, running

__all__ = ["ask_of_groups", "ask_of_members"]

_TOPIC: Final = "read"
_SESSION_MS: Final = 300_000
#: Of a consumer's subscription to one topic, and of an assignment.
_METADATA_BYTES: Final = 30
_ASSIGNMENT_BYTES: Final = 60
_HEARTBEATS: Final = 5_000
_COMMITS: Final = 5_000
#: Rebalances of a group that is there already.
_REBALANCES: Final = 3
#: The coordinator waits so long for the first members: all of the crowd have joined by then.
_CONFIGS: Final = {"group.initial.rebalance.delay.ms": "3000", "offsets.topic.num.partitions": "10"}
_NO_DELAY: Final = {**_CONFIGS, "group.initial.rebalance.delay.ms": "0"}
_IN_FLIGHT: Final = 50
_NONE: Final = 0
_REBALANCE_IN_PROGRESS: Final = 27


def ask_of_members(side: str, size: int, folder: Path, record: Record) -> None:
    """Measure one group of ``size`` members, each with a connection of its own."""
    with running(side, folder, _CONFIGS) as broker, Crowd(broker.port, size) as crowd:
        create_topics(broker.port, {_TOPIC: size})
        _find_coordinator(broker.port, crowd)
        _Members(broker, crowd, size, record).measure()


def ask_of_groups(side: str, size: int, folder: Path, record: Record) -> None:
    """Measure ``size`` groups of one member each."""
    with running(side, folder, _NO_DELAY) as broker, Crowd(broker.port, _IN_FLIGHT) as crowd:
        create_topics(broker.port, {_TOPIC: 1})
        _find_coordinator(broker.port, crowd)
        _measure_groups(broker, crowd, size, record)


def _find_coordinator(port: int, crowd: Crowd) -> None:
    """Have the broker create ``__consumer_offsets`` and load it."""
    consumer = Consumer({"bootstrap.servers": f"{HOST}:{port}", "group.id": "first"})
    consumer.committed([TopicPartition(_TOPIC, 0)], timeout=60)
    consumer.close()


class _Members:
    """A group whose members join and sync together, as after a change of their topics."""

    def __init__(self, broker: MeasuredBroker, crowd: Crowd, size: int, record: Record) -> None:
        self._broker, self._crowd, self._size, self._record = broker, crowd, size, record
        self._ids: list[str] = [""] * size
        self._generation = -1
        #: The number of the member that assigns.
        self._leader: int | None = None

    def measure(self) -> None:
        before = self._broker.needed_bytes()
        # Each gets its member id first.
        answers = self._crowd.ask_all([_join("group", member_id) for member_id in self._ids])
        self._ids = [str(messages.decoded("JoinGroup", one).member_id) for one in answers]
        self._rebalance()
        grown = self._broker.needed_bytes() - before
        name = "Members of a group: memory of each"
        self._record.add_each(name, "members", self._broker.side, self._size, grown, least=100)
        for _ in range(_REBALANCES):
            cpu, began = self._broker.processor_seconds(), perf_counter()
            self._rebalance()
            self._add("Members of a group: a rebalance of all", "s", perf_counter() - began)
            used = self._broker.processor_seconds() - cpu
            self._add("Members of a group: a rebalance of all, each", "processor µs", used / self._size * 1e6)
        beats = [_beat("group", self._generation, one) for one in self._ids]
        cpu = self._broker.processor_seconds()
        for first in range(0, _HEARTBEATS, self._size):
            _expect_none("Heartbeat", self._crowd.ask_all(beats[: min(self._size, _HEARTBEATS - first)]))
        used = self._broker.processor_seconds() - cpu
        self._add("Members of a group: Heartbeat", "processor µs", used / _HEARTBEATS * 1e6)

    def _rebalance(self) -> None:
        """Let all members join, and sync with the assignments of the leader.

        The leader comes first: a follower that joins a stable group is answered at once, and a rebalance that
        begins later would wait for it.
        """
        joins = [_join("group", one) for one in self._ids]
        if self._leader is not None:
            self._crowd.send(self._leader, joins[self._leader])
            self._await_rebalance()
        answers = self._crowd.ask_all(joins, sent=() if self._leader is None else (self._leader,))
        joined = [messages.decoded("JoinGroup", one) for one in answers]
        codes = {one.error_code.value for one in joined}
        if codes != {_NONE} or len({one.generation_id for one in joined}) != 1:
            raise RuntimeError(f"JoinGroup: errors {codes}")
        self._generation = joined[0].generation_id
        leader = next(one for one in joined if one.leader == one.member_id)
        self._leader = self._ids.index(leader.member_id)
        assigned = [one.member_id for one in leader.members]
        if sorted(assigned) != sorted(self._ids):
            raise RuntimeError(f"the leader has heard of {len(assigned)} of {self._size} members")
        syncs = [
            _sync("group", self._generation, one, assigned if one == leader.member_id else ())
            for one in self._ids
        ]
        for answer in self._crowd.ask_all(syncs):
            synced = messages.decoded("SyncGroup", answer)
            if synced.error_code.value or len(synced.assignment) != _ASSIGNMENT_BYTES:
                raise RuntimeError(f"SyncGroup: {synced}")

    def _await_rebalance(self) -> None:
        """Wait until a member that is not the leader hears that it has to join again."""
        other = 1 if self._leader == 0 else 0
        while True:
            (answer,) = self._crowd.ask_these({other: _beat("group", self._generation, self._ids[other])})
            if messages.decoded("Heartbeat", answer).error_code.value == _REBALANCE_IN_PROGRESS:
                return

    def _add(self, question: str, unit: str, sample: float) -> None:
        self._record.add(question, unit, "members", self._broker.side, self._size, sample)


def _measure_groups(broker: MeasuredBroker, crowd: Crowd, size: int, record: Record) -> None:
    def add(question: str, unit: str, sample: float) -> None:
        record.add(question, unit, "groups", broker.side, size, sample)

    names = [f"group-{number:05}" for number in range(size)]
    before, cpu = broker.needed_bytes(), broker.processor_seconds()
    members: dict[str, str] = {}
    for begin in range(0, size, _IN_FLIGHT):
        some = names[begin : begin + _IN_FLIGHT]
        answers = crowd.ask_all([_join(name, "") for name in some])
        ids = [str(messages.decoded("JoinGroup", one).member_id) for one in answers]
        answers = crowd.ask_all([_join(name, one) for name, one in zip(some, ids, strict=True)])
        for answer in answers:
            joined = messages.decoded("JoinGroup", answer)
            if joined.error_code.value:
                raise RuntimeError(f"JoinGroup: {joined}")
        _expect_none(
            "SyncGroup", crowd.ask_all([_sync(n, 1, one, [one]) for n, one in zip(some, ids, strict=True)])
        )
        _expect_none(
            "OffsetCommit", crowd.ask_all([_commit(n, 1, one) for n, one in zip(some, ids, strict=True)])
        )
        members.update(zip(some, ids, strict=True))
    add(
        "Groups of one member: to join, sync and commit",
        "processor µs",
        (broker.processor_seconds() - cpu) / size * 1e6,
    )
    grown = broker.needed_bytes() - before
    record.add_each("Groups of one member: memory of each", "groups", broker.side, size, grown)
    commits = [_commit(name, 1, one) for name, one in members.items()]
    beats = [_beat(name, 1, one) for name, one in members.items()]
    for what, frames in (("OffsetCommit", commits), ("Heartbeat", beats)):
        cpu = broker.processor_seconds()
        asked = 0
        while asked < _COMMITS:
            asked += len(crowd.ask_in_turn(frames[:_COMMITS]))
        add(f"Groups of one member: {what}", "processor µs", (broker.processor_seconds() - cpu) / asked * 1e6)


def _join(group: str, member_id: str) -> bytes:
    protocol = messages.entity(
        "JoinGroup", "JoinGroupRequestProtocol", name="range", metadata=bytes(_METADATA_BYTES)
    )
    return messages.frame(
        "JoinGroup",
        group_id=GroupId(group),
        session_timeout=_ms(_SESSION_MS),
        rebalance_timeout=_ms(_SESSION_MS),
        member_id=member_id,
        protocol_type="consumer",
        protocols=(protocol,),
    )


def _sync(group: str, generation: int, member_id: str, members: Sequence[str]) -> bytes:
    assignments = tuple(
        messages.entity(
            "SyncGroup", "SyncGroupRequestAssignment", member_id=one, assignment=bytes(_ASSIGNMENT_BYTES)
        )
        for one in members
    )
    return messages.frame(
        "SyncGroup",
        group_id=GroupId(group),
        generation_id=generation,
        member_id=member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocol_name="range",
        assignments=assignments,
    )


def _beat(group: str, generation: int, member_id: str) -> bytes:
    return messages.frame("Heartbeat", group_id=GroupId(group), generation_id=generation, member_id=member_id)


def _commit(group: str, generation: int, member_id: str) -> bytes:
    partition = messages.entity(
        "OffsetCommit",
        "OffsetCommitRequestPartition",
        partition_index=0,
        committed_offset=5,
        committed_metadata="",
    )
    topic = messages.entity("OffsetCommit", "OffsetCommitRequestTopic", name=_TOPIC, partitions=(partition,))
    return messages.frame(
        "OffsetCommit",
        group_id=GroupId(group),
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=(topic,),
    )


def _expect_none(api: str, answers: Sequence[bytes]) -> None:
    """Raise RuntimeError unless all answers are without an error."""
    for answer in answers:
        decoded = messages.decoded(api, answer)
        if api == "OffsetCommit":
            codes = {one.error_code.value for topic in decoded.topics for one in topic.partitions}
        else:
            codes = {decoded.error_code.value}
        if codes != {_NONE}:
            raise RuntimeError(f"{api}: {decoded}")


def _ms(milliseconds: int) -> Any:
    return i32Timedelta.parse(timedelta(milliseconds=milliseconds))
