"""Answers that name the leader to a client that asked another broker (KIP-951)."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ctrlchan._codec import LEADER_AND_ISR, UPDATE_METADATA
from ctrlchan.broker.log.manager import LogManager
from ctrlchan.errors import ErrorCode
from ctrlchan.launch.embedded import EmbeddedBroker
from tests.kafka.waiting import wait_until
from tests.kafka.wire import exchange, exchange_on, receive_frame, send_frame
from tests.unit.broker.leader_answers import (
    LeaderAnswer,
    fetch_frame,
    produce_frame,
    read_fetched,
    read_produced,
)
from tests.unit.broker.local_broker import (
    LiveBroker,
    Part,
    client_frame,
    control_frame,
    read_client_response,
)

METADATA, FIND_COORDINATOR, API_VERSIONS, DESCRIBE_CLUSTER = 3, 10, 18, 60
OTHER = LiveBroker(2, host="other", port=4242, rack="a rack")
ENDPOINTS = ((2, "other", 4242, "a rack"),)
BOTH: Any = {"replicas": (1, 2), "isr": (1, 2)}
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(1, log_dir=tmp_path / "logs", configs={"num.network.threads": "2"}) as started:
        yield started


def send(
    broker: EmbeddedBroker, api_key: int, *parts: Part, live: Sequence[LiveBroker] = (), version: int = 7
) -> None:
    every = live or [LiveBroker(1, host="127.0.0.1", port=broker.port), OTHER]
    frame = control_frame(api_key, version, parts, live=every, broker_epoch=-1)
    exchange("127.0.0.1", broker.port, frame)


def control(broker: EmbeddedBroker, *parts: Part) -> None:
    """Tell the broker about partitions: LeaderAndIsr for those that it has."""
    send(broker, UPDATE_METADATA, *parts)
    hosted = [part for part in parts if 1 in part.replicas]
    if hosted:
        send(broker, LEADER_AND_ISR, *hosted)


@pytest.mark.parametrize("version", [15, 16, 17])
def test_fetch_names_the_leader(broker: EmbeddedBroker, version: int) -> None:
    control(
        broker,
        Part("elsewhere", leader=2, leader_epoch=5, replicas=(2,), isr=(2,)),
        Part("here", leader=2, leader_epoch=7, **BOTH),
    )

    def fetch(topic: str, epoch: int) -> LeaderAnswer:
        frame = fetch_frame(topic, version=version, epoch=epoch)
        return read_fetched(exchange("127.0.0.1", broker.port, frame), version=version)

    def expected(error: int, *leader: Any) -> LeaderAnswer:
        return LeaderAnswer(error, *leader) if version >= 16 else LeaderAnswer(error)

    assert fetch("elsewhere", -1) == expected(NOT_LEADER, 2, 5, ENDPOINTS)
    assert fetch("here", 3) == expected(ErrorCode.FENCED_LEADER_EPOCH, 2, 7, ENDPOINTS)
    # Other errors do not name it.
    assert fetch("here", 8) == expected(ErrorCode.UNKNOWN_LEADER_EPOCH)
    assert fetch("unknown", -1) == expected(ErrorCode.UNKNOWN_TOPIC_ID)


def watchers_of_moved(core: Any) -> int:
    return int(core.partitions.get("moved", 0).watchers)


@pytest.mark.parametrize("version", [9, 10, 11])
def test_produce_names_the_leader(broker: EmbeddedBroker, version: int) -> None:
    # One that waits for the follower while the leader moves is answered by the processor.
    control(broker, Part("moved", leader_epoch=1, **BOTH))
    with socket.create_connection(("127.0.0.1", broker.port), timeout=30) as connection:
        send_frame(connection, produce_frame("moved", version=version))
        wait_until(lambda: broker.inspect(watchers_of_moved) == 1, what="the request waits")
        control(broker, Part("moved", leader=2, leader_epoch=2, **BOTH))
        named = LeaderAnswer(NOT_LEADER, 2, 2, ENDPOINTS) if version >= 10 else LeaderAnswer(NOT_LEADER)
        assert read_produced(receive_frame(connection), version=version) == named
        # A later one is answered by a handler thread.
        answer = exchange_on(connection, produce_frame("moved", version=version))
        assert read_produced(answer, version=version) == named


def test_clients_are_answered_while_logs_are_opened(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A LeaderAndIsr holds the lock of the broker's state while it opens a log, which may take seconds."""
    control(
        broker,
        Part("here", leader_epoch=1),
        Part("moved", leader_epoch=1, **BOTH),
        Part("elsewhere", leader=2, leader_epoch=5, replicas=(2,), isr=(2,)),
    )
    opened, may_go_on = threading.Event(), threading.Event()
    open_log = LogManager.open_log

    def open_slowly(self: LogManager, *args: Any, **kwargs: Any) -> Any:
        opened.set()
        assert may_go_on.wait(60)
        return open_log(self, *args, **kwargs)

    def ask(api_key: int, version: int, **fields: Any) -> Any:
        frame = client_frame(api_key, version, **fields)
        return read_client_response(api_key, version, exchange("127.0.0.1", broker.port, frame))

    moved: Any = broker.inspect(lambda core: core.replica_manager.table.get("moved", 0))  # type: ignore[union-attr]
    leading = threading.Thread(target=send, args=(broker, LEADER_AND_ISR, Part("slow", leader_epoch=1)))
    with ExitStack() as stack:
        parked = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), timeout=10))
        other = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), timeout=10))
        send_frame(parked, produce_frame("moved"))
        wait_until(lambda: moved.watchers == 1, what="the request waits")
        monkeypatch.setattr(LogManager, "open_log", open_slowly)
        leading.start()
        stack.callback(leading.join)
        stack.callback(may_go_on.set)
        assert opened.wait(30)
        # On processors
        assert read_fetched(exchange_on(other, fetch_frame("elsewhere"))) == LeaderAnswer(
            NOT_LEADER, 2, 5, ENDPOINTS
        )
        assert read_fetched(exchange_on(other, fetch_frame("here"))).error == 0
        assert read_produced(exchange_on(other, produce_frame("here"))).error == 0
        moved.make_follower(moved.log, 2, 2, 2, (1, 2), (1, 2))
        assert read_produced(receive_frame(parked)) == LeaderAnswer(NOT_LEADER, 2, 2, ENDPOINTS)
        # On handler threads
        answer = exchange_on(other, produce_frame("elsewhere"))
        assert read_produced(answer) == LeaderAnswer(NOT_LEADER, 2, 5, ENDPOINTS)
        assert ask(API_VERSIONS, 3, client_software_name="test", client_software_version="1").api_keys
        (topic,) = ask(METADATA, 12, topics=("elsewhere",)).topics
        assert [one.leader_id for one in topic.partitions] == [2]
        assert len(ask(DESCRIBE_CLUSTER, 0).brokers) == 2
        assert ask(FIND_COORDINATOR, 2, key="group", key_type=0).error_code
        assert leading.is_alive()


def test_answers_are_those_of_one_moment(broker: EmbeddedBroker) -> None:
    """Topics before the wanted one come and go, and its leader with its endpoint changes each time."""
    rounds, chosen = 150, random.Random(7)
    errors: list[LeaderAnswer] = []
    answers = 0
    ended = threading.Event()

    def live(leader: int) -> list[LiveBroker]:
        return [LiveBroker(leader, host=f"host-{leader}", port=10_000 + leader)]

    def update(leader: int, *others: Part) -> None:
        wanted = Part("wanted", leader=leader, leader_epoch=leader, replicas=(leader,), isr=(leader,))
        send(broker, UPDATE_METADATA, *others, wanted, live=live(leader))

    def look(frame: bytes, read: Any) -> None:
        nonlocal answers
        with socket.create_connection(("127.0.0.1", broker.port), timeout=30) as connection:
            while not ended.is_set():
                answer = read(exchange_on(connection, frame))
                answers += 1
                leader = answer.leader
                if answer != LeaderAnswer(
                    NOT_LEADER, leader, leader, ((leader, f"host-{leader}", 10_000 + leader, None),)
                ):
                    errors.append(answer)

    names = [f"other-{number}" for number in range(20)]
    update(2, *(Part(name, number, leader=3, replicas=(3,)) for name in names for number in range(3)))
    readers = [
        threading.Thread(target=look, args=(fetch_frame("wanted"), read_fetched)),
        threading.Thread(target=look, args=(fetch_frame("wanted"), read_fetched)),
        threading.Thread(target=look, args=(produce_frame("wanted"), read_produced)),
    ]
    for reader in readers:
        reader.start()
    try:
        for leader in range(2, rounds):
            # -2: the partition is deleted
            gone = [
                Part(name, number, leader=chosen.choice((-2, 3)), replicas=(3,))
                for name in chosen.sample(names, 5)
                for number in range(3)
            ]
            update(leader, *gone)
    finally:
        ended.set()
        for reader in readers:
            reader.join()
    assert answers > 0
    assert errors == []
