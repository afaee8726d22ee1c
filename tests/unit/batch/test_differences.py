"""rows="changed": each broker is sent its missing metadata, however earlier requests ended."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctrlchan import ControllerBrokerRequestBatch
from ctrlchan._codec import UpdateMetadataRequest
from ctrlchan.batch.known_metadata import KnownMetadata
from ctrlchan.channel import OutcomeKind
from ctrlchan.state import ClusterState
from tests.unit.batch.manual_channel import ManualChannel, broker, metadata_of

IDS = [1, 2, 3]


def some_state(topics: int = 3, partitions: int = 4) -> ClusterState:
    state = ClusterState.empty(controller_id=1, controller_epoch=5)
    state.set_brokers([broker(one) for one in IDS])
    for topic in range(topics):
        assignment = {p: [IDS[p % 3], IDS[(p + 1) % 3]] for p in range(partitions)}
        state.add_topic(f"topic{topic}", assignment, topic_id=bytes([topic + 1]) * 16)
    state.update("all", leader=1, leader_epoch=0, isr=[1])
    return state


class Pusher:
    def __init__(self, state: ClusterState, ibp: str = "3.9") -> None:
        self.state = state
        self.channel = ManualChannel(IDS, ibp)
        self.batch = ControllerBrokerRequestBatch(self.channel, state)

    def push(self, rows: object = "changed", brokers: list[int] | None = None) -> None:
        self.batch.new_batch()
        self.batch.add_update_metadata(IDS if brokers is None else brokers, rows)  # type: ignore[arg-type]
        self.batch.send_requests_to_brokers(5)

    def sent(
        self, rows: object = "changed", brokers: list[int] | None = None
    ) -> list[tuple[list[int], set[str]]]:
        """Push and acknowledge all; return (brokers, partitions sent to them) for each request."""
        before = len(self.channel.requests)
        self.push(rows, brokers)
        self.channel.end_all()
        return [(ids, names(message)) for ids, message, _ in self.channel.requests[before:]]

    def check(self) -> None:
        for broker_id, cache in self.channel.caches.items():
            assert metadata_of(cache.state) == metadata_of(self.state), broker_id


def names(message: UpdateMetadataRequest) -> set[str]:
    """Return ``topic-partition``, with a minus before those with leader -2."""
    found = set()
    for i in range(len(message.topics)):
        for row in range(int(message.topic_starts[i]), int(message.topic_starts[i + 1])):
            sign = "-" if message.partitions.leader[row] == -2 else ""
            found.add(
                f"{sign}{(message.topics.names[i] or b'').decode()}-{message.partitions.partition[row]}"
            )
    return found


@pytest.fixture
def pusher() -> Pusher:
    return Pusher(some_state())


def test_everything_at_first_then_what_changed_then_nothing(pusher: Pusher) -> None:
    [(ids, rows)] = pusher.sent()
    assert ids == IDS
    assert len(rows) == 12
    pusher.check()
    assert pusher.sent() == []
    pusher.state.update(pusher.state.row("topic1", 2), leader=2, leader_epoch=1)
    assert pusher.sent() == [(IDS, {"topic1-2"})]
    pusher.check()
    assert pusher.sent() == []


def test_a_push_of_all_counts_as_known(pusher: Pusher) -> None:
    pusher.sent("all")
    assert pusher.sent() == []
    pusher.state.update(0, leader_epoch=1)
    assert pusher.sent() == [(IDS, {"topic0-0"})]


def test_brokers_with_the_same_missing_metadata_share_a_request(pusher: Pusher) -> None:
    pusher.sent()
    pusher.state.update(0, leader_epoch=1)
    assert pusher.sent(brokers=[2]) == [([2], {"topic0-0"})]
    pusher.state.update(5, leader_epoch=1)
    assert pusher.sent() == [([1, 3], {"topic0-0", "topic1-1"}), ([2], {"topic1-1"})]
    pusher.state.update(6, leader_epoch=1)
    # All brokers know the same now, after different requests.
    rows_sent = [rows for _, rows in pusher.sent()]
    assert rows_sent == [{"topic1-2"}] * len(rows_sent)
    pusher.check()


def test_rows_that_were_named_are_not_sent_twice(pusher: Pusher) -> None:
    pusher.sent()
    pusher.state.update([0, 5, 7], leader_epoch=1)
    pusher.sent(np.array([0, 7]))
    assert pusher.sent() == [(IDS, {"topic1-1"})]
    # A named row counts as known in the version that was sent.
    pusher.state.update(3, leader_epoch=1)
    pusher.sent(3)
    pusher.state.update(3, leader_epoch=2)
    assert pusher.sent() == [(IDS, {"topic0-3"})]
    for row in range(12):
        pusher.state.update(row, partition_epoch=1)
        pusher.sent(row)
    # Only the last few such pushes are remembered; rows of the others are sent again.
    [(_, rows)] = pusher.sent()
    assert rows == {f"topic{row // 4}-{row % 4}" for row in range(4)}
    pusher.check()


def test_metadata_in_flight_is_not_sent_again(pusher: Pusher) -> None:
    pusher.push()
    pusher.push()
    pusher.state.update(0, leader_epoch=1)
    pusher.push()
    pusher.push()
    assert [len(queue) for queue in pusher.channel.queues.values()] == [2, 2, 2]
    known: KnownMetadata | None = pusher.channel.acknowledged.of(1)
    assert known is None
    pusher.channel.end_all()
    known = pusher.channel.acknowledged.of(1)
    assert known is not None
    assert known.version == pusher.state.changes.version
    pusher.check()


@pytest.mark.parametrize("kind", [OutcomeKind.REFUSED, OutcomeKind.FENCED, OutcomeKind.TOO_LARGE])
def test_a_broker_is_sent_everything_after_a_failure(pusher: Pusher, kind: OutcomeKind) -> None:
    pusher.sent()
    pusher.state.update(0, leader_epoch=1)
    pusher.push()
    pusher.channel.end_next(2, kind, applied=False)
    pusher.channel.end_all()
    pusher.state.update(1, leader_epoch=1)
    sent = {tuple(ids): rows for ids, rows in pusher.sent()}
    assert sent[1, 3] == {"topic0-1"}
    assert len(sent[2,]) == 12
    assert [request.full for _, _, request in pusher.channel.requests] == [True, False, False, True]
    pusher.check()
    assert pusher.sent() == []


def test_only_cancelled_metadata_is_sent_again(pusher: Pusher) -> None:
    pusher.sent()
    pusher.state.update(0, leader_epoch=1)
    pusher.push()
    pusher.state.update(1, leader_epoch=1)
    pusher.push()
    pusher.channel.end_next(2, OutcomeKind.CANCELLED, applied=False)
    pusher.channel.end_all()
    pusher.state.update(2, leader_epoch=1)
    sent = pusher.sent()
    assert sent == [([1, 3], {"topic0-2"}), ([2], {"topic0-0", "topic0-1", "topic0-2"})]
    pusher.check()


def test_a_metadata_error_of_another_request_makes_a_full_push_necessary(pusher: Pusher) -> None:
    pusher.sent()
    pusher.channel.metadata_error(3)
    [(ids, rows)] = pusher.sent()
    assert (ids, len(rows)) == ([3], 12)
    # A full push that is cancelled has repaired nothing.
    pusher.channel.metadata_error(3)
    pusher.push()
    pusher.channel.end_next(3, OutcomeKind.CANCELLED, applied=False)
    assert len(pusher.sent()[0][1]) == 12
    assert pusher.sent() == []


@pytest.mark.parametrize("forgets", [True, False])
def test_a_new_generation_is_sent_everything(pusher: Pusher, forgets: bool) -> None:
    pusher.sent()
    pusher.push()
    pusher.state.remove_topics(["topic1"])
    pusher.sent(brokers=[1, 3])
    pusher.channel.restart(2, forgets=forgets)
    [(ids, rows)] = pusher.sent()
    assert ids == [2]
    assert {name for name in rows if name[0] != "-"} == {f"topic{t}-{p}" for t in (0, 2) for p in range(4)}
    pusher.check()


def test_live_brokers_and_liveness(pusher: Pusher) -> None:
    pusher.sent()
    pusher.state.add_brokers([broker(4)])
    # It has no replicas: only the live brokers have changed.
    assert pusher.sent() == [(IDS, set())]
    pusher.check()
    pusher.state.set_shutting_down([3])
    [(_, rows)] = pusher.sent()
    assert rows == {f"topic{t}-{p}" for t in range(3) for p in (1, 2)}
    pusher.check()
    pusher.state.set_shutting_down([3])
    pusher.state.set_brokers([broker(one) for one in (1, 2, 3, 4)])
    assert pusher.sent() == []
    pusher.state.set_offline_dirs(1, [0])
    assert pusher.sent() == [(IDS, {"topic0-0"})]
    pusher.check()


def test_topics_that_come_go_and_come_again(pusher: Pusher) -> None:
    state = pusher.state
    pusher.sent()
    state.mark_topics_deleting(["topic0"])
    assert pusher.sent() == [(IDS, {f"-topic0-{p}" for p in range(4)})]
    state.remove_topics(["topic0"])
    # The brokers have received the removal with the deletion.
    assert pusher.sent() == []
    state.remove_topics(["topic1"])
    state.add_topic("topic3", {0: [1]}, topic_id=b"3" * 16, leader=1, leader_epoch=0)
    assert pusher.sent() == [(IDS, {*(f"-topic1-{p}" for p in range(4)), "topic3-0"})]
    pusher.check()
    # Smaller than before, and with another id.
    state.remove_topics(["topic2"])
    state.add_topic("topic2", {0: [2], 1: [2]}, topic_id=b"2" * 16, leader=2, leader_epoch=0)
    assert pusher.sent() == [(IDS, {"topic2-0", "topic2-1", "-topic2-2", "-topic2-3"})]
    pusher.check()
    state.remove_topics(["topic2"])
    state.add_topic("topic2", {0: [2]}, leader_epoch=-1)
    # It has no leader yet; only the removal of the old topic is sent.
    assert pusher.sent() == [(IDS, {"-topic2-0", "-topic2-1"})]
    pusher.check()
    state.update(state.row("topic2", 0), leader=2, leader_epoch=0)
    assert pusher.sent() == [(IDS, {"topic2-0"})]
    pusher.check()


def test_a_push_of_all_does_not_hide_a_removal(pusher: Pusher) -> None:
    pusher.sent()
    pusher.state.remove_topics(["topic2"])
    pusher.sent("all")
    assert pusher.sent() == [(IDS, {f"-topic2-{p}" for p in range(4)})]
    pusher.check()
    assert pusher.sent() == []


def test_nothing_is_known_of_another_state_on_the_channel(pusher: Pusher) -> None:
    pusher.sent()
    other = ControllerBrokerRequestBatch(pusher.channel, some_state(1))
    other.new_batch()
    other.add_update_metadata(IDS, "changed")
    other.send_requests_to_brokers(5)
    assert pusher.channel.requests[-1][2].full


def test_brokers_that_are_offline(pusher: Pusher) -> None:
    pusher.state.remove_brokers([3])
    assert [ids for ids, _ in pusher.sent(brokers=[-1, 1, 2, 3])] == [[1, 2]]
    # It is live in the state, but the channel does not have it yet.
    pusher.state.add_brokers([broker(9)])
    assert [ids for ids, _ in pusher.sent(brokers=[9])] == [[9]]
    assert [ids for ids, _ in pusher.sent(brokers=[9])] == [[9]]


def test_a_batch_with_named_and_changed_rows_names_its_brokers_until_it_is_sent(pusher: Pusher) -> None:
    pusher.sent()
    pusher.state.update([0, 1], leader_epoch=1)
    pusher.batch.new_batch()
    pusher.batch.add_update_metadata([1], 0)
    pusher.batch.add_update_metadata([1, 2], "changed")
    from ctrlchan.errors import IllegalStateError

    with pytest.raises(IllegalStateError, match="brokers 1, 2"):
        pusher.batch.new_batch()
    pusher.batch.send_requests_to_brokers(5)
    sent = [(ids, names(message)) for ids, message, _ in pusher.channel.requests[1:]]
    assert sent == [([1], {"topic0-0"}), ([1], {"topic0-1"}), ([2], {"topic0-0", "topic0-1"})]


# -- random histories

KINDS = [OutcomeKind.REFUSED, OutcomeKind.FENCED, OutcomeKind.TOO_LARGE, OutcomeKind.CANCELLED]


def change(state: ClusterState, rng: random.Random, step: int) -> None:
    """Make a random change of those that a controller makes."""
    names = [state.topic_name(row) for row in range(len(state.topics))]
    rows = len(state.partitions)
    live = state.broker_ids.tolist()
    match rng.randrange(9):
        case 0 | 1 if rows:
            chosen = rng.sample(range(rows), rng.randint(1, min(rows, 4)))
            state.update(chosen, leader=rng.choice(live), leader_epoch=step, isr=[live[0]])
        case 2 if rows:
            state.update(rng.randrange(rows), replicas=rng.sample([1, 2, 3, 4], 2))
        case 3:
            name = f"t{rng.randrange(6)}"
            known = rng.random() < 0.8
            if name not in names:
                state.add_topic(
                    name,
                    {p: [rng.choice(live)] for p in range(rng.randint(1, 3))},
                    topic_id=rng.randbytes(16),
                    leader_epoch=step if known else -1,
                )
        case 4 if names:
            state.remove_topics([rng.choice(names)])
        case 5 if names:
            name = rng.choice(names)
            top = state.rows_of_topic(name)
            state.add_partitions(name, {top.stop - top.start: [1]}, leader_epoch=step)
        case 6 if names:
            state.mark_topics_deleting([rng.choice(names)])
        case 7:
            state.set_brokers([broker(one) for one in sorted({*IDS, *rng.sample([4, 5], rng.randint(0, 2))})])
        case 8:
            state.set_shutting_down(rng.sample(IDS, rng.randint(0, 1)))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), ibp=st.sampled_from(["3.9", "2.8", "2.3"]))
def test_after_any_history_every_broker_knows_the_state(seed: int, ibp: str) -> None:
    rng = random.Random(seed)
    pusher = Pusher(some_state(2, 3), ibp)
    channel = pusher.channel
    # Changes are counted from here on: nothing is sent for removals before it.
    assert pusher.state.changes.version == 0
    for step in range(1, 40):
        for _ in range(rng.randrange(3)):
            change(pusher.state, rng, step)
        what = rng.randrange(10)
        if what < 5:
            pusher.push("changed", rng.sample(IDS, rng.randint(1, 3)))
        elif what == 5:
            pusher.push("all", rng.sample(IDS, rng.randint(1, 3)))
        elif what == 6 and len(pusher.state.partitions):
            pusher.push(rng.randrange(len(pusher.state.partitions)))
        for broker_id in IDS:
            for _ in range(rng.randrange(4)):
                queue = channel.queues[broker_id]
                if not queue:
                    continue
                if rng.random() < 0.75:
                    channel.end_next(broker_id)
                    continue
                kind = rng.choice(KINDS)
                if kind is OutcomeKind.CANCELLED:
                    channel.end_next(broker_id, kind, applied=False, at=rng.randrange(len(queue)))
                else:
                    channel.end_next(broker_id, kind, applied=rng.random() < 0.5)
            if rng.random() < 0.03:
                channel.restart(broker_id, forgets=rng.random() < 0.5)
            if rng.random() < 0.03:
                channel.metadata_error(broker_id)
    pusher.push()
    channel.end_all()
    for broker_id, cache in channel.caches.items():
        known, live = metadata_of(cache.state)
        expected, brokers = metadata_of(pusher.state)
        if ibp == "2.3":
            # Without topic ids.
            known = {key: row[1:] for key, row in known.items()}
            expected = {key: row[1:] for key, row in expected.items()}
        assert known == expected, broker_id
        assert live == brokers
    assert pusher.sent() == []
