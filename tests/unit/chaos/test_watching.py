"""What the watch and the readers of a run see, and what they must report."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ctrlchan.zookeeper.nodes import PartitionState
from tests.chaos import watch
from tests.chaos.checks import Monotonic
from tests.chaos.producing import PRODUCERS, TOPICS, Load
from tests.chaos.reading import Follower, Seen, content_of
from tests.chaos.threads import make_thread
from tests.chaos.view import NotSeenError, PartitionView, TopicView
from tests.chaos.watch import Watch, look_at_epochs
from tests.kafka.processes import Reaper
from tests.kafka.waiting import wait_until
from tests.unit.chaos.small_node import SmallNode


class Unseen:
    """A ZooKeeper that does not answer."""

    def controller_epoch(self) -> int:
        raise NotSeenError


class View:
    """One partition, whose numbers a test sets."""

    def __init__(self) -> None:
        self.numbers = {"controller": 3, "leader": 7, "partition": 9}
        self.topic_id = b"a" * 16

    def controller_epoch(self) -> int:
        return self.numbers["controller"]

    def topics(self) -> list[str]:
        return ["t"]

    def topic(self, _name: str) -> TopicView:
        state = PartitionState(1, self.numbers["leader"], self.numbers["controller"], [1, 2])
        return TopicView(self.topic_id, {0: PartitionView([1, 2], state, self.numbers["partition"])}, False)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SmallNode]:
    reaper = Reaper()
    node = SmallNode("node", tmp_path / "node", reaper)
    node.start(threading.Event())
    yield node
    node.kill()
    reaper.close()


@pytest.fixture
def watched(node: SmallNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    monkeypatch.setattr(watch, "PAUSE", 0.01)
    monkeypatch.setattr(watch, "DEADLINE", 0.3)
    cluster: Any = SimpleNamespace(nodes={"node": node}, view=Unseen())
    watched = Watch(cluster, tmp_path)
    watched.start()
    yield watched
    watched.stop()


def test_a_process_that_does_not_answer_is_found(node: SmallNode, watched: Watch, tmp_path: Path) -> None:
    # One that is frozen by the plan need not answer.
    with node.frozen():
        node.asked.clear()
        (node.folder / "ready").unlink()
        assert not node.asked.wait(0.5)
    assert watched.failures == []
    wait_until(lambda: watched.failures, what="it is found")
    assert watched.failures == ["node does not answer for 0.3 s: stacks-node-*.txt"]
    assert len(list(tmp_path.glob("stacks-node-*.txt"))) == 1


def test_a_process_that_has_ended_is_found(node: SmallNode, watched: Watch) -> None:
    node.signal(signal.SIGKILL)
    wait_until(lambda: watched.failures, what="it is found")
    assert watched.failures[0].startswith("node ended with status -9")


@pytest.mark.parametrize("name", ["controller", "leader", "partition"])
def test_an_epoch_that_goes_back_is_found(name: str) -> None:
    view, epochs = View(), Monotonic()
    cluster: Any = SimpleNamespace(view=view)
    for _ in range(2):
        assert look_at_epochs(cluster, epochs.check) == []
        view.numbers[name] += 1
    view.numbers[name] -= 2
    (line, *_) = look_at_epochs(cluster, epochs.check)
    assert f"{name} epoch" in line
    assert "went back" in line
    # Another topic with the same name begins again.
    view = View()
    view.topic_id, view.numbers["leader"], view.numbers["partition"] = b"b" * 16, 0, 0
    view.numbers["controller"] = 9
    assert look_at_epochs(SimpleNamespace(view=view), epochs.check) == []  # type: ignore[arg-type]


class Message:
    """A message of a consumer."""

    def __init__(self, offset: int, value: bytes = b"v", epoch: int = 1, error: object = None) -> None:
        self._offset, self._value, self._epoch, self._error = offset, value, epoch, error

    def topic(self) -> str:
        return TOPICS[0].name

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return 1, 1000

    def leader_epoch(self) -> int:
        return self._epoch

    def error(self) -> object:
        return self._error


class Error:
    """An error of a consumer."""

    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        return self._name

    def fatal(self) -> bool:
        return False

    def str(self) -> str:
        return "text"


def follower(*offsets: int) -> Follower:
    follower = Follower("127.0.0.1:1", TOPICS[0])
    for offset in offsets:
        follower.take(Message(offset))
    return follower


def test_a_follower_reads_every_offset_once() -> None:
    assert follower(0, 1, 2).failures == []
    assert follower(0, 2).failures == ["reader of orders: orders-0: offset 2, where 1 comes next"]
    assert follower(0, 0).failures == ["reader of orders: orders-0: offset 0, where 1 comes next"]
    ends = {(TOPICS[0].name, number): 0 for number in range(TOPICS[0].partitions)} | {("orders", 0): 3}
    assert follower(0, 1, 2).behind(ends) == []
    assert follower(0, 1).behind(ends) == ["orders-0 is read up to 2 of 3 ({})"]


@pytest.mark.parametrize("other", [Message(0, b"w"), Message(0, epoch=2)], ids=["value", "leader epoch"])
def test_a_record_that_has_changed_is_found(other: Message) -> None:
    reader = follower()
    seen = Seen()
    reader.compare(seen, other)
    seen.add(0, content_of(Message(0)))
    reader.compare(seen, Message(0))
    assert reader.failures == []
    reader.compare(seen, other)
    assert reader.failures == ["reader of orders: orders-0 at 0: another record than before"]


def test_an_offset_that_is_gone_is_a_failure_and_a_leader_that_moved_is_none() -> None:
    reader = follower()
    moved, gone = (
        Message(5, error=Error("NOT_LEADER_OR_FOLLOWER")),
        Message(5, error=Error("_AUTO_OFFSET_RESET")),
    )
    good = Message(0)
    assert list(reader.messages([moved, good])) == [good]
    assert (reader.failures, reader.errors) == ([], {"NOT_LEADER_OR_FOLLOWER": 1})
    assert list(reader.messages([gone])) == []
    assert reader.failures == ["reader of orders: orders-0 at 5: _AUTO_OFFSET_RESET: text"]


def test_a_record_that_a_producer_gives_up_is_a_failure() -> None:
    load = Load(0, PRODUCERS[0], TOPICS[0], "127.0.0.1:1", 1.0)
    numbers = load.partitions[0]
    for _ in range(3):
        numbers.add()
    load.delivered(None, Message(7), 0)
    # The broker did not know the topic yet.
    load.delivered(Error("_UNKNOWN_TOPIC"), Message(-1), 1)
    assert (load.failures, load.acknowledged, load.refused, load.open()) == ([], 1, 1, 1)
    assert list(numbers.acknowledged()) == [(0, 7)]
    load.delivered(Error("INVALID_RECORD"), Message(-1), 2)
    assert load.failures == ["idempotent lz4 producer 0 of orders: INVALID_RECORD: text"]


def test_an_error_of_a_thread_is_a_failure() -> None:
    failures: list[str] = []
    thread = make_thread("reader", failures, int, "x")  # type: ignore[arg-type]
    thread.start()
    thread.join()
    (line,) = failures
    assert line.startswith("reader: ValueError(")
