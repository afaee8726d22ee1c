"""A full state replaces a long backlog; it is read from the state when the broker is ready."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctrlchan import ChannelMetrics, ControllerBrokerRequestBatch, EmbeddedBroker
from ctrlchan._codec import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    UpdateMetadataRequest,
    update_metadata_body,
)
from ctrlchan.batch.selection import Int32
from ctrlchan.broker.metadata.metadata_cache import MetadataCache
from ctrlchan.channel import (
    ControllerChannelManager,
    ControlRequest,
    FullState,
    FullStateSource,
    Outcome,
    OutcomeKind,
    Sent,
)
from ctrlchan.state import Broker, ClusterState
from tests.fault.channels import channel_to, config, eventually, peers
from tests.fault.peer import Exchange, Peer, answer, silence, succeed
from tests.fault.requests import leader_and_isr, stop_replica
from tests.fault.secure_peer import SecurePeer
from tests.fault.test_merging import bodies, known, one_row, request, until_handed
from tests.unit.batch.manual_channel import metadata_of
from tests.unit.channel.bodies import DELETED, PlainUpdate, applied

Deletions = Mapping[bytes, Int32]
#: Smaller than one request with all rows.
BOUND = 4000
PARTITIONS = 60


def some_state(brokers: Sequence[Broker], topics: int = 2) -> ClusterState:
    state = ClusterState.empty(controller_id=0, controller_epoch=7)
    state.set_brokers(brokers)
    for number in range(topics):
        add(state, f"topic-{number}", number + 1)
    return state


def add(state: ClusterState, topic: str, id: int, partitions: int = PARTITIONS) -> None:
    rows = {partition: [1, 2] for partition in range(partitions)}
    state.add_topic(topic, rows, bytes([id]) * 16, leader=1, leader_epoch=0, isr=[1, 2])


def block(peer: Peer, until: threading.Event) -> None:
    """Answer the next request when the event is set."""

    def later(exchange: Exchange) -> None:
        assert until.wait(30)
        succeed(exchange)

    peer.script.append(later)


class Pusher:
    """A channel to peers that answer nothing until ``go``, and a state that is pushed to them."""

    def __init__(self, channel: ControllerChannelManager, brokers: Sequence[Peer]) -> None:
        self.channel = channel
        self.peers = brokers
        self.ids = [peer.broker_id for peer in brokers]
        self.state = some_state([peer.broker for peer in brokers])
        self.batch = ControllerBrokerRequestBatch(channel, self.state)
        self.sent: list[Sent] = []
        self.value = 0
        self.going = threading.Event()

    def block(self) -> None:
        """Hand over two requests to each broker, the first without an answer; later ones wait."""
        for peer in self.peers:
            block(peer, self.going)
        for number in range(2):
            self.sent += self.channel.send_requests(self.ids, leader_and_isr(number))
        for peer in self.peers:
            until_handed(self.channel, peer)

    def push(self, rows: object = "all") -> None:
        self.batch.new_batch()
        self.batch.add_update_metadata(self.ids, rows)  # type: ignore[arg-type]
        self.sent += self.batch.send_requests_to_brokers(7)

    def change(self, times: int = 1) -> None:
        """Change and push all rows, ``times`` times."""
        for _ in range(times):
            self.value += 1
            self.state.update("all", leader_epoch=self.value)
            self.push()

    def go(self) -> None:
        self.going.set()

    def wait(self) -> list[Outcome]:
        return self.channel.wait(self.sent, 20)

    def described(self, broker_id: int = 1) -> dict[str, object]:
        broker: dict[str, object] = self.channel.describe()["brokers"][broker_id]
        return broker

    def check(self) -> None:
        """Assert that the peers have the state, and that shared memory is empty."""
        for peer in self.peers:
            cache = applied(MetadataCache(), bodies(peer))
            assert metadata_of(cache.state) == metadata_of(self.state)
        eventually(lambda: self.channel.describe()["shared_memory_bytes"] == 0)


@contextmanager
def pusher(count: int = 1, **settings: object) -> Iterator[Pusher]:
    with (
        peers(count) as brokers,
        channel_to(brokers, **({"max_backlog_bytes": BOUND} | settings)) as channel,
    ):
        made = Pusher(channel, brokers)
        made.push()
        made.wait()
        yield made
        made.go()


def rows_of(peer: Peer) -> list[int]:
    return [len(body.partitions) for body in bodies(peer)]


def test_a_full_state_replaces_a_backlog_when_the_broker_is_ready() -> None:
    with pusher() as one:
        one.block()
        before = one.channel.describe()["shared_memory_bytes"]
        one.change(200)
        described = one.described()
        assert described["queue_size"] == 3
        collapsed = described["collapsed"]
        assert isinstance(collapsed, int)
        assert 200 - 64 < collapsed <= 200
        # Of the 200 requests no body is kept.
        assert one.channel.describe()["shared_memory_bytes"] == before
        # The full state also has changes that were never pushed.
        one.state.update("all", leader_epoch=1000)
        one.go()
        outcomes = one.wait()[-200:]
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.ACKNOWLEDGED}
        assert {outcome.merged for outcome in outcomes} == {200}
        assert len({(outcome.correlation_id, outcome.response_ns) for outcome in outcomes}) == 1
        assert rows_of(one.peers[0]) == [2 * PARTITIONS] * 2
        described = one.channel.describe()
        assert (described["full_states"], described["collapsed_requests"]) == (1, 200)
        one.check()


def test_metrics_count_a_full_state() -> None:
    metrics = ChannelMetrics()
    with (
        peers(1) as brokers,
        ControllerChannelManager(config(max_backlog_bytes=BOUND), 7, metrics=metrics) as channel,
    ):
        channel.startup([brokers[0].broker])
        one = Pusher(channel, brokers)
        one.block()
        one.change(50)
        one.go()
        one.wait()
        values = {
            (sample.name, sample.labels.get("broker_id")): sample.value
            for family in metrics.collect()
            for sample in family.samples
        }
        assert values["ctrlchan_channel_collapsed_requests_total", "1"] == one.described()["collapsed"]
        assert values["ctrlchan_channel_full_states_total", None] == channel.describe()["full_states"] >= 1


def test_differences_are_sent_after_a_full_state() -> None:
    with pusher() as one:
        one.block()
        for value in range(1, 40):
            one.state.update(slice(0, PARTITIONS), leader_epoch=value)
            one.push("changed")
            one.state.update(slice(PARTITIONS, 2 * PARTITIONS), leader_epoch=value)
            one.push("changed")
        assert one.described()["collapsed"]
        one.go()
        one.wait()
        one.check()
        count = len(one.sent)
        one.push("changed")
        assert len(one.sent) == count
        one.state.update(5, leader_epoch=100)
        one.push("changed")
        one.wait()
        assert rows_of(one.peers[0])[-1] == 1
        one.check()


def test_a_full_state_contains_the_deletions_of_the_backlog() -> None:
    with pusher() as one:
        one.block()
        # One topic of the broker is deleted, one is deleted and created again with fewer partitions, and one
        # is created and deleted.
        one.state.mark_topics_deleting(["topic-0", "topic-1"])
        one.push()
        one.state.remove_topics(["topic-0", "topic-1"])
        add(one.state, "topic-1", 9, partitions=3)
        add(one.state, "passing", 10, partitions=3)
        one.push()
        one.state.mark_topics_deleting(["passing"])
        one.push()
        one.state.remove_topics(["passing"])
        add(one.state, "new", 11)
        one.change(40)
        assert one.described()["collapsed"]
        one.go()
        one.wait()
        last = bodies(one.peers[0])[-1]
        assert np.count_nonzero(last.partitions.leader == DELETED) == PARTITIONS + PARTITIONS - 3 + 3
        one.check()


def test_the_order_of_requests_is_kept_and_only_the_first_full_state_has_everything() -> None:
    with pusher() as one:
        one.block()
        for make in (leader_and_isr, stop_replica, leader_and_isr):
            one.change(20)
            one.sent += one.channel.send_requests(one.ids, make(5))
        one.change(20)
        assert one.described()["queue_size"] == 2 + 7
        one.go()
        one.wait()
        received = [exchange.api_key for exchange in one.peers[0].received]
        update = UPDATE_METADATA
        assert received[3:] == [
            *(update, LEADER_AND_ISR, update, STOP_REPLICA, update, LEADER_AND_ISR, update)
        ]
        # The broker has everything already, so only the live brokers are sent.
        assert rows_of(one.peers[0])[1:] == [2 * PARTITIONS, 0, 0, 0]
        one.check()


def test_metadata_sent_in_between_is_sent_again() -> None:
    """A request with a timeout keeps its place and its body, which may be older than the state."""
    with pusher() as one:
        one.block()
        one.change(20)
        old = request(PlainUpdate(8, {"topic-0": (1, {0: 1})}, tuple(one.ids), value=3))
        one.sent += one.channel.send_requests(one.ids, old, timeout=60)
        one.change(20)
        one.go()
        one.wait()
        assert rows_of(one.peers[0])[1:] == [2 * PARTITIONS, 1, 2 * PARTITIONS]
        one.check()


def test_brokers_share_a_full_state() -> None:
    with pusher(4) as one:
        all_have_it = threading.Barrier(4)

        def wait_for_others(exchange: Exchange) -> None:
            all_have_it.wait(20)
            succeed(exchange)

        one.block()
        for peer in one.peers:
            peer.script.extend([succeed, wait_for_others])
        one.change(50)
        one.go()
        one.wait()
        described = one.channel.describe()
        assert (described["full_states"], described["collapsed_requests"]) == (1, 200)
        one.check()


def test_every_callback_returns_before_the_next_request_is_sent() -> None:
    with pusher() as one:
        called: list[Outcome] = []
        one.batch = ControllerBrokerRequestBatch(
            one.channel, one.state, on_update_metadata_response=called.append
        )
        one.block()
        one.change(50)
        count: list[int] = []
        one.peers[0].script.extend(
            [succeed, succeed, lambda exchange: (count.append(len(called)), succeed(exchange))]  # type: ignore[func-returns-value, list-item]
        )
        one.sent += one.channel.send_requests(one.ids, leader_and_isr(9))
        one.go()
        one.wait()
        assert (len(called), count) == (50, [50])


def test_a_large_full_state_is_sent_in_parts() -> None:
    with pusher(max_request_bytes=2500) as one:
        one.block()
        one.change(50)
        one.go()
        outcomes = one.wait()
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.ACKNOWLEDGED}
        assert all(len(exchange.frame) <= 2500 for exchange in one.peers[0].received)
        one.check()


def test_a_broker_of_another_version_gets_a_full_state_of_that_version() -> None:
    peer = SecurePeer(broker_id=1, asked=True)
    with peer:
        peer.versions[UPDATE_METADATA] = (0, 5)
        with channel_to([peer], negotiate=True, max_backlog_bytes=BOUND) as channel:
            eventually(lambda: channel.describe()["brokers"][1]["state"] == "connected")
            one = Pusher(channel, [peer])
            one.block()
            one.change(30)
            assert one.described()["collapsed"]
            peer.versions[UPDATE_METADATA] = (0, 6)
            peer.drop_connections()
            one.go()
            one.wait()
            assert {
                exchange.version for exchange in peer.received if exchange.api_key == UPDATE_METADATA
            } == {5}
            assert len(bodies(peer)[-1].partitions) == 2 * PARTITIONS


# -- sources that fail


def failing(problem: Exception) -> FullStateSource:
    @contextmanager
    def source(version: int, known: Hashable | None, deletions: Deletions) -> Iterator[FullState]:
        raise problem
        yield

    return source


def wrong_version(version: int, known: Hashable | None, deletions: Deletions) -> Iterator[FullState]:
    state = some_state([])
    shared_body = update_metadata_body(version - 1, state.topics, state.partitions, state.brokers)
    yield FullState(shared_body)


def large(value: int, source: FullStateSource) -> ControlRequest:
    made = request(PlainUpdate(8, {"topic": (1, dict.fromkeys(range(100), 1))}, (1,), value))
    made.full_state = source
    return made


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (failing(RuntimeError("the state is on strike")), "the state is on strike"),
        (contextmanager(wrong_version), "of UpdateMetadata version 8"),
    ],
)
def test_a_source_that_fails_ends_only_the_backlog(
    source: FullStateSource, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with peers(1) as [peer], channel_to([peer], max_backlog_bytes=BOUND) as channel:
        peer.gate.clear()
        sent = [channel.send_request(1, leader_and_isr(number)) for number in range(2)]
        until_handed(channel, peer)
        called: list[Outcome] = []
        dropped = [channel.send_request(1, large(value, source), called.append) for value in range(30)]
        last = channel.send_request(1, leader_and_isr(9))
        peer.gate.set()
        channel.wait([*sent, *dropped, last], 10)
        assert len(called) == 30
        assert {outcome.kind for outcome in called} == {OutcomeKind.REFUSED}
        assert {reason in outcome.detail for outcome in called} == {True}
        assert last.outcome is not None
        assert last.outcome.kind is OutcomeKind.ACKNOWLEDGED
        assert channel.needs_resync(1)
        assert bodies(peer) == []
        eventually(lambda: channel.describe()["shared_memory_bytes"] == 0)
    assert "The full state for" in caplog.text


class Held:
    """A source that does not return before ``go``."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.asked, self.go = threading.Event(), threading.Event()

    @contextmanager
    def __call__(self, version: int, known: Hashable | None, deletions: Deletions) -> Iterator[FullState]:
        self.asked.set()
        assert self.go.wait(20)
        yield FullState(
            update_metadata_body(version, self.state.topics, self.state.partitions, self.state.brokers)
        )


def resign(channel: ControllerChannelManager, _: Sequence[Sent]) -> None:
    channel.resign()


def remove(channel: ControllerChannelManager, _: Sequence[Sent]) -> None:
    channel.remove_broker(1)


def cancel(channel: ControllerChannelManager, sent: Sequence[Sent]) -> None:
    assert channel.cancel(sent) == len(sent)


def newer(channel: ControllerChannelManager, _: Sequence[Sent]) -> None:
    with Peer(1, 2000) as peer:
        channel.add_broker(peer.broker)


@pytest.mark.parametrize(
    ("how", "end"),
    [
        (resign, OutcomeKind.FENCED),
        (remove, OutcomeKind.BROKER_GONE),
        (cancel, OutcomeKind.CANCELLED),
        (newer, OutcomeKind.BROKER_GONE),
    ],
)
def test_a_backlog_that_ends_while_the_state_is_read_is_not_sent(
    how: Callable[[ControllerChannelManager, Sequence[Sent]], None], end: OutcomeKind
) -> None:
    with peers(2) as brokers, channel_to(brokers, max_backlog_bytes=BOUND) as channel:
        source = Held(some_state([brokers[0].broker]))
        brokers[0].gate.clear()
        sent = [channel.send_request(1, leader_and_isr(number)) for number in range(2)]
        until_handed(channel, brokers[0])
        dropped = [channel.send_request(1, large(value, source)) for value in range(30)]
        last = channel.send_request(1, leader_and_isr(9))
        brokers[0].gate.set()
        assert source.asked.wait(10)
        how(channel, dropped)
        source.go.set()
        outcomes = channel.wait([*sent, *dropped], 10)
        assert {outcome.kind for outcome in outcomes[2:]} == {end}
        assert bodies(brokers[0]) == []
        if how is cancel:
            # The next request is sent.
            assert channel.wait([last], 10)[0].kind is OutcomeKind.ACKNOWLEDGED
        eventually(lambda: channel.describe()["shared_memory_bytes"] == 0)


def test_a_collapsed_backlog_is_cancelled_as_a_whole_or_not_at_all() -> None:
    with pusher() as one:
        one.block()
        one.change(30)
        one.sent += one.channel.send_requests(one.ids, leader_and_isr(9))
        dropped = one.sent[-31:-1]
        assert one.channel.cancel(dropped[:10]) == 0
        assert one.channel.cancel(dropped) == 30
        one.go()
        kinds = [outcome.kind for outcome in one.wait()]
        assert kinds[-31:] == [OutcomeKind.CANCELLED] * 30 + [OutcomeKind.ACKNOWLEDGED]
        assert rows_of(one.peers[0]) == [2 * PARTITIONS]
        # The backlog was never sent, and all rows have changed since the acknowledged push.
        one.push("changed")
        one.wait()
        one.check()


def test_requests_without_a_full_state_keep_their_bodies() -> None:
    with pusher() as one:
        one.block()
        one.change(5)
        stranger = one_row(5)
        one.sent += one.channel.send_requests(one.ids, stranger)
        one.change(30)
        one.go()
        one.wait()
        partitions = known(bodies(one.peers[0]))["partitions"]
        assert partitions["topic", 0][1] == 5


def test_without_merging_every_request_is_sent_unchanged() -> None:
    with pusher(merge_update_metadata=False) as one:
        one.block()
        one.change(20)
        one.go()
        one.wait()
        assert rows_of(one.peers[0]) == [2 * PARTITIONS] * 21
        assert one.channel.describe()["collapsed_requests"] == 0


# -- processes and connections


@pytest.mark.parametrize("when", ["before", "in flight"])
def test_a_full_state_survives_the_death_of_a_sender(when: str) -> None:
    with pusher() as one:
        [peer] = one.peers
        one.block()
        one.change(40)
        pid = one.described()["sender_pid"]
        assert isinstance(pid, int)
        if when == "in flight":
            peer.script.extend([succeed, silence])
            one.go()
            peer.until(lambda: len(bodies(peer)) == 2)
        os.kill(pid, signal.SIGKILL)
        one.go()
        outcomes = one.wait()
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.ACKNOWLEDGED}
        assert outcomes[-1].sender_deaths == (when == "in flight")
        one.check()


def test_an_error_ends_every_request_and_the_next_push_is_full() -> None:
    with pusher() as one:
        one.push("changed")
        one.block()
        one.peers[0].script.extend([succeed, answer(31)])
        for value in range(40):
            one.state.update("all", leader_epoch=value + 1)
            one.push("changed")
        one.sent += one.channel.send_requests(one.ids, leader_and_isr(9))
        one.go()
        outcomes = one.wait()
        assert {outcome.error_code for outcome in outcomes[-41:-1]} == {31}
        assert one.channel.needs_resync(1)
        one.push("changed")
        one.wait()
        assert not one.channel.needs_resync(1)
        assert rows_of(one.peers[0])[-1] == 2 * PARTITIONS
        one.check()


def test_a_state_may_change_all_the_time() -> None:
    """A thread changes the state without waiting for the channel; in the end the brokers have it."""
    with pusher(3) as one:
        chance = np.random.default_rng(1)
        for step in range(400):
            peer = one.peers[int(chance.integers(3))]
            if step % 7 == 0:
                peer.gate.clear()
            elif step % 3 == 0:
                peer.gate.set()
            if step % 29 == 0 and "extra" in [name.decode() for name in names(one.state)]:
                one.state.mark_topics_deleting(["extra"])
                one.push()
                one.state.remove_topics(["extra"])
            elif step % 23 == 0 and "extra" not in [name.decode() for name in names(one.state)]:
                add(one.state, "extra", step % 200, partitions=step % 50 + 1)
                one.push()
            else:
                one.change()
            # A change that is pushed only with the next one.
            one.state.update(int(chance.integers(2 * PARTITIONS)), partition_epoch=step)
        one.push()
        for peer in one.peers:
            peer.gate.set()
        assert {outcome.kind for outcome in one.wait()} == {OutcomeKind.ACKNOWLEDGED}
        assert one.channel.describe()["full_states"] > 3
        one.check()


def names(state: ClusterState) -> list[bytes]:
    return [state.topics.names[row] or b"" for row in range(len(state.topics))]


def test_an_embedded_broker_that_was_away_has_the_state() -> None:
    with (
        EmbeddedBroker(1, epoch=1) as broker,
        ControllerChannelManager(config(max_backlog_bytes=BOUND), 7) as channel,
    ):
        state = some_state([broker.broker])
        channel.startup(state.brokers)
        [pid] = senders(channel)
        os.kill(pid, signal.SIGSTOP)
        batch = ControllerBrokerRequestBatch(channel, state)
        sent = []
        for value in range(100):
            state.update("all", leader_epoch=value)
            batch.new_batch()
            batch.add_update_metadata([1], "all")
            sent += batch.send_requests_to_brokers(7)
        os.kill(pid, signal.SIGCONT)
        assert {outcome.kind for outcome in channel.wait(sent, 20)} == {OutcomeKind.ACKNOWLEDGED}
        assert channel.describe()["full_states"] == 1
        assert broker.inspect(lambda core: metadata_of(core.metadata.state)) == metadata_of(state)


def senders(channel: ControllerChannelManager) -> list[int]:
    eventually(lambda: all(one["sender_pid"] for one in channel.describe()["brokers"].values()))
    return [one["sender_pid"] for one in channel.describe()["brokers"].values()]


# -- any sequence

TOPICS = ("a", "b", "long-name-of-a-topic")

#: (action, topic, number).
step = st.tuples(
    st.sampled_from(
        ["lead", "lead", "lead", "add", "delete", "all", "changed", "brokers", "rows", "leader", "stop"]
    ),
    st.sampled_from(TOPICS),
    st.integers(0, 5),
)


class Scenario:
    """One batch sends the same to two brokers; one of them reads nothing until the end."""

    def __init__(self, channel: ControllerChannelManager, quick: Peer, slow: Peer) -> None:
        self.channel = channel
        self.state = ClusterState.empty(controller_id=0, controller_epoch=7)
        self.peers = (quick, slow)
        self.state.set_brokers([quick.broker, slow.broker])
        self.batch = ControllerBrokerRequestBatch(channel, self.state)
        self.sent: list[Sent] = []
        self.value = 0

    def push(self, rows: object) -> None:
        self.batch.new_batch()
        self.batch.add_update_metadata([1, 2], rows)  # type: ignore[arg-type]
        self.sent += self.batch.send_requests_to_brokers(7)

    def take(self, what: str, topic: str, number: int) -> None:
        self.value += 1
        there = topic.encode() in names(self.state)
        if what == "add" and not there:
            add(self.state, topic, self.value % 255 + 1, partitions=number + 1)
            self.push(self.state.rows_of_topic(topic))
        elif what == "lead" and there:
            rows = self.state.rows_of_topic(topic)
            self.state.update(rows, leader_epoch=self.value, leader=number - 1)
            self.push(rows)
        elif what == "delete" and there:
            self.state.mark_topics_deleting([topic])
            self.push(self.state.rows_of_topic(topic))
            self.state.remove_topics([topic])
        elif what in ("all", "changed"):
            self.push(what)
        elif what == "rows" and there:
            self.state.update(self.state.rows_of_topic(topic).start, partition_epoch=self.value)
            self.push(self.state.rows_of_topic(topic).start)
        elif what == "brokers":
            extra = Broker(7 + number, self.value, self.peers[0].broker.endpoints)
            self.state.set_brokers([*(peer.broker for peer in self.peers), extra])
            self.push(())
        elif what == "leader":
            self.sent += self.channel.send_requests([1, 2], leader_and_isr(self.value))
        elif what == "stop":
            self.sent += self.channel.send_requests([1, 2], stop_replica(self.value))


class TwoPeers:
    """What all examples share; each example has new generations of both brokers."""

    def __init__(self, channel: ControllerChannelManager, quick: Peer, slow: Peer) -> None:
        self.channel, self.quick, self.slow = channel, quick, slow

    def begin(self) -> None:
        for peer in (self.quick, self.slow):
            peer.epoch += 1
            self.channel.add_broker(peer.broker)
            peer.received.clear()


@pytest.fixture(scope="module")
def two_peers() -> Iterator[TwoPeers]:
    with peers(2) as [quick, slow], channel_to([quick, slow], max_backlog_bytes=300) as channel:
        yield TwoPeers(channel, quick, slow)
        # Some examples had full states.
        assert channel.describe()["full_states"] > 10


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(step, min_size=30, max_size=80))
def test_any_sequence_leaves_a_broker_in_the_same_state(
    two_peers: TwoPeers, steps: list[tuple[str, str, int]]
) -> None:
    channel, quick, slow = two_peers.channel, two_peers.quick, two_peers.slow
    two_peers.begin()
    scenario = Scenario(channel, quick, slow)
    slow.gate.clear()
    scenario.sent += channel.send_requests([1, 2], leader_and_isr(0)) + channel.send_requests(
        [1, 2], leader_and_isr(1)
    )
    until_handed(channel, slow)
    scenario.push("all")
    for one in steps:
        scenario.take(*one)
    channel.wait([sent for sent in scenario.sent if sent.broker_id == 1], 20)
    slow.gate.set()
    assert {outcome.kind for outcome in channel.wait(scenario.sent, 20)} == {OutcomeKind.ACKNOWLEDGED}
    assert picture_of(bodies(slow)) == picture_of(bodies(quick))
    assert metadata_of(applied(MetadataCache(), bodies(slow)).state) == metadata_of(scenario.state)
    others = [exchange.api_key for exchange in quick.received if exchange.api_key != UPDATE_METADATA]
    assert [e.api_key for e in slow.received if e.api_key != UPDATE_METADATA] == others
    eventually(lambda: channel.describe()["shared_memory_bytes"] == 0)


def picture_of(requests: Sequence[UpdateMetadataRequest]) -> dict[str, object]:
    """Return the metadata without the ids of topics without partitions, which a full state does not have."""
    picture = known(requests)
    named = {topic for topic, _ in picture["partitions"]}
    return picture | {"ids": {topic: id for topic, id in picture["ids"].items() if topic in named}}
