"""Many threads at once: consumers, timers, and appends that end on a thread of their own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import pytest

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.common.timing_wheel import TimingWheel
from ctrlchan.broker.coordinator.common.topic import Appended, BatchProducer, Record
from ctrlchan.broker.coordinator.group.coordinator import GroupCoordinator
from ctrlchan.broker.coordinator.group.requests import (
    CommitRequest,
    HeartbeatRequest,
    JoinRequest,
    LeavingMember,
    OffsetToCommit,
    SyncRequest,
)
from ctrlchan.errors import ErrorCode
from tests.unit.broker.coordinator.support import BROKER, CONFIG, GROUP, PROTOCOLS, START_MS, MemoryTopic

DEADLINE = 60.0
ROUNDS = 15
FOO = TopicPartition("foo", 0)

_Result = TypeVar("_Result")


class _SlowTopic(MemoryTopic):
    """Ends appends on another thread."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        super().__init__()
        self.pool = pool

    def append(
        self,
        partition: int,
        records: Sequence[Record],
        timestamp: int,
        acks: int,
        timeout_ms: int | None = None,
        producer: BatchProducer | None = None,
    ) -> Future[Appended]:
        result = super().append(partition, records, timestamp, acks, producer=producer).result()
        return self.pool.submit(lambda: result)


def _ask(send: Callable[[Callable[[_Result], None]], None]) -> _Result:
    """Send a request and wait for its answer."""
    answers: queue.Queue[_Result] = queue.Queue()
    send(answers.put)
    return answers.get(timeout=DEADLINE)


def _consume(coordinator: GroupCoordinator, number: int) -> int:
    """Join, sync, commit, and at times leave; return how many generations the consumer was in."""
    generations = 0
    member_id = ""
    for turn in range(ROUNDS):
        request = JoinRequest(GROUP, member_id, "client", "", 5_000, 5_000, "consumer", PROTOCOLS)
        if number == 0:
            request = request._replace(instance_id="static")
        joined = _ask(lambda answer, request=request: coordinator.join(request, answer))  # type: ignore[misc]
        if joined.error:
            member_id = ""
            continue
        member_id = joined.member_id
        assignments = {member.member_id: member.member_id.encode() for member in joined.members}
        sync = SyncRequest(GROUP, joined.generation_id, member_id, assignments=assignments)
        synced = _ask(lambda answer, sync=sync: coordinator.sync(sync, answer))  # type: ignore[misc]
        if synced.error:
            continue
        generations += 1
        commit = CommitRequest(GROUP, [OffsetToCommit(FOO, turn)], joined.generation_id, member_id)
        _ask(lambda answer, commit=commit: coordinator.commit(commit, answer))  # type: ignore[misc]
        coordinator.heartbeat(HeartbeatRequest(GROUP, joined.generation_id, member_id))
        coordinator.describe(GROUP)
        if turn % 3 == number % 3:
            coordinator.leave(GROUP, [LeavingMember(member_id)])
            member_id = ""
    coordinator.leave(GROUP, [LeavingMember(member_id)])
    return generations


@pytest.mark.timeout(300)
def test_threads_do_not_lock_one_another_out() -> None:
    now = 0.0
    timers = TimingWheel(lambda: now)
    over = threading.Event()

    with ThreadPoolExecutor(1) as appends, ThreadPoolExecutor(4) as consumers:
        topic = _SlowTopic(appends)
        config = replace(CONFIG, max_size=100, initial_rebalance_delay=5)
        coordinator = GroupCoordinator(BROKER, config, topic, timers, lambda: START_MS + int(now * 1000))
        coordinator.start()
        coordinator.elected(coordinator.partition_for(GROUP), 1)

        def tick() -> None:
            nonlocal now
            while not over.wait(0.0005):
                now += 0.005
                timers.advance(now)
                coordinator.expire_offsets()

        ticking = threading.Thread(target=tick)
        ticking.start()
        try:
            runs = [consumers.submit(_consume, coordinator, number) for number in range(4)]
            generations = [run.result(timeout=2 * DEADLINE) for run in runs]
        finally:
            over.set()
            ticking.join()
    assert sum(generations) > 0
    now += 100
    timers.advance(now)
    assert coordinator.describe(GROUP).state in ("Empty", "Dead")
    assert coordinator.fetch(GROUP, [FOO])[0] is ErrorCode.NONE
