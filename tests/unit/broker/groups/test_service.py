"""The coordinator with its threads, on logs in a folder."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from ctrlchan.broker.config.group_config import GroupConfig
from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.group.coordinator import GroupCoordinator
from ctrlchan.broker.coordinator.group.requests import (
    CommitRequest,
    JoinRequest,
    JoinResult,
    OffsetToCommit,
    SyncRequest,
)
from ctrlchan.broker.coordinator.group_service import GroupService
from ctrlchan.errors import ConfigError, ErrorCode
from ctrlchan.internal_topics import coordinator_partition
from tests.kafka.waiting import wait_until
from tests.unit.broker.groups.partitions import FaultyPartitions

DEADLINE = 60.0
GROUP = "a-group"
FOO = TopicPartition("foo", 3)
CONFIG = GroupConfig(min_session_timeout=1, initial_rebalance_delay=0, offsets_topic_partitions=1)

_Request = TypeVar("_Request")
_Result = TypeVar("_Result")


def soon(condition: Callable[[], bool]) -> None:
    wait_until(condition, timeout=DEADLINE, what="a thread of the groups")


@contextmanager
def serving(
    partitions: FaultyPartitions, config: GroupConfig = CONFIG, **arguments: Callable[[], int]
) -> Iterator[GroupService]:
    service = GroupService(1, config, partitions.get, **arguments)
    service.start()
    try:
        yield service
    finally:
        service.stop()


@pytest.fixture
def partitions(tmp_path: Path) -> Iterator[FaultyPartitions]:
    made = FaultyPartitions(tmp_path)
    yield made
    made.close()


def lead(service: GroupService, epoch: int = 0) -> None:
    """Let the broker lead the partition, and wait until its groups are loaded."""
    service.on_leader(0, epoch)
    soon(lambda: service.coordinator.describe(GROUP).error is ErrorCode.NONE)


def ask(send: Callable[[_Request, Callable[[_Result], None]], None], request: _Request) -> _Result:
    answers: queue.Queue[_Result] = queue.Queue()
    send(request, answers.put)
    return answers.get(timeout=DEADLINE)


def join(coordinator: GroupCoordinator, session: int = 30_000) -> JoinResult:
    request = JoinRequest(GROUP, "", "client", "/127.0.0.1", session, session, "consumer", (("range", b"m"),))
    joined = ask(coordinator.join, request)
    sync = SyncRequest(GROUP, joined.generation_id, joined.member_id, assignments={joined.member_id: b"all"})
    assert ask(coordinator.sync, sync).assignment == b"all"
    return joined


def commit(coordinator: GroupCoordinator, offset: int, joined: JoinResult | None = None) -> ErrorCode:
    request = CommitRequest(GROUP, [OffsetToCommit(FOO, offset)])
    if joined is not None:
        request = CommitRequest(GROUP, request.offsets, joined.generation_id, joined.member_id)
    return ask(coordinator.commit, request)[FOO]


def committed(coordinator: GroupCoordinator) -> int:
    error, offsets = coordinator.fetch(GROUP, [FOO])
    assert not error
    return offsets[FOO].offset


def test_groups_and_offsets_live_on_in_the_log(tmp_path: Path) -> None:
    partitions = FaultyPartitions(tmp_path)
    with serving(partitions) as service:
        lead(service)
        joined = join(service.coordinator)
        assert commit(service.coordinator, 5, joined) is ErrorCode.NONE
        described = service.coordinator.describe(GROUP)
    assert set(partitions.replicas[0].acks) == {(-1, 5_000)}
    partitions.close()
    partitions = FaultyPartitions(tmp_path)
    with serving(partitions) as service:
        lead(service)
        assert service.coordinator.describe(GROUP) == described
        assert committed(service.coordinator) == 5
    partitions.close()


def test_groups_come_and_go_with_the_leadership(partitions: FaultyPartitions) -> None:
    with serving(partitions) as service:
        coordinator = service.coordinator
        assert coordinator.describe(GROUP).error is ErrorCode.NOT_COORDINATOR
        lead(service)
        assert commit(coordinator, 8) is ErrorCode.NONE
        service.on_resigned(0, 1)
        soon(lambda: coordinator.describe(GROUP).error is ErrorCode.NOT_COORDINATOR)
        service.on_leader(0, 0)  # a request of the past
        service.on_leader(0, 2)
        soon(lambda: coordinator.describe(GROUP).error is ErrorCode.NONE)
        assert committed(coordinator) == 8
        service.on_resigned(0, None)
        soon(lambda: coordinator.describe(GROUP).error is ErrorCode.NOT_COORDINATOR)


def test_a_silent_member_is_removed(partitions: FaultyPartitions) -> None:
    with serving(partitions) as service:
        lead(service)
        join(service.coordinator, session=50)
        soon(lambda: service.coordinator.describe(GROUP).state == "Empty")


def test_offsets_expire(partitions: FaultyPartitions) -> None:
    now = [1_700_000_000_000]
    config = GroupConfig(
        offsets_topic_partitions=1, offsets_retention=1_000, offsets_retention_check_interval=20
    )
    with serving(partitions, config, now_ms=lambda: now[0]) as service:
        lead(service)
        assert commit(service.coordinator, 8) is ErrorCode.NONE
        now[0] += 1_000
        soon(lambda: committed(service.coordinator) == -1)
        soon(lambda: (0, 5_000) in partitions.replicas[0].acks)


def test_offsets_of_deleted_topics_are_removed(partitions: FaultyPartitions) -> None:
    with serving(partitions) as service:
        lead(service)
        assert commit(service.coordinator, 8) is ErrorCode.NONE
        service.on_partitions_deleted([("foo", 3)])
        soon(lambda: committed(service.coordinator) == -1)


def test_errors_of_the_log_become_errors_of_groups(partitions: FaultyPartitions) -> None:
    with serving(partitions) as service:
        lead(service)
        partitions.replicas[0].error = ErrorCode.NOT_ENOUGH_REPLICAS
        assert commit(service.coordinator, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        del partitions.replicas[0]
        assert commit(service.coordinator, 1) is ErrorCode.NOT_COORDINATOR


def test_the_thread_that_ends_an_append_waits_for_no_group(partitions: FaultyPartitions) -> None:
    """It may hold the lock of another group, whose append has ended this one too."""
    with serving(partitions) as service:
        lead(service)
        replica = partitions.replicas[0]
        replica.held = []
        answers: queue.Queue[dict[TopicPartition, ErrorCode]] = queue.Queue()
        service.coordinator.commit(CommitRequest(GROUP, [OffsetToCommit(FOO, 5)]), answers.put)
        group = service.coordinator._registry.find(GROUP)
        assert group is not None
        releasing = threading.Thread(target=replica.release)
        with group.locked():
            releasing.start()
            releasing.join(DEADLINE)
            assert not releasing.is_alive()
            assert answers.empty()
        assert answers.get(timeout=DEADLINE) == {FOO: ErrorCode.NONE}
        assert committed(service.coordinator) == 5


def test_a_partition_that_cannot_be_read_is_served_empty(
    partitions: FaultyPartitions, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(partitions) as service:
        lead(service)
        assert commit(service.coordinator, 1) is ErrorCode.NONE
        service.on_resigned(0, 1)
        partitions.replicas[0].fail_reads = True
        service.on_leader(0, 2)
        soon(lambda: "cannot be loaded" in caplog.text)
        soon(lambda: service.coordinator.describe(GROUP).error is ErrorCode.NONE)
        assert committed(service.coordinator) == -1


def test_the_topic_says_how_many_partitions_there_are(partitions: FaultyPartitions) -> None:
    with serving(partitions, GroupConfig(offsets_topic_partitions=50)) as service:
        service.count_partitions(lambda: 0)
        assert service.coordinator.partition_for(GROUP) == coordinator_partition(GROUP, 50)
        service.count_partitions(lambda: 4)
        service.count_partitions(lambda: 9)
        assert service.coordinator.partition_for(GROUP) == coordinator_partition(GROUP, 4)


def test_stop_ends_the_threads_and_refuses_requests(partitions: FaultyPartitions) -> None:
    before = set(threading.enumerate())
    with serving(partitions) as service:
        lead(service)
        assert len(set(threading.enumerate()) - before) == 2
    assert set(threading.enumerate()) == before
    assert service.coordinator.describe(GROUP).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    service.on_leader(0, 3)  # of a request that was handled late
    service.stop()


def test_settings_have_kafkas_names() -> None:
    settings = {
        "group.min.session.timeout.ms": "100",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.retention.minutes": "3",
        "offsets.topic.replication.factor": "1",
        "log.dirs": "elsewhere",
    }
    expected = GroupConfig(
        min_session_timeout=100,
        initial_rebalance_delay=0,
        offsets_retention=180_000,
        offsets_topic_replication_factor=1,
    )
    assert GroupConfig.of(settings) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("offsets.topic.num.partitions", "0"),
        ("offsets.retention.minutes", "many"),
        ("group.max.session.timeout.ms", "5999"),
    ],
)
def test_settings_that_cannot_work(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        GroupConfig.of({name: value})
