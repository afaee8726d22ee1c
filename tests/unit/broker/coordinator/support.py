"""A coordinator with a simulated clock, logs in memory, and short calls for the requests of members."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ctrlchan.broker.config.group_config import GroupConfig
from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.common.timing_wheel import TimingWheel
from ctrlchan.broker.coordinator.common.topic import Appended, BatchProducer, Record, StoredBatch
from ctrlchan.broker.coordinator.group.coordinator import GroupCoordinator
from ctrlchan.broker.coordinator.group.group import Group
from ctrlchan.broker.coordinator.group.requests import (
    CommitRequest,
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    OffsetToCommit,
    SyncRequest,
    SyncResult,
    TransactionalCommitRequest,
)
from ctrlchan.broker.coordinator.group.verification import Verified
from ctrlchan.errors import ErrorCode

BROKER = 1
GROUP = "groupId"
OTHER_GROUP = "otherGroup"  # in the other one of two partitions
PROTOCOLS = (("range", b"range-metadata"),)
PROTOCOL_SUPERSET = (*PROTOCOLS, ("roundrobin", b""))
SESSION = 500
REBALANCE = 500
DELAY = 50
MAX_SIZE = 4
PRODUCER = 1000
PRODUCER_EPOCH = 2
START_MS = 1_700_000_000_000

CONFIG = GroupConfig(
    min_session_timeout=10,
    max_session_timeout=600_000,
    max_size=MAX_SIZE,
    initial_rebalance_delay=DELAY,
    offsets_topic_partitions=2,
    offsets_retention_check_interval=10**12,  # tests call for it
)

_Result = TypeVar("_Result")


class Answer(Generic[_Result]):
    """Receives the answer of a request."""

    def __init__(self) -> None:
        self.results: list[_Result] = []

    def __call__(self, result: _Result) -> None:
        self.results.append(result)

    @property
    def given(self) -> bool:
        return bool(self.results)

    @property
    def result(self) -> _Result:
        (result,) = self.results
        return result


@dataclass
class MemoryTopic:
    """``__consumer_offsets`` in memory.

    ``error``: of the next appends. ``held``: the appends that wait for ``release``, when it is not None.
    """

    batches: dict[int, list[StoredBatch]] = field(default_factory=dict)
    appended: list[tuple[int, list[Record], int, int]] = field(default_factory=list)
    producers: list[BatchProducer | None] = field(default_factory=list)
    error: int = 0
    held: list[tuple[Future[Appended], Appended]] | None = None
    fail_reads: bool = False

    def append(
        self,
        partition: int,
        records: Sequence[Record],
        timestamp: int,
        acks: int,
        timeout_ms: int | None = None,
        producer: BatchProducer | None = None,
    ) -> Future[Appended]:
        future: Future[Appended] = Future()
        result = Appended(self.error)
        if not self.error:
            log = self.batches.setdefault(partition, [])
            result = Appended(0, len(log))
            producer_id = -1 if producer is None else producer.producer_id
            log.append(StoredBatch(len(log), list(records), producer_id, producer is not None))
            self.producers.append(producer)
            self.appended.append((partition, list(records), timestamp, acks))
        if self.held is None:
            future.set_result(result)
        else:
            self.held.append((future, result))
        return future

    def release(self, error: int | None = None, *, written: bool = False) -> None:
        """End the appends that wait; with an error, as one that came after they were `written` or before."""
        assert self.held is not None
        held, self.held = self.held, None
        for future, result in held:
            if error is not None:
                result = Appended(error, result.first_offset if written else -1)
            future.set_result(result)

    def append_marker(self, partition: int, producer_id: int, *, commits: bool) -> None:
        log = self.batches.setdefault(partition, [])
        log.append(StoredBatch(len(log), [], producer_id, transactional=True, commits=commits))

    def read(self, partition: int, into: dict[str, Any] | None = None) -> Iterable[StoredBatch]:
        yield from self.batches.get(partition, [])
        if self.fail_reads:
            raise OSError("the disk")


class Rig:
    """One coordinator that leads the partition of GROUP, not that of OTHER_GROUP."""

    def __init__(self, config: GroupConfig = CONFIG, topic: MemoryTopic | None = None) -> None:
        self.now = 0  # milliseconds
        self.topic = topic or MemoryTopic()
        self.timers = TimingWheel(lambda: self.now / 1000)
        # The answer of the transaction coordinator, and what it was asked; held: questions that wait.
        self.verified: tuple[int, int] = (0, 0)
        self.verifications: list[tuple[int, TransactionalCommitRequest]] = []
        self.unverified: list[Verified] | None = None
        self.coordinator = GroupCoordinator(
            BROKER, config, self.topic, self.timers, lambda: START_MS + self.now, self._verify
        )
        self.coordinator.start()
        self.coordinator.elected(self.coordinator.partition_for(GROUP), 1)

    def advance(self, milliseconds: int) -> None:
        """Let time pass, timers being called when they are due."""
        until = self.now + milliseconds
        while (due := self.timers.next_due()) is not None and due * 1000 <= until:
            self.now = max(self.now, round(due * 1000))
            self.timers.advance(due)
        self.now = until
        self.timers.advance(until / 1000)

    def group(self, group_id: str = GROUP) -> Group:
        group = self.coordinator._registry.find(group_id)
        assert group is not None
        return group

    @property
    def state(self) -> str:
        return self.coordinator.describe(GROUP).state

    def send_join(
        self, member_id: str = "", *, group_id: str = GROUP, **fields: object
    ) -> Answer[JoinResult]:
        request = JoinRequest(
            group_id, member_id, "client", "/127.0.0.1", SESSION, REBALANCE, "consumer", PROTOCOLS
        )
        answer: Answer[JoinResult] = Answer()
        self.coordinator.join(request._replace(**fields), answer)  # type: ignore[arg-type]
        return answer

    def join(self, member_id: str = "", *, wait: int = DELAY + 1, **fields: object) -> JoinResult:
        answer = self.send_join(member_id, **fields)  # type: ignore[arg-type]
        self.advance(wait)
        return answer.result

    def send_sync(
        self,
        generation_id: int,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        group_id: str = GROUP,
        **fields: object,
    ) -> Answer[SyncResult]:
        request = SyncRequest(group_id, generation_id, member_id, assignments=assignments or {})
        answer: Answer[SyncResult] = Answer()
        self.coordinator.sync(request._replace(**fields), answer)  # type: ignore[arg-type]
        return answer

    def sync(
        self,
        generation_id: int,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        **fields: object,
    ) -> SyncResult:
        return self.send_sync(generation_id, member_id, assignments, **fields).result  # type: ignore[arg-type]

    def heartbeat(
        self, member_id: str, generation_id: int, instance_id: str | None = None, group_id: str = GROUP
    ) -> ErrorCode:
        return self.coordinator.heartbeat(HeartbeatRequest(group_id, generation_id, member_id, instance_id))

    def send_commit(
        self, *offsets: OffsetToCommit, group_id: str = GROUP, **fields: object
    ) -> Answer[dict[TopicPartition, ErrorCode]]:
        answer: Answer[dict[TopicPartition, ErrorCode]] = Answer()
        request = CommitRequest(group_id, offsets)
        self.coordinator.commit(request._replace(**fields), answer)  # type: ignore[arg-type]
        return answer

    def commit(self, *offsets: OffsetToCommit, **fields: object) -> dict[TopicPartition, ErrorCode]:
        return self.send_commit(*offsets, **fields).result  # type: ignore[arg-type]

    def send_transactional_commit(
        self, *offsets: OffsetToCommit, group_id: str = GROUP, producer_id: int = PRODUCER, **fields: object
    ) -> Answer[dict[TopicPartition, ErrorCode]]:
        answer: Answer[dict[TopicPartition, ErrorCode]] = Answer()
        request = TransactionalCommitRequest("tx", group_id, producer_id, PRODUCER_EPOCH, offsets)
        self.coordinator.commit_in_transaction(request._replace(**fields), answer)  # type: ignore[arg-type]
        return answer

    def transactional_commit(
        self, *offsets: OffsetToCommit, **fields: object
    ) -> dict[TopicPartition, ErrorCode]:
        return self.send_transactional_commit(*offsets, **fields).result  # type: ignore[arg-type]

    def end_transaction(self, *, commits: bool, producer_id: int = PRODUCER, group_id: str = GROUP) -> None:
        """Append the marker to the partition of the group, and complete the transaction there."""
        partition = self.coordinator.partition_for(group_id)
        self.topic.append_marker(partition, producer_id, commits=commits)
        self.coordinator.complete_transactions(producer_id, [partition], commits)

    def _verify(self, partition: int, request: TransactionalCommitRequest, then: Verified) -> None:
        self.verifications.append((partition, request))
        if self.unverified is None:
            then(*self.verified)
        else:
            self.unverified.append(then)

    def stable(self, **fields: object) -> JoinResult:
        """Make a Stable group of one member."""
        joined = self.join(**fields)  # type: ignore[arg-type]
        assert joined.error is ErrorCode.NONE
        assignments = {joined.member_id: b"all"}
        assert self.sync(joined.generation_id, joined.member_id, assignments).error is ErrorCode.NONE
        return joined

    def stable_static(self, **fields: object) -> tuple[JoinResult, JoinResult]:
        """Make a Stable group, generation 2, of the static members "leader" and "follower"."""
        fields = {"protocols": PROTOCOL_SUPERSET, "wait": 1, **fields}
        first = self.join(instance_id="leader", **{**fields, "wait": DELAY + 1})  # type: ignore[arg-type]
        self.sync(first.generation_id, first.member_id, {first.member_id: b"all"})
        send = {name: value for name, value in fields.items() if name != "wait"}
        follower_answer = self.send_join(instance_id="follower", **send)  # type: ignore[arg-type]
        leader = self.send_join(first.member_id, instance_id="leader", **send).result  # type: ignore[arg-type]
        follower = follower_answer.result
        assert (leader.generation_id, leader.leader_id) == (2, leader.member_id)
        assignments = {leader.member_id: b"a", follower.member_id: b"b"}
        waiting = self.send_sync(2, follower.member_id, instance_id="follower")
        assert self.sync(2, leader.member_id, assignments, instance_id="leader").assignment == b"a"
        assert waiting.result.assignment == b"b"
        assert self.state == "Stable"
        return leader, follower
