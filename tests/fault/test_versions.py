"""Brokers of several versions, with a controller that asks them for their versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest

from ctrlchan import OutcomeKind
from ctrlchan._codec import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    ControlRequestBody,
    StopReplicaRequest,
    decode_request,
    stop_replica_body,
)
from ctrlchan.channel import ControlRequest, Outcome
from tests.fault.channels import MODES, channel_to, eventually
from tests.fault.peer import Exchange, Peer, hang_up
from tests.fault.requests import leader_and_isr
from tests.fault.secure_peer import SecurePeer
from tests.fault.test_merging import known, large, one_row
from tests.unit.channel.bodies import body_of
from tests.unit.channel.test_split import request as body_to_send

Make = Callable[[Sequence[int]], list[SecurePeer]]


@pytest.fixture
def make() -> Iterator[Make]:
    """Peers 1, 2, ... with these highest versions of UpdateMetadata."""
    with ExitStack() as stack:

        def peers(highest: Sequence[int]) -> list[SecurePeer]:
            made = []
            for broker_id, version in enumerate(highest, 1):
                peer = SecurePeer(broker_id=broker_id, epoch=1000 + broker_id, asked=True)
                stack.callback(peer.close)
                peer.versions[UPDATE_METADATA] = (0, version)
                made.append(peer)
            return made

        yield peers


def bodies(peer: Peer) -> list[ControlRequestBody]:
    return [decode_request(e.api_key, e.version, e.body) for e in peer.received]


@pytest.mark.parametrize("senders", MODES)
def test_each_broker_gets_the_version_it_has(make: Make, senders: str | int) -> None:
    peers = make([8, 6, 5, 6, 1])
    ids = [peer.broker_id for peer in peers]
    with channel_to(peers, negotiate=True, senders=senders, merge_update_metadata=False) as channel:
        called: list[Outcome] = []
        # The first requests may be queued before the versions of the brokers are here.
        sent = [channel.send_requests(ids, one_row(value, value), called.append) for value in range(10)]
        outcomes = channel.wait([one for group in sent for one in group], 10)
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.ACKNOWLEDGED}
        assert len(called) == 50
        assert [channel.request_version(broker_id, UPDATE_METADATA) for broker_id in ids] == [8, 6, 5, 6, 1]
        for outcome in outcomes:
            received = peers[outcome.broker_id - 1].received
            [exchange] = [one for one in received if one.correlation_id == outcome.correlation_id]
            assert (outcome.version, outcome.bytes) == (exchange.version, len(exchange.frame) + 4)
        assert {outcome.request.version for outcome in outcomes} == {8}
        assert channel.request_version(99, UPDATE_METADATA) == 8
        eventually(lambda: channel.describe()["shared_memory_bytes"] == 0)
    for peer, version in zip(peers, [8, 6, 5, 6, 1], strict=True):
        assert {exchange.version for exchange in peer.received} == {version}
        epochs = [body.partitions.leader_epoch.tolist() for body in bodies(peer)]  # type: ignore[union-attr]
        assert epochs == [[value] for value in range(10)]


def test_no_version_above_the_ibp_is_sent(make: Make) -> None:
    [peer] = make([8])
    with channel_to([peer], negotiate=True, inter_broker_protocol="2.4") as channel:
        eventually(lambda: channel.describe()["brokers"][1]["state"] == "connected")
        assert channel.request_version(1, UPDATE_METADATA) == 6


def test_merged_requests_are_transcoded_for_older_brokers(make: Make) -> None:
    peers = make([8, 5])
    with channel_to(peers, negotiate=True) as channel:
        eventually(lambda: all(one["state"] == "connected" for one in channel.describe()["brokers"].values()))
        for peer in peers:
            peer.gate.clear()
        requests = [one_row(value, value) for value in range(50)]
        sent = [channel.send_requests([1, 2], request) for request in requests]
        for peer in peers:
            peer.gate.set()
        outcomes = channel.wait([one for group in sent for one in group], 10)
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.ACKNOWLEDGED}
        # How many wait when the first response arrives depends on timing.
        assert max(outcome.merged for outcome in outcomes) > 1
    old, new = (known(bodies(peer)) for peer in peers)  # type: ignore[arg-type]
    assert old["partitions"] == new["partitions"]
    assert new["partitions"] == known([body_of(r.shared_body) for r in requests])["partitions"]  # type: ignore[arg-type]


def test_a_request_without_a_common_version_is_refused_and_the_next_one_is_sent(make: Make) -> None:
    [peer] = make([8])
    peer.versions[UPDATE_METADATA] = (9, 12)
    with channel_to([peer], negotiate=True) as channel:
        called: list[Outcome] = []
        sent = [
            channel.send_request(1, one_row(1), called.append),
            channel.send_request(1, leader_and_isr(1)),
        ]
        sent.append(channel.send_request(1, one_row(2), called.append))
        first, second, third = channel.wait(sent, 10)
        assert (first.kind, second.kind, third.kind) == (
            OutcomeKind.REFUSED,
            OutcomeKind.ACKNOWLEDGED,
            OutcomeKind.REFUSED,
        )
        assert "no common version" in first.detail
        assert first.attempts == 0
        assert called == [first, third]
        assert channel.describe()["brokers"][1]["needs_resync"]
        assert [exchange.api_key for exchange in peer.received] == [LEADER_AND_ISR]
        eventually(lambda: channel.describe()["shared_memory_bytes"] == 0)


def test_a_broker_that_comes_back_older_gets_what_it_can_read(make: Make) -> None:
    [peer] = make([8])

    def downgraded(exchange: Exchange) -> None:
        peer.versions[UPDATE_METADATA] = (0, 5)
        hang_up(exchange)

    peer.script.extend([peer.default, downgraded])
    with channel_to([peer], negotiate=True, retry_backoff=0, merge_update_metadata=False) as channel:
        sent = [channel.send_request(1, one_row(value)) for value in range(20)]
        outcomes = channel.wait(sent, 10)
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.ACKNOWLEDGED}
    assert [exchange.version for exchange in peer.received] == [8, 8] + [5] * 19
    assert [outcome.version for outcome in outcomes] == [8] + [5] * 19
    epochs = [body.partitions.leader_epoch.tolist()[0] for body in bodies(peer)]  # type: ignore[union-attr]
    assert epochs == [0, 1, *range(1, 20)]


def test_an_outcome_has_version_and_bytes_of_transcoded_parts(make: Make) -> None:
    [peer] = make([5])
    with channel_to([peer], negotiate=True, max_request_bytes=2000) as channel:
        sent = channel.send_request(1, large())
        [outcome] = channel.wait([sent], 10)
    assert len(peer.received) > 2
    assert (outcome.version, sent.request.version, outcome.merged) == (5, 8, 1)
    assert outcome.bytes == sum(len(exchange.frame) + 4 for exchange in peer.received)
    assert outcome.attempts == len(peer.received)


def test_deletions_for_an_old_broker_are_sent_apart_and_end_as_one(make: Make) -> None:
    [peer] = make([8])
    peer.versions[STOP_REPLICA] = (0, 2)
    body = body_to_send(STOP_REPLICA, 4, [2, 2])
    assert isinstance(body, StopReplicaRequest)
    body.delete[:] = [0, 1, 0, 1]
    shared_body = stop_replica_body(
        4, body.topics, body.topic_row, body.partition, body.leader_epoch, body.delete
    )
    with channel_to([peer], negotiate=True) as channel:
        called: list[Outcome] = []
        sent = channel.send_request(1, ControlRequest(shared_body, 7, rows=4), called.append)
        [outcome] = channel.wait([sent], 10)
        assert outcome.kind is OutcomeKind.ACKNOWLEDGED
        assert called == [outcome]
    stop_replicas = [one for one in bodies(peer) if isinstance(one, StopReplicaRequest)]
    assert [(one.delete_partitions, one.partition.tolist()) for one in stop_replicas] == [
        (False, [0, 0]),
        (True, [1, 1]),
    ]
