"""Resigning, fenced controller epochs, new broker generations, and brokers that need a resync."""

from __future__ import annotations

import threading

import pytest

from ctrlchan import Broker
from ctrlchan.channel import ControllerChannelManager, ControlRequest, Outcome, OutcomeKind
from ctrlchan.errors import ChannelClosedError, IllegalStateError, UnknownBrokerError
from tests.fault.channels import MODES, channel_to, config, eventually, holdings, peers
from tests.fault.peer import Exchange, Peer, answer, hang_up, silence
from tests.fault.requests import leader_and_isr, number_of, update

every_mode = pytest.mark.parametrize("senders", MODES)


def full_update(number: int = 0) -> ControlRequest:
    return ControlRequest(update(number).shared_body, 7, full=True, rows=1)


def numbers(peer: Peer) -> list[int]:
    return [number_of(exchange.body) for exchange in peer.received]


def kinds(outcomes: list[Outcome]) -> set[OutcomeKind]:
    return {outcome.kind for outcome in outcomes}


# -- resigning


@every_mode
def test_resigning_ends_everything_at_once_and_sends_nothing_more(senders: str | int) -> None:
    with peers(4) as brokers, channel_to(brokers, senders=senders) as channel:
        unanswered, unread, dead, fine = brokers
        unanswered.default = silence
        unread.gate.clear()
        dead.stop_listening()
        sent = [channel.send_request(1, update(number)) for number in range(100)]
        sent += [channel.send_request(2, update(number, size=20_000_000)) for number in range(5)]
        sent += [channel.send_request(3, update(number)) for number in range(100)]
        unanswered.until(lambda: len(unanswered.received) == 1)
        eventually(unread.has_unread)
        eventually(lambda: channel.describe()["brokers"][3]["attempts"] > 1)
        channel.resign()
        outcomes = channel.wait(sent, 60)
        assert kinds(outcomes) == {OutcomeKind.FENCED}
        assert {outcome.detail for outcome in outcomes} == {"the controller has resigned"}
        assert channel.describe()["state"] == "resigned"
        assert channel.describe()["brokers"] == {}
        # Every connection is closed, so a partly sent request is never completed.
        unread.gate.set()
        for peer in (unanswered, unread, fine):
            eventually(lambda peer=peer: not peer._sockets)  # type: ignore[misc]
        assert numbers(unanswered) == [0]
        assert unread.received == []
        assert fine.received == []
        assert dead.received == []


def test_after_resigning_every_request_is_fenced_and_no_broker_comes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with peers(2) as brokers, channel_to(brokers) as channel:
        channel.resign()
        channel.resign()
        channel.add_broker(brokers[0].broker)
        channel.remove_broker(2)
        sent = channel.send_requests([1, 2, 3], update(epoch=2**31 - 1))
        assert kinds(channel.wait(sent, 60)) == {OutcomeKind.FENCED}
        assert channel.describe()["brokers"] == {}
        assert not any(peer.connections for peer in brokers)
        assert "offline" not in caplog.text
        eventually(lambda: channel.describe()["shared_memory_bytes"] == 0)


def test_a_channel_that_was_never_used_can_resign() -> None:
    before = holdings()
    with ControllerChannelManager(config(), 7) as channel:
        channel.resign()
        assert kinds(channel.wait(channel.send_requests([1], update()), 60)) == {OutcomeKind.FENCED}
    assert holdings() == before


def test_a_callback_may_resign_and_callbacks_of_queued_requests_are_called() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        ends: list[OutcomeKind] = []
        resigned = threading.Event()

        def resign(outcome: Outcome) -> None:
            channel.resign()
            resigned.set()

        sent = [channel.send_request(1, leader_and_isr(0), resign)]
        sent += [
            channel.send_request(1, update(number), lambda outcome: ends.append(outcome.kind))
            for number in range(3)
        ]
        outcomes = channel.wait(sent, 10)
        assert [outcome.kind for outcome in outcomes] == [
            OutcomeKind.ACKNOWLEDGED,
            *[OutcomeKind.FENCED] * 3,
        ]
        assert ends == [OutcomeKind.FENCED] * 3
        assert numbers(peer) == [0]


# -- the epoch


def test_a_retry_after_the_fence_is_not_sent() -> None:
    with peers(2) as brokers, channel_to(brokers, retry_backoff=0.3) as channel:
        brokers[0].script.append(hang_up)
        unfinished = channel.send_request(1, update(0))
        eventually(lambda: channel.describe()["brokers"][1]["state"] == "backing off")
        brokers[1].script.append(answer(11))
        sent = [unfinished, channel.send_request(2, update(1)), channel.send_request(1, update(2, epoch=8))]
        outcomes = channel.wait(sent, 10)
        assert [outcome.kind for outcome in outcomes] == [
            OutcomeKind.FENCED,
            OutcomeKind.FENCED,
            OutcomeKind.ACKNOWLEDGED,
        ]
        # It was tried before the fence and not after it; a request of a newer epoch is sent.
        assert numbers(brokers[0]) == [0, 2]


def test_a_partly_written_retry_is_cut_off_at_the_fence() -> None:
    with peers(2) as brokers, channel_to(brokers) as channel:
        slow, newer = brokers

        def hang_up_and_read_no_more(exchange: Exchange) -> None:
            slow.gate.clear()
            exchange.close()

        slow.script.append(hang_up_and_read_no_more)
        sent = channel.send_request(1, update(0, size=20_000_000))
        slow.until(lambda: slow.connections == 2)
        eventually(slow.has_unread)
        newer.script.append(answer(11))
        channel.wait([channel.send_request(2, update(1))], 10)
        assert not sent.done
        slow.gate.set()
        assert channel.wait([sent], 10)[0].kind is OutcomeKind.FENCED
        # The first attempt arrived completely, the second did not.
        assert numbers(slow) == [0]


# -- a new term


@every_mode
def test_after_a_fence_the_channel_goes_on_with_the_epoch_of_the_next_term(senders: str | int) -> None:
    with peers(2) as brokers, channel_to(brokers, senders=senders) as channel:
        brokers[0].script.append(answer(11))
        [fenced] = channel.wait([channel.send_request(1, update(0))], 10)
        assert (fenced.kind, fenced.error_code) == (OutcomeKind.FENCED, 11)
        assert (channel.describe()["state"], channel.controller_epoch) == ("fenced", 7)
        channel.new_term(8)
        assert (channel.describe()["state"], channel.controller_epoch) == ("running", 8)
        assert channel.describe()["controller_epoch"] == 8
        [old] = channel.wait([channel.send_request(1, update(1))], 10)
        assert (old.kind, old.error_code) == (OutcomeKind.FENCED, 0)
        outcomes = channel.wait(channel.send_requests([1, 2], update(2, epoch=8)), 10)
        assert kinds(outcomes) == {OutcomeKind.ACKNOWLEDGED}
        assert [numbers(peer) for peer in brokers] == [[0, 2], [2]]
        # Another 11 fences the new term too.
        brokers[1].script.append(answer(11))
        channel.wait([channel.send_request(2, update(3, epoch=8))], 10)
        assert channel.describe()["state"] == "fenced"


@every_mode
def test_a_new_term_ends_the_requests_of_older_ones(senders: str | int) -> None:
    with peers(2) as brokers, channel_to(brokers, senders=senders) as channel:
        brokers[1].stop_listening()
        called: list[Outcome] = []
        sent = [channel.send_request(2, update(number), called.append) for number in range(100)]
        channel.new_term(9)
        sent.append(channel.send_request(2, update(100, epoch=9)))
        assert kinds(channel.wait(sent[:-1], 10)) == {OutcomeKind.FENCED}
        assert len(called) == 100
        brokers[1].listen()
        assert channel.wait(sent[-1:], 10)[0].kind is OutcomeKind.ACKNOWLEDGED
        assert numbers(brokers[1]) == [100]
        # A late request of an older term is no sign of another controller.
        assert channel.wait([channel.send_request(1, update(0))], 10)[0].kind is OutcomeKind.FENCED
        assert channel.describe()["state"] == "running"


@pytest.mark.parametrize("epoch", [6, 7, 8])
def test_a_new_term_needs_a_higher_epoch(epoch: int) -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        peer.script.append(answer(11))
        channel.wait([channel.send_request(1, update(0, epoch=8))], 10)
        with pytest.raises(IllegalStateError, match=f"epoch {epoch} is not above 8"):
            channel.new_term(epoch)
        assert channel.describe()["state"] == "fenced"
        assert channel.controller_epoch == 7


def test_a_channel_that_has_resigned_or_ended_begins_no_term() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        channel.resign()
        with pytest.raises(IllegalStateError, match="resigned"):
            channel.new_term(8)
    with pytest.raises(ChannelClosedError):
        channel.new_term(8)


def test_a_new_term_of_a_channel_that_was_never_used_starts_nothing() -> None:
    before = holdings()
    with ControllerChannelManager(config(), controller_epoch=7) as channel:
        channel.new_term(8)
        assert channel.controller_epoch == 8
        assert channel.describe()["state"] == "new"
        assert holdings() == before
        with pytest.raises(IllegalStateError, match="not above 8"):
            channel.new_term(8)


# -- generations


@every_mode
def test_unfinished_requests_end_with_their_generation_and_the_new_one_gets_later_ones(
    senders: str | int,
) -> None:
    with peers(1) as [old], Peer(1, 2002) as new, channel_to([old], senders=senders) as channel:
        old.default = silence
        unfinished = [channel.send_request(1, update(number)) for number in range(20)]
        old.until(lambda: len(old.received) == 1)
        channel.add_broker(new.broker)
        fresh = [channel.send_request(1, update(number)) for number in range(20, 40)]
        assert kinds(channel.wait(unfinished, 10)) == {OutcomeKind.BROKER_GONE}
        assert kinds(channel.wait(fresh, 10)) == {OutcomeKind.ACKNOWLEDGED}
        assert numbers(old) == [0]
        assert numbers(new) == list(range(20, 40))
        assert {exchange.body[9:17] for exchange in new.received} == {(2002).to_bytes(8, "big")}


def test_a_stale_broker_epoch_ends_one_request_and_the_new_epoch_goes_on() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        peer.script.append(answer(77))
        [stale] = channel.wait([channel.send_request(1, update(0))], 10)
        assert (stale.kind, stale.error_code) == (OutcomeKind.FENCED, 77)
        assert channel.needs_resync(1)
        channel.add_broker(Broker(1, peer.epoch + 1, peer.broker.endpoints))
        # A new generation needs no resync.
        assert not channel.needs_resync(1)
        [fresh] = channel.wait([channel.send_request(1, update(1))], 10)
        assert fresh.kind is OutcomeKind.ACKNOWLEDGED
        assert peer.received[1].body[9:17] == (peer.epoch + 1).to_bytes(8, "big")


# -- resync


def test_only_an_acknowledged_full_request_ends_the_need_of_a_resync() -> None:
    with peers(2) as brokers, channel_to(brokers) as channel:
        first = brokers[0]
        first.script.append(answer(56))
        channel.wait(channel.send_requests([1, 2], update(0)), 10)
        assert channel.needs_resync(1)
        assert not channel.needs_resync(2)
        channel.wait(channel.send_requests([1, 2], update(1)), 10)
        assert channel.needs_resync(1)
        first.script.append(answer(31))
        channel.wait(channel.send_requests([1, 2], full_update(2)), 10)
        assert channel.needs_resync(1)
        channel.wait(channel.send_requests([1, 2], full_update(3)), 10)
        assert not channel.needs_resync(1)
        assert not channel.describe()["brokers"][1]["needs_resync"]


def test_an_error_after_the_full_request_counts() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        peer.script.extend([answer(), answer(0, partition_errors=[3])])
        sent = [channel.send_request(1, request) for request in (full_update(0), leader_and_isr(1))]
        channel.wait(sent, 10)
        assert channel.needs_resync(1)


def test_too_large_a_request_makes_a_resync_necessary() -> None:
    with peers(1) as [peer], channel_to([peer], max_request_bytes=10_000) as channel:
        channel.wait([channel.send_request(1, update(0, size=20_000))], 10)
        assert channel.needs_resync(1)


def test_an_unknown_broker_has_no_resync_state() -> None:
    with channel_to([]) as channel, pytest.raises(UnknownBrokerError):
        channel.needs_resync(9)
