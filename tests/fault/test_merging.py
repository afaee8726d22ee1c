"""Waiting requests are merged, large ones are sent in parts, and every request has its own outcome."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from ctrlchan import EmbeddedBroker
from ctrlchan._codec import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    SharedBody,
    UpdateMetadataRequest,
    decode_request,
)
from ctrlchan.broker.metadata.metadata_cache import MetadataCache
from ctrlchan.channel import (
    ChannelConfig,
    ControllerChannelManager,
    ControlRequest,
    Outcome,
    OutcomeKind,
    Sent,
)
from tests.fault.channels import channel_to, eventually, peers
from tests.fault.peer import Exchange, Peer, answer, succeed
from tests.fault.requests import leader_and_isr, stop_replica
from tests.unit.channel.bodies import DELETED, PlainUpdate, applied, body_of, picture, shared_body_of


def request(update: PlainUpdate, epoch: int = 7) -> ControlRequest:
    shared_body = shared_body_of(update)
    return ControlRequest(shared_body, epoch, rows=shared_body.rows)


def one_row(value: int, partition: int = 0, epoch: int = 7) -> ControlRequest:
    return request(PlainUpdate(8, {"topic": (1, {partition: 1})}, brokers=(1, 2), value=value), epoch)


def bodies(peer: Peer) -> list[UpdateMetadataRequest]:
    decoded = []
    for exchange in peer.received:
        if exchange.api_key == UPDATE_METADATA:
            body = decode_request(UPDATE_METADATA, exchange.version, exchange.body)
            assert isinstance(body, UpdateMetadataRequest)
            decoded.append(body)
    return decoded


def contents_of(sent: Sequence[Sent]) -> list[UpdateMetadataRequest]:
    """Return the decoded bodies of the received requests, in order."""
    shared_bodies = [one.request.shared_body for one in sent]
    return [body_of(shared_body) for shared_body in shared_bodies if isinstance(shared_body, SharedBody)]


def known(requests: Sequence[UpdateMetadataRequest]) -> dict[str, Any]:
    return picture(applied(MetadataCache(), requests))


def until_handed(channel: ControllerChannelManager, peer: Peer, count: int = 2) -> None:
    eventually(lambda: channel.describe()["brokers"][peer.broker_id]["in_flight"] == count)


def test_a_backlog_is_sent_as_one_request() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        peer.gate.clear()
        called: list[Outcome] = []
        first = [channel.send_request(1, one_row(value)) for value in range(2)]
        rest = [
            channel.send_request(1, one_row(value, value % 5), called.append if value % 2 else None)
            for value in range(2, 500)
        ]
        to_be_called = [sent.request for sent in rest if sent.callback]
        described = channel.describe()["brokers"][1]
        assert described["queue_size"] < 2 + 70
        peer.gate.set()
        outcomes = channel.wait([*first, *rest], 10)
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.ACKNOWLEDGED}
        assert [outcome.request for outcome in called] == to_be_called
        assert len(peer.received) == 3
        assert [outcome.merged for outcome in outcomes] == [1, 1] + [498] * 498
        # Each outcome has the size of the frame that was sent for it.
        sizes = [len(exchange.frame) + 4 for exchange in peer.received]
        assert [outcome.bytes for outcome in outcomes] == sizes[:2] + sizes[2:] * 498
        assert len({(outcome.correlation_id, outcome.response_ns) for outcome in outcomes[2:]}) == 1
        assert bodies(peer)[2].partitions.leader_epoch.tolist() == [495, 496, 497, 498, 499]
        described = channel.describe()
        assert described["brokers"][1]["merged"] == described["coalesced_requests"] == 497
        assert 1 <= described["merged_requests"] < 20
        eventually(lambda: channel.describe()["shared_memory_bytes"] == 0)


def test_merging_can_be_switched_off() -> None:
    with peers(1) as [peer], channel_to([peer], merge_update_metadata=False) as channel:
        peer.gate.clear()
        sent = [channel.send_request(1, one_row(value)) for value in range(200)]
        peer.gate.set()
        assert {outcome.merged for outcome in channel.wait(sent, 10)} == {1}
        assert [body.partitions.leader_epoch.tolist() for body in bodies(peer)] == [[v] for v in range(200)]
        assert channel.describe()["merged_requests"] == 0


def test_requests_are_not_merged_across_other_requests_or_controller_epochs() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        peer.gate.clear()
        sent = [channel.send_request(1, leader_and_isr(1)), channel.send_request(1, leader_and_isr(2))]
        until_handed(channel, peer)
        for value, what in enumerate("uuluusuuEEu"):
            if what == "l":
                sent.append(channel.send_request(1, leader_and_isr(value)))
            elif what == "s":
                sent.append(channel.send_request(1, stop_replica(value)))
            else:
                sent.append(channel.send_request(1, one_row(value, epoch=8 if what == "E" else 7)))
        peer.gate.set()
        channel.wait(sent, 10)
        assert [exchange.api_key for exchange in peer.received[2:]] == [
            UPDATE_METADATA,
            LEADER_AND_ISR,
            UPDATE_METADATA,
            STOP_REPLICA,
            UPDATE_METADATA,
            UPDATE_METADATA,
            UPDATE_METADATA,
        ]
        assert [body.partitions.leader_epoch.tolist() for body in bodies(peer)] == [[1], [4], [7], [9], [10]]
        assert [body.controller_epoch for body in bodies(peer)] == [7, 7, 7, 8, 7]


def test_brokers_with_the_same_neighbours_share_one_merged_request() -> None:
    with peers(5) as brokers, channel_to(brokers) as channel:
        for peer in brokers:
            peer.gate.clear()
        ids = [peer.broker_id for peer in brokers]
        sent = [channel.send_requests(ids, one_row(value, value)) for value in range(66)]
        # Each sender has two requests, and the 64th waiting one causes the merging.
        described = channel.describe()
        assert described["merged_requests"] == 1
        assert described["coalesced_requests"] == 5 * 63
        assert {broker["queue_size"] for broker in described["brokers"].values()} == {3}
        for peer in brokers:
            peer.gate.set()
        channel.wait([one for group in sent for one in group], 10)
        assert {len(peer.received) for peer in brokers} == {3}
        eventually(lambda: channel.describe()["shared_memory_bytes"] == 0)


def test_the_backlog_of_a_broker_that_is_away_does_not_grow() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        peer.stop_listening()
        peer.drop_connections()
        sent = [channel.send_request(1, one_row(value, value % 50)) for value in range(3000)]
        described = channel.describe()
        assert described["brokers"][1]["queue_size"] < 200
        assert described["brokers"][1]["in_flight"] == 2
        assert described["brokers"][1]["queued_bytes"] < 100_000
        peer.listen()
        assert {o.kind for o in channel.wait(sent, 20)} == {OutcomeKind.ACKNOWLEDGED}
        assert known(bodies(peer)) == known(contents_of(sent))


def test_an_error_ends_every_merged_request() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        peer.gate.clear()
        peer.script.extend([succeed, succeed, answer(31)])
        called: list[Outcome] = []
        sent = [channel.send_request(1, one_row(value), called.append) for value in range(10)]
        peer.gate.set()
        outcomes = channel.wait(sent, 10)
        kinds = [outcome.kind for outcome in outcomes]
        # The second one waits for the callback of the first, and is merged.
        assert kinds == [OutcomeKind.ACKNOWLEDGED] + [OutcomeKind.ACKNOWLEDGED] * 9
        assert len(peer.received) == 2
        peer.gate.clear()
        sent = [channel.send_request(1, one_row(value), called.append) for value in range(10)]
        peer.gate.set()
        outcomes = channel.wait(sent, 10)
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.REFUSED, OutcomeKind.ACKNOWLEDGED}
        assert len(called) == 20


def test_the_next_request_waits_for_the_callback_of_a_merged_one() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        peer.gate.clear()
        release = threading.Event()
        held = threading.Event()

        def hold(_: Outcome) -> None:
            held.set()
            release.wait(10)

        sent = [channel.send_request(1, leader_and_isr(0)), channel.send_request(1, leader_and_isr(1))]
        sent += [channel.send_request(1, one_row(2)), channel.send_request(1, one_row(3), hold)]
        sent += [channel.send_request(1, one_row(4))]
        after = channel.send_request(1, leader_and_isr(5))
        peer.gate.set()
        assert held.wait(10)
        assert [exchange.api_key for exchange in peer.received] == [LEADER_AND_ISR] * 2 + [UPDATE_METADATA]
        assert not after.done
        release.set()
        channel.wait([*sent, after], 10)


def test_merged_requests_of_a_removed_broker_end() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        peer.gate.clear()
        called: list[Outcome] = []
        sent = [channel.send_request(1, one_row(value), called.append) for value in range(300)]
        channel.remove_broker(1)
        assert {outcome.kind for outcome in channel.wait(sent, 10)} == {OutcomeKind.BROKER_GONE}
        assert len(called) == 300
        eventually(lambda: channel.describe()["shared_memory_bytes"] == 0)


def test_fencing_ends_merged_requests_of_that_epoch() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        peer.gate.clear()
        peer.script.append(answer(11))
        sent = [channel.send_request(1, one_row(value)) for value in range(300)]
        peer.gate.set()
        assert {outcome.kind for outcome in channel.wait(sent, 10)} == {OutcomeKind.FENCED}
        assert len(peer.received) == 1
        eventually(lambda: channel.describe()["shared_memory_bytes"] == 0)


def large(topics: int = 4, partitions: int = 50, value: int = 1) -> ControlRequest:
    rows = dict.fromkeys(range(partitions), 1)
    return request(PlainUpdate(8, {f"topic-{i}": (1 + i, rows) for i in range(topics)}, (1,), value))


def test_a_large_request_is_sent_in_parts_and_ends_once() -> None:
    with peers(1) as [peer], channel_to([peer], max_request_bytes=3000) as channel:
        called: list[Outcome] = []
        sent = channel.send_requests([1], large(), called.append) + channel.send_requests(
            [1], leader_and_isr(1)
        )
        whole, _ = channel.wait(sent, 10)
        frames = [exchange for exchange in peer.received if exchange.api_key == UPDATE_METADATA]
        assert [exchange.api_key for exchange in peer.received][-1] == LEADER_AND_ISR
        assert len(frames) == 4
        assert all(len(exchange.frame) <= 3000 for exchange in frames)
        assert called == [whole]
        assert whole.kind is OutcomeKind.ACKNOWLEDGED
        assert whole.bytes == sum(len(exchange.frame) + 4 for exchange in frames)
        assert whole.attempts == 4
        assert whole.rows == 200
        assert known(bodies(peer)) == known(contents_of([sent[0]]))
        eventually(lambda: channel.describe()["shared_memory_bytes"] == 0)


def test_a_split_request_has_the_result_of_its_worst_part() -> None:
    with peers(1) as [peer], channel_to([peer], max_request_bytes=3000) as channel:
        peer.script.extend([succeed, answer(31)])
        [outcome] = channel.wait([channel.send_request(1, large())], 10)
        assert (outcome.kind, outcome.error_code) == (OutcomeKind.REFUSED, 31)
        assert len(peer.received) == 4
        assert channel.describe()["brokers"][1]["needs_resync"]


def test_parts_are_not_merged_and_stay_together() -> None:
    with peers(1) as [peer], channel_to([peer], max_request_bytes=3000) as channel:
        peer.gate.clear()
        sent = [channel.send_request(1, large(value=1))]
        until_handed(channel, peer, 4)
        sent += [channel.send_request(1, large(value=2)), channel.send_request(1, one_row(9))]
        peer.gate.set()
        outcomes = channel.wait(sent, 10)
        assert [outcome.merged for outcome in outcomes] == [1, 2, 2]
        epochs = [set(body.partitions.leader_epoch.tolist()) for body in bodies(peer)]
        assert epochs[:4] == [{1}] * 4
        assert set().union(*epochs[4:]) == {2, 9}
        assert all(len(exchange.frame) <= 3000 for exchange in peer.received)
        assert known(bodies(peer)) == known(contents_of(sent))


def test_a_large_request_that_cannot_be_split_is_not_sent() -> None:
    with peers(1) as [peer], channel_to([peer], max_request_bytes=1000) as channel:
        update = PlainUpdate(8, {"t": (1, {0: 1, 1: 1})}, tuple(range(100)))
        [outcome] = channel.wait([channel.send_request(1, request(update))], 10)
        assert outcome.kind is OutcomeKind.TOO_LARGE
        channel.wait([channel.send_request(1, leader_and_isr(1))], 10)
        assert len(peer.received) == 1


@pytest.mark.parametrize("senders", ["per-broker", 2])
def test_a_merged_request_survives_the_death_of_a_sender(senders: str | int) -> None:
    with peers(1) as [peer], channel_to([peer], senders=senders) as channel:
        stall = threading.Event()

        def later(exchange: Exchange) -> None:
            stall.wait(10)
            succeed(exchange)

        peer.script.extend([succeed, succeed, later])
        peer.gate.clear()
        sent = [channel.send_request(1, one_row(value)) for value in range(100)]
        peer.gate.set()
        peer.until(lambda: len(peer.received) == 3)
        os.kill(channel.describe()["brokers"][1]["sender_pid"], signal.SIGKILL)
        stall.set()
        outcomes = channel.wait(sent, 10)
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.ACKNOWLEDGED}
        assert {outcome.sender_deaths for outcome in outcomes[2:]} == {1}
        assert known(bodies(peer)) == known(contents_of(sent))


def churn() -> Sequence[PlainUpdate]:
    """Topics created, changed, deleted, created again with another id; brokers that come and go."""
    updates: list[PlainUpdate] = []
    for value in range(1, 120):
        topic = f"topic-{value % 3}"
        leader = DELETED if value % 7 < 2 else value % 4 - 1
        rows = dict.fromkeys(range(value % 4 + 1), leader)
        topics = {} if value % 11 == 0 else {topic: (1 + value // 7 % 5, rows)}
        updates.append(PlainUpdate(8, topics, tuple(range(1, 2 + value % 4)), value))
    return updates


@pytest.mark.parametrize("max_request_bytes", [10_000_000, 400])
def test_an_embedded_broker_has_the_same_state_merged_or_not(max_request_bytes: int) -> None:
    pictures = []
    for merge in (True, False):
        config = ChannelConfig(
            controller_id=0,
            merge_update_metadata=merge,
            senders=1,
            max_request_bytes=max_request_bytes,
        )
        with (
            EmbeddedBroker(1, epoch=1) as broker,
            ControllerChannelManager(config, controller_epoch=7) as channel,
        ):
            channel.startup([broker.broker])
            sent = [channel.send_request(1, request(update)) for update in churn()]
            assert {outcome.kind for outcome in channel.wait(sent, 20)} == {OutcomeKind.ACKNOWLEDGED}
            assert (channel.describe()["coalesced_requests"] > 0) == merge
            pictures.append(broker.inspect(lambda core: picture(core.metadata)))
    assert pictures[0] == pictures[1]


def test_large_requests_do_not_pile_up() -> None:
    with peers(1) as [peer], channel_to([peer], max_backlog_bytes=30_000) as channel:
        peer.gate.clear()
        sent = [channel.send_request(1, leader_and_isr(0)), channel.send_request(1, leader_and_isr(1))]
        until_handed(channel, peer)
        # 10 KB each: a few requests, and too many bytes together.
        sent += [channel.send_request(1, large(partitions=50, value=value)) for value in range(50)]
        waiting = channel.describe()["brokers"][1]["queued_bytes"]
        assert waiting < 60_000
        peer.gate.set()
        assert {o.kind for o in channel.wait(sent, 10)} == {OutcomeKind.ACKNOWLEDGED}
        assert known(bodies(peer)) == known(contents_of(sent))


def test_a_crowded_queue_merges_pairs_that_need_two_requests() -> None:
    """A topic with an id that is deleted repeatedly: Kafka would keep its id without partitions."""
    rows = dict.fromkeys(range(50), DELETED)
    limits = {200_000_000: False, 5_000: True}
    for limit, crowded in limits.items():
        with peers(1) as [peer], channel_to([peer], max_backlog_bytes=limit) as channel:
            peer.gate.clear()
            sent = [channel.send_request(1, leader_and_isr(0)), channel.send_request(1, leader_and_isr(1))]
            until_handed(channel, peer)
            sent += [
                channel.send_request(
                    1, request(PlainUpdate(8, {"gone": (1, rows), "here": (2, {0: 1})}, (1,), value))
                )
                for value in range(200)
            ]
            assert (channel.describe()["brokers"][1]["queue_size"] < 50) == crowded
            peer.gate.set()
            assert {o.kind for o in channel.wait(sent, 10)} == {OutcomeKind.ACKNOWLEDGED}
            ours, theirs = known(bodies(peer)), known(contents_of(sent))
            assert ours["partitions"] == theirs["partitions"]
            assert ours["brokers"] == theirs["brokers"]
            assert set(theirs["ids"]) - set(ours["ids"]) <= ({"gone"} if crowded else set())
