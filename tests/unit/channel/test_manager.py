"""ControllerChannelManager against scripted brokers, in every way to share processes."""

from __future__ import annotations

import logging
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import wait as wait_for_futures
from time import monotonic
from typing import Any

import psutil
import pytest

from ctrlchan import Broker, ChannelConfig, Endpoint, SecurityProtocol
from ctrlchan._codec import LEADER_AND_ISR, UPDATE_METADATA, UpdateMetadataRequest, decode_request
from ctrlchan.channel import ControllerChannelManager, Outcome, OutcomeKind, Sent
from ctrlchan.errors import (
    ChannelClosedError,
    ChannelError,
    EncodeError,
    IllegalStateError,
    OutcomesTimeoutError,
    UnknownBrokerError,
)
from ctrlchan.state.brokers import brokers_from
from tests.fault.channels import MODES, channel_to, config, ends, eventually, peers
from tests.fault.peer import Peer, answer, silence, succeed
from tests.fault.requests import FakeBody, leader_and_isr, number_of, stop_replica, update

every_mode = pytest.mark.parametrize("senders", MODES)


def numbers(peer: Peer) -> list[int]:
    return [number_of(exchange.body) for exchange in peer.received]


# -- sending


@every_mode
def test_every_broker_gets_every_request_in_order(senders: str | int) -> None:
    with peers(3) as brokers, channel_to(brokers, senders=senders) as channel:
        sent = []
        for number in range(500):
            size = 300_000 if number % 100 == 50 else 64
            sent += channel.send_requests([1, 2, 3], update(number, size=size))
        outcomes = channel.wait(sent, 30)
        assert [outcome.broker_id for outcome in outcomes] == [1, 2, 3] * 500
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.ACKNOWLEDGED}
        assert {outcome.attempts for outcome in outcomes} == {1}
        for peer in brokers:
            assert numbers(peer) == list(range(500))
            assert [exchange.correlation_id for exchange in peer.received] == list(range(500))
            assert peer.connections == 1
            # One frame for each broker, with its own broker epoch.
            assert {exchange.body[9:17] for exchange in peer.received} == {peer.epoch.to_bytes(8, "big")}


def test_the_frame_is_a_request_that_the_codec_reads() -> None:
    from ctrlchan import ClusterState
    from ctrlchan._codec import update_metadata_body
    from ctrlchan.channel import ControlRequest

    with peers(1) as [peer], channel_to([peer], controller_id=3) as channel:
        state = ClusterState.empty()
        state.set_brokers([peer.broker])
        state.add_topic("topic", {0: [1], 1: [1]})
        shared_body = update_metadata_body(8, state.topics, state.partitions, state.brokers)
        [outcome] = channel.wait(
            [channel.send_request(1, ControlRequest(shared_body, 7, rows=shared_body.rows))], 10
        )
        assert outcome.kind is OutcomeKind.ACKNOWLEDGED
        assert outcome.rows == 2
        [exchange] = peer.received
        assert outcome.bytes == len(exchange.frame) + 4
        request = decode_request(UPDATE_METADATA, 8, exchange.body)
        assert isinstance(request, UpdateMetadataRequest)
        assert (request.controller_id, request.controller_epoch, request.broker_epoch) == (3, 7, peer.epoch)
        assert request.partitions.partition.tolist() == [0, 1]


def test_a_shared_body_is_written_once_for_all_brokers() -> None:
    with peers(5) as brokers, channel_to(brokers) as channel:
        request = update(1, size=200_000)
        channel.wait(channel.send_requests([1, 2, 3, 4, 5], request), 10)
        assert isinstance(request.shared_body, FakeBody)
        assert request.shared_body.writes == 1
        assert len({exchange.body[17:] for peer in brokers for exchange in peer.received}) == 1
        assert channel.describe()["shared_memory_bytes"] == 0
        # If it is sent again after all brokers have answered, it is encoded again.
        channel.wait(channel.send_requests([1, 2], request), 10)
        assert request.shared_body.writes == 2


def test_an_unfinished_request_shares_its_frame_with_later_sends() -> None:
    with peers(2) as brokers, channel_to(brokers) as channel:
        brokers[0].gate.clear()
        request = update(1, size=200_000)
        first = channel.send_request(1, request)
        channel.wait([channel.send_request(2, request)], 10)
        assert isinstance(request.shared_body, FakeBody)
        assert request.shared_body.writes == 1
        brokers[0].gate.set()
        channel.wait([first], 10)


def test_the_times_of_an_outcome_are_in_order() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        before = monotonic() * 1e9
        [outcome] = channel.wait([channel.send_request(1, update(size=2_000_000))], 10)
        assert before <= outcome.enqueued_ns <= outcome.first_byte_ns <= outcome.last_byte_ns
        assert outcome.last_byte_ns <= outcome.response_ns <= outcome.completed_ns <= monotonic() * 1e9


def test_one_request_is_in_flight_and_the_next_waits_for_the_response() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        release = threading.Event()

        def later(exchange: object) -> None:
            release.wait(10)
            succeed(exchange)  # type: ignore[arg-type]

        peer.script.append(later)
        sent = [channel.send_request(1, update(number)) for number in range(3)]
        peer.until(lambda: len(peer.received) == 1)
        assert not any(one.done for one in sent)
        eventually(lambda: channel.describe()["brokers"][1]["state"] == "connected")
        described = channel.describe()["brokers"][1]
        assert described["queue_size"] == 3
        assert described["oldest_age"] > 0
        assert described["queued_bytes"] == 3 * sent[0].request.size
        release.set()
        channel.wait(sent, 10)
        assert numbers(peer) == [0, 1, 2]
        eventually(lambda: channel.describe()["brokers"][1]["queue_size"] == 0)


def test_send_request_does_not_block_on_a_broker_that_reads_nothing() -> None:
    with peers(2) as brokers, channel_to(brokers) as channel:
        brokers[0].gate.clear()
        sent: list[Sent] = []
        ends(lambda: sent.extend(channel.send_request(1, update(at, size=100_000)) for at in range(2000)))
        # The other broker is not delayed.
        channel.wait(channel.send_requests([2], update()), 60)
        assert not sent[0].done
        brokers[0].gate.set()
        channel.wait(sent, 30)
        assert numbers(brokers[0]) == list(range(2000))


def test_a_full_command_pipe_does_not_block_send_requests() -> None:
    with peers(40) as brokers, channel_to(brokers, senders=1) as channel:
        for peer in brokers:
            peer.gate.clear()
        ids = [peer.broker_id for peer in brokers]
        sent = []
        # 40 brokers x 64 requests of 48 bytes: twice what a pipe takes.
        for number in range(100):
            sent += channel.send_requests(ids, update(number))
        for peer in brokers:
            peer.gate.set()
        channel.wait(sent, 30)
        for peer in brokers:
            assert numbers(peer) == list(range(100))


def test_without_brokers_nothing_is_sent() -> None:
    with channel_to([]) as channel:
        assert channel.send_requests([], update()) == []
        assert channel.wait([], 1) == []


# -- callbacks


@every_mode
def test_the_next_request_goes_out_after_the_callback_has_returned(senders: str | int) -> None:
    with peers(1) as [peer], channel_to([peer], senders=senders) as channel:
        entered, leave = threading.Event(), threading.Event()

        def callback(outcome: Outcome) -> None:
            entered.set()
            leave.wait(10)

        first = channel.send_request(1, leader_and_isr(0), callback)
        rest = [channel.send_request(1, update(number)) for number in (1, 2)]
        assert entered.wait(10)
        assert len(peer.received) == 1
        assert not first.done
        leave.set()
        channel.wait([first, *rest], 10)
        assert numbers(peer) == [0, 1, 2]


@pytest.mark.parametrize("make", [update, leader_and_isr, stop_replica])
def test_a_callback_gets_the_outcome_and_may_send(make: Callable[[int], object]) -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        seen: list[int] = []
        done = threading.Event()

        def callback(outcome: Outcome) -> None:
            seen.append(outcome.broker_id)
            if len(seen) < 50:
                channel.send_request(1, make(len(seen)), callback)  # type: ignore[arg-type]
            else:
                done.set()

        channel.send_request(1, make(0), callback)  # type: ignore[arg-type]
        assert done.wait(10)
        assert numbers(peer) == list(range(50))


def test_an_exception_of_a_callback_is_logged_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:

        def callback(outcome: Outcome) -> None:
            raise RuntimeError("mine")

        sent = [channel.send_request(1, update(number), callback) for number in range(3)]
        assert [outcome.kind for outcome in channel.wait(sent, 10)] == [OutcomeKind.ACKNOWLEDGED] * 3
    assert caplog.text.count("RuntimeError: mine") == 3
    assert "[RequestSendThread controllerId=0] The callback of" in caplog.text


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("where", ["callback", "future", "full state"])
def test_no_exception_of_other_code_ends_the_channels_thread(
    error: type[BaseException], where: str, caplog: pytest.LogCaptureFixture
) -> None:
    def raise_error(*_: object) -> None:
        raise error

    fail: Any = raise_error

    with peers(1) as [peer], channel_to([peer], max_backlog_bytes=100) as channel:
        peer.gate.clear()
        sent = [channel.send_request(1, update(0), fail if where == "callback" else None)]
        called: list[object] = []
        if where == "future":
            sent[0].future.add_done_callback(fail)
            sent[0].future.add_done_callback(called.append)
        if where == "full state":
            for number in range(70):
                request = update(number)
                request.full_state = fail
                sent.append(channel.send_request(1, request))
        sent.append(channel.send_request(1, update(1)))
        peer.gate.set()
        assert channel.wait(sent, 20)[-1].kind is OutcomeKind.ACKNOWLEDGED
        assert channel.describe()["state"] == "running"
        assert len(called) == (where == "future")
    if where != "full state":
        assert error.__name__ in caplog.text


def test_a_thread_that_fails_ends_every_request_and_closes_the_channel(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        peer.gate.clear()
        sent = channel.send_request(1, update(0))
        dispatcher = channel._dispatcher
        assert dispatcher is not None
        monkeypatch.setattr(dispatcher, "_register", lambda: sys.exit("a bug"))
        dispatcher.wake()
        [outcome] = channel.wait([sent], 20)
        assert outcome.kind is OutcomeKind.BROKER_GONE
        assert outcome.detail == "the channel's thread has failed"
        assert channel.describe()["state"] == "closed"
        with pytest.raises(ChannelClosedError, match="the channel's thread has failed: SystemExit"):
            channel.send_request(1, update(1))
    assert "The channel's thread failed" in caplog.text


def test_wait_in_a_callback_is_refused() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        problems: list[BaseException] = []

        def callback(outcome: Outcome) -> None:
            try:
                channel.wait([channel.send_request(1, update(1))], 5)
            except IllegalStateError as problem:
                problems.append(problem)

        channel.wait([channel.send_request(1, update(0), callback)], 10)
        assert len(problems) == 1


def test_a_callback_may_end_the_channel() -> None:
    with peers(1) as [peer]:
        channel = ControllerChannelManager(config(), 7)
        channel.add_broker(peer.broker)
        threads = threading.active_count()
        sent = channel.send_request(1, update(), lambda _: channel.shutdown())
        rest = channel.send_request(1, update())
        assert sent.future.result(10).kind is OutcomeKind.ACKNOWLEDGED
        assert rest.future.result(10).kind is OutcomeKind.BROKER_GONE
        eventually(lambda: threading.active_count() < threads)


# -- outcomes


@pytest.mark.parametrize(
    ("error", "kind"), [(77, OutcomeKind.FENCED), (31, OutcomeKind.REFUSED), (35, OutcomeKind.REFUSED)]
)
def test_an_error_is_an_outcome_and_marks_the_broker_for_a_resync(error: int, kind: OutcomeKind) -> None:
    with peers(2) as brokers, channel_to(brokers) as channel:
        brokers[0].script.append(answer(error))
        sent = channel.send_requests([1, 2], update(0)) + channel.send_requests([1, 2], update(1))
        outcomes = channel.wait(sent, 10)
        assert [outcome.kind for outcome in outcomes] == [kind] + [OutcomeKind.ACKNOWLEDGED] * 3
        assert outcomes[0].error_code == error
        assert outcomes[0].response is not None
        assert outcomes[0].response.error_code == error
        described = channel.describe()["brokers"]
        assert [described[broker_id]["needs_resync"] for broker_id in (1, 2)] == [True, False]


def test_partition_errors_are_in_the_response_columns() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        peer.script.extend([answer(partition_errors=[0, 56, 3]), answer(partition_errors=[0, 0])])
        sent = [channel.send_request(1, leader_and_isr(number)) for number in range(2)]
        first, second = channel.wait(sent, 10)
        assert first.kind is OutcomeKind.PARTITION_ERRORS
        assert first.error_code == 0
        assert first.response is not None
        assert first.response.partition_error.tolist() == [0, 56, 3]
        assert second.kind is OutcomeKind.ACKNOWLEDGED
        assert channel.describe()["brokers"][1]["needs_resync"]


@every_mode
def test_a_response_of_megabytes_arrives_complete_and_delays_no_other_broker(senders: str | int) -> None:
    with peers(2) as brokers, channel_to(brokers, senders=senders) as channel:
        errors = [index % 7 for index in range(500_000)]
        brokers[0].script.append(answer(partition_errors=errors))
        big = channel.send_request(1, leader_and_isr(0))
        small = [channel.send_request(2, update(number)) for number in range(100)]
        channel.wait(small, 10)
        [outcome] = channel.wait([big], 30)
        assert outcome.response is not None
        assert outcome.response.partition_error.tolist() == errors


@every_mode
def test_a_newer_controller_stops_the_whole_channel(
    senders: str | int, caplog: pytest.LogCaptureFixture
) -> None:
    with peers(3) as brokers, channel_to(brokers, senders=senders) as channel:
        brokers[1].gate.clear()
        brokers[2].stop_listening()
        brokers[2].drop_connections()
        stuck = [channel.send_request(2, update(number, size=8_000_000)) for number in range(5)]
        waiting = [channel.send_request(3, update(number)) for number in range(100)]
        eventually(brokers[1].has_unread)
        brokers[0].script.append(answer(11))
        behind = [channel.send_request(1, update(number)) for number in range(100)]
        kinds = [outcome.kind for outcome in channel.wait(behind, 10)]
        assert kinds == [OutcomeKind.FENCED] * 100
        assert len(brokers[0].received) == 1
        assert {outcome.kind for outcome in channel.wait(waiting, 10)} == {OutcomeKind.FENCED}
        # A partly written frame is not completed.
        brokers[1].gate.set()
        kinds = [outcome.kind for outcome in channel.wait(stuck, 10)]
        assert kinds == [OutcomeKind.FENCED] * 5
        assert brokers[1].received == []
        assert channel.describe()["state"] == "fenced"
        [late] = channel.wait(channel.send_requests([1], update()), 10)
        assert late.kind is OutcomeKind.FENCED
        assert len(brokers[0].received) == 1
    assert "has a newer controller than epoch 7" in caplog.text


def test_the_own_newer_controller_epoch_is_not_fenced() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        peer.script.append(answer(11))
        channel.wait([channel.send_request(1, update(0, epoch=7))], 10)
        [older] = channel.wait([channel.send_request(1, update(1, epoch=6))], 10)
        [newer] = channel.wait([channel.send_request(1, update(2, epoch=8))], 10)
        assert older.kind is OutcomeKind.FENCED
        assert newer.kind is OutcomeKind.ACKNOWLEDGED
        assert numbers(peer) == [0, 2]


def test_a_request_over_the_limit_is_too_large_and_not_sent() -> None:
    with peers(2) as brokers, channel_to(brokers, max_request_bytes=10_000) as channel:
        called: list[Outcome] = []
        sent = channel.send_requests([1, 2], update(0, size=10_000), called.append)
        outcomes = channel.wait(sent, 10)
        assert [outcome.kind for outcome in outcomes] == [OutcomeKind.TOO_LARGE] * 2
        assert outcomes[0].bytes > 10_000
        assert called == outcomes
        channel.wait(channel.send_requests([1, 2], update(1, size=9_000)), 10)
        assert [numbers(peer) for peer in brokers] == [[1], [1]]


def test_the_limit_is_that_of_kafkas_size_field() -> None:
    with peers(1) as [peer]:
        with channel_to([peer]) as channel:
            [outcome] = channel.wait([channel.send_request(1, update(size=1000))], 10)
        size = outcome.bytes - 4
        for limit, kind in ((size, OutcomeKind.ACKNOWLEDGED), (size - 1, OutcomeKind.TOO_LARGE)):
            with channel_to([peer], max_request_bytes=limit) as channel:
                assert channel.wait([channel.send_request(1, update(size=1000))], 10)[0].kind is kind


def test_an_error_of_the_encoder_is_raised_and_leaves_nothing() -> None:
    class Broken(FakeBody):
        def write_into(self, out: bytearray | memoryview, offset: int = 0) -> int:
            raise EncodeError("the columns changed")

    with peers(1) as [peer], channel_to([peer]) as channel:
        request = update(0, size=100_000)
        request.shared_body = Broken(UPDATE_METADATA, 8, 0, 100_000)
        with pytest.raises(EncodeError, match="the columns changed"):
            channel.send_request(1, request)
        described = channel.describe()
        assert described["shared_memory_bytes"] == 0
        assert described["total_queue_size"] == 0


# -- waiting


def test_wait_names_the_brokers_without_an_outcome() -> None:
    with peers(3) as brokers, channel_to(brokers) as channel:
        for peer in brokers[1:]:
            peer.script.append(silence)
        sent = channel.send_requests([1, 2, 3], update())
        channel.wait(sent[:1], 10)
        with pytest.raises(TimeoutError, match=r"no outcome after 0.2 s from 2 brokers: 2, 3") as caught:
            channel.wait(sent, 0.2)
        assert isinstance(caught.value, OutcomesTimeoutError)
        assert caught.value.outcomes == [sent[0].outcome]
        assert caught.value.pending == sent[1:]
        assert sent[0].done
        assert all(one.listeners == () for one in sent)


def test_futures_and_several_waiters() -> None:
    with peers(2) as brokers, channel_to(brokers) as channel:
        for peer in brokers:
            peer.gate.clear()
        sent = channel.send_requests([1, 2], update())
        futures = [one.future for one in sent]
        results: list[list[Outcome]] = []
        threads = [threading.Thread(target=lambda: results.append(channel.wait(sent, 10))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for peer in brokers:
            peer.gate.set()
        assert not wait_for_futures(futures, 10).not_done
        for thread in threads:
            thread.join(10)
        assert results == [[future.result() for future in futures]] * 3


def test_an_exception_of_a_futures_callback_stops_nothing() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        peer.gate.clear()
        sent = [channel.send_request(1, update(number)) for number in range(2)]

        def fail(_: object) -> None:
            raise RuntimeError

        sent[0].future.add_done_callback(fail)
        peer.gate.set()
        channel.wait(sent, 10)


def test_many_threads_send_at_once() -> None:
    with peers(3) as brokers, channel_to(brokers, senders=2) as channel:
        failures: list[object] = []

        def work(thread: int) -> None:
            sent = []
            for number in range(200):
                sent += channel.send_requests([1, 2, 3], update(thread * 1000 + number))
            failures.extend(
                outcome for outcome in channel.wait(sent, 30) if outcome.kind is not OutcomeKind.ACKNOWLEDGED
            )

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert failures == []
        for peer in brokers:
            got = numbers(peer)
            assert len(got) == 1000
            for sender in range(5):
                mine = [number for number in got if number // 1000 == sender]
                assert mine == sorted(mine)


# -- brokers that come and go


def test_a_request_to_an_unknown_broker_has_an_outcome(caplog: pytest.LogCaptureFixture) -> None:
    with ControllerChannelManager(config(), 7) as channel:
        called: list[Outcome] = []
        sent = channel.send_requests([5, 6], update(), called.append)
        outcomes = channel.wait(sent, 10)
        assert [outcome.kind for outcome in outcomes] == [OutcomeKind.BROKER_GONE] * 2
        assert [outcome.detail for outcome in outcomes] == ["the broker is offline"] * 2
        assert called == outcomes
    assert (
        "[Channel manager on controller 0]: Not sending request UpdateMetadata with controllerId=0, "
        "controllerEpoch=7 to broker 5, since it is offline."
    ) in caplog.messages


def test_adding_a_known_broker_changes_nothing() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        channel.wait([channel.send_request(1, update(0))], 10)
        pid = channel.describe()["brokers"][1]["sender_pid"]
        channel.add_broker(peer.broker)
        channel.startup(brokers_from([peer.broker]))
        channel.wait([channel.send_request(1, update(1))], 10)
        assert channel.describe()["brokers"][1]["sender_pid"] == pid
        assert peer.connections == 1


@every_mode
def test_removing_a_broker_ends_its_requests_at_once(senders: str | int) -> None:
    with peers(2) as brokers, channel_to(brokers, senders=senders) as channel:
        brokers[0].gate.clear()
        called: list[Outcome] = []
        sent = [channel.send_request(1, update(0, size=8_000_000), called.append)]
        sent += [channel.send_request(1, update(number)) for number in range(1, 100)]
        eventually(brokers[0].has_unread)
        channel.remove_broker(1)
        outcomes = channel.wait(sent, 60)
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.BROKER_GONE}
        assert {outcome.detail for outcome in outcomes} == {"the broker was removed"}
        assert len(called) == 1
        assert list(channel.describe()["brokers"]) == [2]
        # Its memory is free when its sender has reported REMOVED.
        eventually(lambda: channel.describe()["shared_memory_bytes"] == 0)
        channel.wait([channel.send_request(2, update())], 10)
        [late] = channel.wait([channel.send_request(1, update())], 10)
        assert late.kind is OutcomeKind.BROKER_GONE


def test_removing_an_unknown_broker_is_an_error() -> None:
    with channel_to([]) as channel, pytest.raises(UnknownBrokerError, match="the channel has no broker 9"):
        channel.remove_broker(9)


@every_mode
@pytest.mark.parametrize("change", ["epoch", "port"])
def test_another_epoch_or_endpoint_is_a_new_generation(senders: str | int, change: str) -> None:
    with Peer(1, 1001) as old, Peer(1, 1001) as moved, channel_to([old], senders=senders) as channel:
        old.script.append(silence)
        sent = [channel.send_request(1, update(number)) for number in range(3)]
        old.until(lambda: len(old.received) == 1)
        new = moved if change == "port" else old
        if change == "epoch":
            new.epoch = 1002
        channel.add_broker(new.broker)
        assert {outcome.kind for outcome in channel.wait(sent, 10)} == {OutcomeKind.BROKER_GONE}
        [outcome] = channel.wait([channel.send_request(1, update(9))], 10)
        assert outcome.kind is OutcomeKind.ACKNOWLEDGED
        assert number_of(new.received[-1].body) == 9
        assert new.received[-1].correlation_id == 0
        assert new.received[-1].body[9:17] == new.epoch.to_bytes(8, "big")
        assert channel.describe()["brokers"][1]["broker_epoch"] == new.epoch


def test_a_broker_without_an_endpoint_is_left_out_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reason = "broker 2 has no endpoint for listener PLAINTEXT (it has: INSIDE)"
    inside = (Endpoint("INSIDE", SecurityProtocol.SSL, "127.0.0.1", 1),)
    with peers(3) as brokers, ControllerChannelManager(config(), 7) as channel:
        second = brokers[1].broker
        channel.startup([brokers[0].broker, Broker(2, 1, inside), brokers[2].broker])
        assert channel.left_out == channel.describe()["left_out"] == {2: reason}
        assert list(channel.describe()["brokers"]) == [1, 3]
        outcomes = channel.wait(channel.send_requests([1, 2, 3], update()), 10)
        assert [outcome.kind for outcome in outcomes] == [
            OutcomeKind.ACKNOWLEDGED,
            OutcomeKind.BROKER_GONE,
            OutcomeKind.ACKNOWLEDGED,
        ]
        assert outcomes[1].detail == reason
        # It is registered again with an endpoint, and then without one.
        channel.add_broker(second)
        assert channel.left_out == {}
        assert channel.wait([channel.send_request(2, update())], 10)[0].kind is OutcomeKind.ACKNOWLEDGED
        brokers[1].default = silence
        unfinished = channel.send_request(2, update())
        channel.add_broker(Broker(2, 3, inside))
        assert channel.wait([unfinished], 10)[0].detail == reason
        assert channel.left_out == {2: reason}
        channel.remove_broker(2)
        assert channel.left_out == {}
        with pytest.raises(UnknownBrokerError):
            channel.remove_broker(2)
        eventually(lambda: caplog.text.count(f"Broker 2 is left out: {reason}") == 2)


def test_request_versions_follow_the_ibp() -> None:
    with ControllerChannelManager(ChannelConfig(inter_broker_protocol="2.4"), 7) as channel:
        assert channel.request_version(1, LEADER_AND_ISR) == 4
        assert channel.request_version(1, UPDATE_METADATA) == 6
        assert channel.config.inter_broker_protocol == "2.4"


# -- start and shutdown


def test_shutdown_ends_what_is_unfinished_and_can_be_called_again() -> None:
    with peers(2) as brokers:
        channel = ControllerChannelManager(config(), 7)
        assert channel.describe()["state"] == "new"
        channel.startup([peer.broker for peer in brokers])
        assert channel.describe()["state"] == "running"
        brokers[0].script.append(silence)
        called: list[Outcome] = []
        sent = channel.send_requests([1], update(), called.append)
        brokers[0].until(lambda: len(brokers[0].received) == 1)
        channel.shutdown(10)
        [outcome] = channel.wait(sent, 0)
        assert outcome.kind is OutcomeKind.BROKER_GONE
        assert outcome.detail == "the channel was shut down"
        assert called == [outcome]
        channel.shutdown()
        assert channel.describe()["state"] == "closed"
        for call in (
            lambda: channel.send_request(1, update()),
            lambda: channel.add_broker(brokers[0].broker),
            lambda: channel.remove_broker(1),
        ):
            with pytest.raises(ChannelClosedError):
                call()


def test_a_channel_that_was_never_used_costs_nothing() -> None:
    threads, fds = threading.active_count(), psutil.Process().num_fds()
    channel = ControllerChannelManager(config(), 7)
    assert threading.active_count() == threads
    assert psutil.Process().num_fds() == fds
    channel.shutdown()


def test_shutdown_keeps_its_deadline_when_a_callback_does_not_return(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with peers(1) as [peer]:
        leave, entered = threading.Event(), threading.Event()

        def callback(outcome: Outcome) -> None:
            entered.set()
            leave.wait(600)

        channel = ControllerChannelManager(config(), 7)
        channel.add_broker(peer.broker)
        channel.send_request(1, update(), callback)
        assert entered.wait(10)
        threads = threading.active_count()
        ends(lambda: channel.shutdown(0.3))
        assert "Shutdown took more than 0.3 s" in caplog.text
        leave.set()
        eventually(lambda: threading.active_count() < threads)


def test_a_forked_child_cannot_use_the_channel() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        channel.wait([channel.send_request(1, update())], 10)
        # Simulate the child; forking a process with threads is unsafe.
        channel._pid += 1
        with pytest.raises(IllegalStateError, match="forked"):
            channel.send_request(1, update())
        channel._pid -= 1


def test_a_forked_child_gets_an_error_and_no_deadlock() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        sent = channel.send_request(1, update())
        channel.wait([sent], 10)
        channel_state = channel._channel_state
        assert channel_state is not None
        calls: list[Callable[[], object]] = [
            channel.describe,
            lambda: channel.wait([sent], 1),
            lambda: channel.cancel([sent]),
            lambda: channel.needs_resync(1),
            lambda: channel.request_version(1, 6),
            lambda: channel.add_broker(peer.broker),
            channel.reload_credentials,
        ]
        # The state after a fork: another process id, and the lock held by a thread that does not exist.
        channel._pid += 1
        try:
            with channel_state.lock:
                for call in calls:
                    with pytest.raises(IllegalStateError, match="forked"):
                        call()
                channel.shutdown()
        finally:
            channel._pid -= 1


@pytest.mark.skipif(sys.platform == "win32", reason="SIGPIPE is POSIX")
def test_a_killed_sender_does_not_end_a_program_with_sigpipe_set_to_default() -> None:
    program = """
import os, signal
from ctrlchan.channel.queues._entries import CommandPipe
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
read, write = os.pipe()
os.close(read)
pipe = CommandPipe([], [])
pipe.commands = write
pipe.write(b"command")
pipe.flush()
print("alive", signal.sigpending())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "alive set()\n")


def test_brokers_are_added_all_or_none_when_descriptors_run_out() -> None:
    with peers(1) as [peer], channel_to([peer], senders="per-broker") as channel:
        channel.wait([channel.send_request(1, update())], 10)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (psutil.Process().num_fds() + 30, hard))
        try:
            many = [Broker(number, 1, peer.broker.endpoints) for number in range(2, 42)]
            with pytest.raises(ChannelError, match="no pipes for 40 more brokers"):
                channel.startup(many)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert set(channel.describe()["brokers"]) == {1}
        assert channel.describe()["senders"] == 1
        channel.startup(many[:2])
        outcomes = channel.wait(channel.send_requests([1, 2, 3], update()), 20)
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.ACKNOWLEDGED}


def test_logs_have_kafkas_prefixes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ctrlchan.channel")
    with peers(1) as [peer], channel_to([peer], controller_id=5) as channel:
        channel.wait([channel.send_request(1, update())], 10)
        port = peer.port
    assert (
        f"[RequestSendThread controllerId=5] Controller 5 connected to 127.0.0.1:{port} (id: 1 rack: null) "
        "for sending state change requests"
    ) in caplog.text


def test_what_kafkas_client_says_of_a_connection(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "ctrlchan.channel")
    with peers(1) as [peer], channel_to([peer], controller_id=5) as channel:
        channel.wait([channel.send_request(1, update())], 10)
        peer.drop_connections()
        eventually(lambda: "[Controller id=5, targetBrokerId=1] Node 1 disconnected." in caplog.messages)
    lines = [line for line in caplog.messages if "response" in line or "trying" in line]
    assert lines == [
        "[Channel manager on controller 5]: Controller 5 trying to connect to broker 1",
        "[Controller id=5, targetBrokerId=1] Received UPDATE_METADATA response from node 1 for request with "
        "header RequestHeader(apiKey=UPDATE_METADATA, apiVersion=8, clientId=5, correlationId=0): "
        "UpdateMetadataResponseData(errorCode=0)",
    ]


def test_responses_are_traced_if_the_logger_is_enabled(caplog: pytest.LogCaptureFixture) -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        channel.wait([channel.send_request(1, update())], 10)
        assert "state.change.logger" not in {record.name for record in caplog.records}
        caplog.set_level(logging.DEBUG - 5, "state.change.logger")
        channel.wait([channel.send_request(1, update())], 10)
    assert "[Controller id=0 epoch=7] Received response" in caplog.text
    assert "with correlation id 1 sent to broker 1" in caplog.text
