"""Cancelling queued requests: by call, by a future, by a timeout."""

from __future__ import annotations

from concurrent.futures import CancelledError
from concurrent.futures import wait as wait_for_futures
from time import monotonic_ns

import pytest

from ctrlchan import ClusterState, ControllerBrokerRequestBatch
from ctrlchan._codec import update_metadata_body
from ctrlchan.channel import ControlRequest, Outcome, OutcomeKind
from ctrlchan.channel.outcome import Sent
from ctrlchan.channel.queues.time_limits import NEVER, TimeLimits
from tests.fault.channels import MODES, channel_to, eventually, peers
from tests.fault.peer import Peer, silence
from tests.fault.requests import leader_and_isr, number_of, update

every_mode = pytest.mark.parametrize("senders", MODES)


def numbers(peer: Peer) -> list[int]:
    return [number_of(exchange.body) for exchange in peer.received]


@every_mode
def test_a_queued_request_is_cancelled_and_never_sent(senders: str | int) -> None:
    with peers(1) as [peer], channel_to([peer], senders=senders) as channel:
        peer.gate.clear()
        sent = [channel.send_request(1, update(number)) for number in range(200)]
        # The sender has the oldest request, and never the newest.
        assert not sent[0].cancel()
        assert sent[-1].cancel()
        assert not sent[-1].cancel()
        count = channel.cancel(sent[1::2])
        assert 0 < count < 100
        queued = channel.describe()["brokers"][1]
        assert queued["queue_size"] == 200 - count - 1
        assert queued["queued_bytes"] == (200 - count - 1) * sent[0].request.size
        peer.gate.set()
        outcomes = channel.wait(sent, 10)
        cancelled = [i for i, outcome in enumerate(outcomes) if outcome.kind is OutcomeKind.CANCELLED]
        assert len(cancelled) == count + 1
        assert {outcomes[i].attempts for i in cancelled} == {0}
        assert numbers(peer) == [i for i in range(200) if i not in cancelled]
        assert not channel.needs_resync(1)
        assert not sent[1].cancel()
        eventually(lambda: channel.describe()["shared_memory_bytes"] == 0)


def test_one_broker_of_many_is_cancelled_and_its_callback_is_called() -> None:
    with peers(2) as brokers, channel_to(brokers) as channel:
        kinds: list[OutcomeKind] = []
        brokers[0].gate.clear()
        # The sender has only the request with the callback; everything behind it is queued.
        first = channel.send_request(1, leader_and_isr(0), lambda _: None)
        sent = channel.send_requests([1, 2], update(1), lambda outcome: kinds.append(outcome.kind))
        assert channel.wait(sent[1:], 10)[0].kind is OutcomeKind.ACKNOWLEDGED
        assert sent[0].cancel()
        [outcome] = channel.wait(sent[:1], 10)
        assert (outcome.kind, outcome.detail) == (OutcomeKind.CANCELLED, "cancelled before it was sent")
        assert kinds == [OutcomeKind.ACKNOWLEDGED, OutcomeKind.CANCELLED]
        assert not first.done
        brokers[0].gate.set()
        assert channel.wait([first], 10)[0].kind is OutcomeKind.ACKNOWLEDGED
        assert numbers(brokers[0]) == [0]


def test_a_future_that_is_cancelled_cancels_its_request() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        peer.gate.clear()
        sent = [channel.send_request(1, update(0), lambda _: None)]
        sent += [channel.send_request(1, update(number)) for number in (1, 2, 3)]
        futures = [one.future for one in sent]
        assert not futures[0].cancel()
        assert futures[1].cancel()
        assert futures[1].cancel()
        assert futures[1].cancelled()
        with pytest.raises(CancelledError):
            futures[1].result(0)
        # A future that is cancelled in another way has an outcome.
        assert sent[2].cancel()
        assert futures[2].result(10).kind is OutcomeKind.CANCELLED
        assert futures[2].cancel() is False
        peer.gate.set()
        assert wait_for_futures(futures, 10).not_done == set()
        assert not futures[3].cancel()
        assert futures[0].result().kind is OutcomeKind.ACKNOWLEDGED
        [outcome] = channel.wait(sent[1:2], 10)
        assert outcome.kind is OutcomeKind.CANCELLED
        assert numbers(peer) == [0, 3]


def test_a_request_without_a_broker_or_with_an_outcome_is_not_cancelled() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        offline = channel.send_request(9, update())
        assert not offline.cancel()
        peer.gate.clear()
        sent = [channel.send_request(1, update(), lambda _: None) for _ in range(2)]
        channel.remove_broker(1)
        assert channel.cancel(sent) == 0
        assert {outcome.kind for outcome in channel.wait(sent, 10)} == {OutcomeKind.BROKER_GONE}
    assert channel.cancel(sent) == 0
    assert channel.cancel([Sent(1, update(), None, 0)]) == 0


def test_merged_requests_are_cancelled_all_or_none() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        peer.gate.clear()
        # A callback keeps everything behind it queued, so these requests are merged.
        first = channel.send_request(1, leader_and_isr(0), lambda _: None)
        state = ClusterState.empty()
        state.set_brokers([peer.broker])
        state.add_topic("topic", {0: [1]})
        batch = ControllerBrokerRequestBatch(channel, state)
        groups: list[list[Sent]] = [[], []]
        for group in groups:
            for _ in range(80):
                batch.new_batch()
                batch.add_update_metadata([1], 0)
                group += batch.send_requests_to_brokers(7)
            channel.send_request(1, leader_and_isr(1))
        assert channel.describe()["brokers"][1]["merged"] > 0
        assert channel.cancel(groups[0][:20]) == 0
        assert channel.cancel(groups[0]) == 80
        assert {outcome.kind for outcome in channel.wait(groups[0], 10)} == {OutcomeKind.CANCELLED}
        eventually(lambda: channel.describe()["brokers"][1]["in_flight"] == 1)
        peer.gate.set()
        channel.wait([first, *groups[1]], 10)
        assert {one.outcome.kind for one in groups[1] if one.outcome} == {OutcomeKind.ACKNOWLEDGED}
        eventually(lambda: channel.describe()["brokers"][1]["queued_bytes"] == 0)
        eventually(lambda: channel.describe()["shared_memory_bytes"] == 0)


def test_a_request_with_a_time_limit_is_not_merged() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        peer.gate.clear()
        channel.send_request(1, leader_and_isr(0), lambda _: None)
        state = ClusterState.empty()
        state.set_brokers([peer.broker])
        requests = [
            ControlRequest(update_metadata_body(8, state.topics, state.partitions, state.brokers), 7, rows=0)
            for _ in range(80)
        ]
        limited = [
            channel.send_request(1, one, timeout=0.05 if i % 2 else None) for i, one in enumerate(requests)
        ]
        outcomes = channel.wait(limited[1::2], 10)
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.CANCELLED}
        assert not any(one.done for one in limited[::2])


# -- time limits


@every_mode
def test_a_request_that_is_queued_after_its_time_limit_is_cancelled(senders: str | int) -> None:
    with peers(2) as brokers, channel_to(brokers, senders=senders) as channel:
        # Its process has started and is connected.
        channel.wait([channel.send_request(2, update(99))], 10)
        brokers[0].gate.clear()
        outcomes: list[Outcome] = []
        begun = monotonic_ns()
        first = channel.send_request(1, leader_and_isr(0), lambda _: None, timeout=0.01)
        patient = channel.send_request(1, update(1), timeout=60)
        hasty = [channel.send_requests([1, 2], update(2 + i), outcomes.append, timeout=0.5) for i in range(3)]
        late = channel.wait([pair[0] for pair in hasty], 10)
        assert {(o.kind, o.detail) for o in late} == {
            (OutcomeKind.CANCELLED, "not sent within its time limit")
        }
        assert all(500e6 <= o.completed_ns - begun < 5e9 for o in late)
        assert {o.kind for o in channel.wait([pair[1] for pair in hasty], 10)} == {OutcomeKind.ACKNOWLEDGED}
        assert len(outcomes) == 6
        # The sender has them, or they have time left.
        assert not first.done
        assert not patient.done
        brokers[0].gate.set()
        assert {o.kind for o in channel.wait([first, patient], 10)} == {OutcomeKind.ACKNOWLEDGED}
        assert numbers(brokers[0]) == [0, 1]


def test_a_later_limit_does_not_hide_an_earlier_one() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        peer.default = silence
        channel.send_request(1, leader_and_isr(0), lambda _: None)
        long = channel.send_request(1, update(1), timeout=60)
        short = channel.send_request(1, update(2), timeout=0.05)
        assert channel.wait([short], 10)[0].kind is OutcomeKind.CANCELLED
        assert not long.done


def test_a_request_that_could_not_be_queued_has_no_limit() -> None:
    with peers(1) as [peer], channel_to([peer], max_request_bytes=1000) as channel:
        sent = [
            channel.send_request(1, update(size=5000), timeout=0),
            channel.send_request(7, update(), timeout=0),
        ]
        kinds = [outcome.kind for outcome in channel.wait(sent, 10)]
        assert kinds == [OutcomeKind.TOO_LARGE, OutcomeKind.BROKER_GONE]


def test_limits_of_finished_requests_do_not_pile_up() -> None:
    limits = TimeLimits()
    waiting = Sent(1, update(), None, 0)
    assert limits.add(50, [waiting])
    for deadline in range(100, 20_100):
        done = Sent(1, update(), None, 0)
        done.sequence = 1
        assert not limits.add(deadline, [done])
    assert len(limits._heap) < 2048
    assert limits.next_ns == 50
    assert limits.due(49) == []
    assert limits.due(50) == [waiting]
    assert limits.due(30_000)
    assert limits.next_ns == NEVER
