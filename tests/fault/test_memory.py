"""Full shared memory: no call blocks, no request fails, and the order is kept."""

from __future__ import annotations

from ctrlchan.channel import ControllerChannelManager, OutcomeKind
from tests.fault.channels import channel_to, eventually, peers
from tests.fault.requests import number_of, update

MIB = 2**20


def outside(channel: ControllerChannelManager) -> list[int]:
    """Return the sizes of the frames that found no room in shared memory."""
    channel_state = channel._channel_state
    assert channel_state is not None
    with channel_state.lock:
        frames = {
            frame
            for queue in channel_state.by_id.values()
            for sent in (*queue.handed, *queue.waiting)
            for frame in sent.request.frames()
        }
        return [frame.size for frame in frames if frame.private is not None]


def test_requests_that_do_not_fit_into_shared_memory_arrive_in_order() -> None:
    with peers(3) as brokers, channel_to(brokers, shared_memory_bytes=2 * MIB) as channel:
        for peer in brokers:
            peer.gate.clear()
        sent = []
        for number in range(60):
            sent += channel.send_requests([1, 2, 3], update(number, size=200_000 if number % 3 else 100))
        described = channel.describe()
        assert described["shared_memory_bytes"] <= 2 * MIB
        # The memory is full: the requests of each single broker are larger than it.
        for broker in described["brokers"].values():
            assert broker["queued_bytes"] > 3 * 2 * MIB
        assert len(outside(channel)) > 20
        for peer in brokers:
            peer.gate.set()
        assert {outcome.kind for outcome in channel.wait(sent, 30)} == {OutcomeKind.ACKNOWLEDGED}
        for peer in brokers:
            assert [number_of(exchange.body) for exchange in peer.received] == list(range(60))
        assert channel.describe()["shared_memory_bytes"] == 0


def test_a_broker_that_is_away_does_not_fill_the_memory_for_the_others() -> None:
    with peers(2) as brokers, channel_to(brokers, shared_memory_bytes=4 * MIB) as channel:
        brokers[0].stop_listening()
        sent = []
        for number in range(50):
            both = channel.send_requests([1, 2], update(number, size=500_000))
            channel.wait(both[1:], 10)
            sent.append(both[0])
        assert not any(one.done for one in sent)
        brokers[0].listen()
        channel.wait(sent, 30)
        assert [number_of(exchange.body) for exchange in brokers[0].received] == list(range(50))


def test_a_frame_larger_than_the_memory_is_too_large() -> None:
    with peers(1) as [peer], channel_to([peer], shared_memory_bytes=2 * MIB) as channel:
        [outcome] = channel.wait([channel.send_request(1, update(size=3 * MIB))], 10)
        assert outcome.kind is OutcomeKind.TOO_LARGE


def test_removing_the_broker_that_holds_the_memory_frees_it() -> None:
    with peers(2) as brokers, channel_to(brokers, shared_memory_bytes=2 * MIB) as channel:
        brokers[0].gate.clear()
        channel.send_requests([1], update(0, size=900_000))
        channel.send_requests([1], update(1, size=900_000))
        eventually(brokers[0].has_unread)
        waiting = channel.send_requests([2], update(2, size=900_000))
        small = channel.send_requests([2], update(3))
        # There is no room for this request, and no later one overtakes it.
        described = channel.describe()["brokers"][2]
        assert (described["queue_size"], described["in_flight"]) == (2, 0)
        assert waiting[0].request.size in outside(channel)
        channel.remove_broker(1)
        channel.wait([*waiting, *small], 10)
        assert [number_of(exchange.body) for exchange in brokers[1].received] == [2, 3]
        assert outside(channel) == []
