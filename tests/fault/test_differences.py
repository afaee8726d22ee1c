"""rows="changed" through real sender processes to embedded brokers, over connections that are cut."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from ctrlchan import ClusterState, ControllerBrokerRequestBatch, EmbeddedBroker
from ctrlchan.channel import ControllerChannelManager, ControlRequest, OutcomeKind, Sent
from ctrlchan.errors import ErrorCode
from ctrlchan.state import Broker
from tests.fault.channels import MODES, channel_to, config, peers
from tests.fault.peer import answer
from tests.fault.proxy import Proxy
from tests.fault.requests import leader_and_isr, stop_replica, update
from tests.unit.batch.manual_channel import metadata_of
from tests.unit.batch.test_differences import change

IDS = [1, 2, 3]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("senders", MODES)
def test_every_broker_has_the_state_in_the_end_whatever_connections_do(senders: str | int, seed: int) -> None:
    rng = random.Random(seed)
    brokers = {one: EmbeddedBroker(one, epoch=100) for one in IDS}
    proxies = {one: Proxy(brokers[one].port) for one in IDS}
    try:
        state = ClusterState.empty(controller_id=1, controller_epoch=5)
        state.set_brokers([proxies[one].broker(one, 100) for one in IDS])
        with ControllerChannelManager(config(senders=senders, controller_id=1), 5) as channel:
            channel.startup(state.brokers)
            batch = ControllerBrokerRequestBatch(channel, state)
            sent: list[Sent] = []
            epochs = dict.fromkeys(IDS, 100)
            for step in range(1, 60):
                for _ in range(rng.randrange(3)):
                    change(state, rng, step)
                batch.new_batch()
                if rng.random() < 0.8:
                    batch.add_update_metadata(rng.sample(IDS, rng.randint(1, 3)), "changed")
                elif len(state.partitions):
                    batch.add_update_metadata(IDS, rng.randrange(len(state.partitions)))
                sent += batch.send_requests_to_brokers(5)
                one = rng.choice(IDS)
                match rng.randrange(8):
                    case 0:
                        proxies[one].drop_connections()
                    case 1:
                        channel.cancel(sent[-3:])
                    case 2:
                        # The broker has registered again, and refuses requests with its old epoch.
                        epochs[one] += 1
                        brokers[one].set_epoch(epochs[one])
                    case 3:
                        channel.add_broker(proxies[one].broker(one, epochs[one]))
                    case 4:
                        channel.wait(sent, 30)
            for one in IDS:
                channel.add_broker(proxies[one].broker(one, epochs[one]))
            channel.wait(sent, 30)
            codes = {one.outcome.error_code for one in sent if one.outcome is not None}
            assert codes <= {0, ErrorCode.STALE_BROKER_EPOCH}
            last = push_changed(batch)
            assert {outcome.kind for outcome in channel.wait(last, 30)} <= {OutcomeKind.ACKNOWLEDGED}
            for one in IDS:
                assert brokers[one].inspect(lambda core: metadata_of(core.metadata.state)) == metadata_of(
                    state
                ), one
                assert not channel.needs_resync(one)
            assert push_changed(batch) == []
    finally:
        for proxy in proxies.values():
            proxy.close()
        for broker in brokers.values():
            broker.close()


def push_changed(batch: ControllerBrokerRequestBatch) -> list[Sent]:
    batch.new_batch()
    batch.add_update_metadata(IDS, "changed")
    return batch.send_requests_to_brokers(5)


def test_after_a_refused_push_the_next_one_is_a_full_resync() -> None:
    with EmbeddedBroker(1, epoch=7) as broker, ControllerChannelManager(config(), 5) as channel:
        state = ClusterState.empty(controller_id=1, controller_epoch=5)
        state.set_brokers([broker.broker])
        state.add_topic("topic", {0: [1], 1: [1]}, leader=1, leader_epoch=0)
        channel.startup(state.brokers)
        batch = ControllerBrokerRequestBatch(channel, state)

        def push_one() -> list[tuple[str, int]]:
            batch.new_batch()
            batch.add_update_metadata([1], "changed")
            outcomes = channel.wait(batch.send_requests_to_brokers(5), 10)
            return [(outcome.kind.value, outcome.rows) for outcome in outcomes]

        assert push_one() == [("acknowledged", 2)]
        broker.set_epoch(8)
        state.update(0, leader_epoch=1)
        assert push_one() == [("fenced", 1)]
        assert channel.needs_resync(1)
        assert push_one() == [("fenced", 2)]
        broker.set_epoch(7)
        assert push_one() == [("acknowledged", 2)]
        assert not channel.needs_resync(1)
        assert push_one() == []
        channel.add_broker(Broker(1, 7, broker.broker.endpoints))
        assert push_one() == []
        channel.add_broker(Broker(1, 9, broker.broker.endpoints))
        assert push_one() == [("acknowledged", 2)]


PARTITIONS = 20_000


def partition_state(brokers: Sequence[Broker], partitions: int = PARTITIONS) -> ClusterState:
    state = ClusterState.empty(controller_id=0, controller_epoch=7)
    state.set_brokers(brokers)
    state.add_topic("topic", {number: [1] for number in range(partitions)}, leader=1, leader_epoch=0)
    return state


@pytest.mark.parametrize("error", [11, 56])
@pytest.mark.parametrize("request_of", [leader_and_isr, stop_replica])
def test_partition_errors_cost_no_update_metadata(
    request_of: Callable[[], ControlRequest], error: int
) -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        state = partition_state([peer.broker])
        batch = ControllerBrokerRequestBatch(channel, state)
        batch.add_update_metadata([1], "changed")
        channel.wait(batch.send_requests_to_brokers(7), 30)
        peer.script.append(answer(partition_errors=[0, error]))
        [outcome] = channel.wait([channel.send_request(1, request_of())], 10)
        assert outcome.kind is OutcomeKind.PARTITION_ERRORS
        batch.add_update_metadata([1], "changed")
        assert batch.send_requests_to_brokers(7) == []
        state.update(5, leader_epoch=1)
        batch.add_update_metadata([1], "changed")
        [outcome] = channel.wait(batch.send_requests_to_brokers(7), 10)
        assert (outcome.kind, outcome.rows) == (OutcomeKind.ACKNOWLEDGED, 1)


def test_a_refused_leader_and_isr_costs_no_update_metadata() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        batch = ControllerBrokerRequestBatch(channel, partition_state([peer.broker], 10))
        batch.add_update_metadata([1], "changed")
        channel.wait(batch.send_requests_to_brokers(7), 30)
        peer.script.append(answer(31))
        [outcome] = channel.wait([channel.send_request(1, leader_and_isr())], 10)
        assert outcome.kind is OutcomeKind.REFUSED
        assert channel.needs_resync(1)
        batch.add_update_metadata([1], "changed")
        assert batch.send_requests_to_brokers(7) == []


@pytest.mark.parametrize(("request_of", "error"), [(update, 31), (leader_and_isr, 77)])
def test_an_error_that_leaves_the_metadata_uncertain_costs_a_full_update_metadata(
    request_of: Callable[[], ControlRequest], error: int
) -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        batch = ControllerBrokerRequestBatch(channel, partition_state([peer.broker], 10))
        batch.add_update_metadata([1], "changed")
        channel.wait(batch.send_requests_to_brokers(7), 30)
        peer.script.append(answer(error))
        channel.wait([channel.send_request(1, request_of())], 10)
        assert channel.needs_resync(1)
        batch.add_update_metadata([1], "changed")
        [outcome] = channel.wait(batch.send_requests_to_brokers(7), 10)
        assert (outcome.kind, outcome.rows) == (OutcomeKind.ACKNOWLEDGED, 10)
        assert not channel.needs_resync(1)


def test_an_equal_leader_epoch_makes_no_resync_necessary() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        peer.script += [answer(partition_errors=[11, 0]), answer(partition_errors=[11, 56])]
        channel.wait([channel.send_request(1, leader_and_isr())], 10)
        assert not channel.needs_resync(1)
        channel.wait([channel.send_request(1, leader_and_isr())], 10)
        assert channel.needs_resync(1)
