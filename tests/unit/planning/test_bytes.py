"""The planned bytes are those that brokers receive: of a real channel, and of a real controller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import sleep

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.calibration.cluster_nodes import measured_nodes
from ctrlchan.calibration.controller import CONTROLLER_ID, MeasuredController
from ctrlchan.calibration.memory_nodes import MemoryNodes
from ctrlchan.calibration.pushes import sunk
from ctrlchan.calibration.sinks import SinkReport, Sinks
from ctrlchan.channel import ChannelConfig, ControllerChannelManager, OutcomeKind
from ctrlchan.planning.events import Counted, PlannedCluster
from ctrlchan.planning.shape import Shape
from ctrlchan.protocol import IBP_NAMES, SecurityProtocol, ibp_at_least
from ctrlchan.state import Endpoint
from ctrlchan.state.importing.generate import GeneratorConfig, generate
from tests.kafka.waiting import wait_until

_PLAINTEXT = ("PLAINTEXT", SecurityProtocol.PLAINTEXT)
#: Listeners whose names are those of their protocols, which every version can carry but the first.
_OTHERS = (("SSL", SecurityProtocol.SSL), ("SASL_SSL", SecurityProtocol.SASL_SSL))
_NAMED = (("CLIENTS", SecurityProtocol.SASL_PLAINTEXT), ("REPLICATION_OF_RECORDS", SecurityProtocol.SSL))


@pytest.fixture(scope="module")
def sinks() -> Iterator[Sinks]:
    with Sinks(1) as running:
        yield running


@st.composite
def clusters(draw: st.DrawFn) -> tuple[GeneratorConfig, ChannelConfig]:
    """Return a cluster and how to talk to it; the port is set later."""
    ibp = draw(st.sampled_from(IBP_NAMES))
    others = draw(st.permutations(_OTHERS + _NAMED if ibp_at_least(ibp, "0.10.2-IV0") else _OTHERS))
    brokers = draw(st.integers(1, 6))
    # A count of 128 or more takes two bytes of a flexible version.
    per_topic = draw(st.one_of(st.integers(1, 20), st.integers(120, 140)))
    cluster = GeneratorConfig(
        topics=draw(st.integers(1, 6)),
        partitions_per_topic=per_topic,
        brokers=brokers,
        replication=draw(st.integers(1, brokers)),
        racks=draw(st.integers(0, brokers)),
        offline_share=draw(st.sampled_from((0.0, 0.1, 0.5))),
        seed=draw(st.integers(0, 100)),
        listeners=(_PLAINTEXT, *others[: draw(st.integers(0, len(others)))]),
        topic_prefix="t" * draw(st.sampled_from((1, 20, 121, 122, 200))),
    )
    config = ChannelConfig(
        controller_id=draw(st.sampled_from((0, 12_345))),
        inter_broker_protocol=ibp,
        # Some of the requests are split.
        max_request_bytes=draw(st.sampled_from((4_000, 100 * 2**20))),
        senders=1,
    )
    return cluster, config


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(clusters())
def test_a_push_has_the_planned_bytes(sinks: Sinks, drawn: tuple[GeneratorConfig, ChannelConfig]) -> None:
    shape, config = drawn
    state = generate(shape)
    # The channel connects to the first listener of each broker.
    state.brokers.ports[state.brokers.endpoint_starts] = sinks.ports[0]
    before = sinks.report()
    with ControllerChannelManager(config, state.controller_epoch) as channel:
        channel.startup(state.brokers)
        batch = ControllerBrokerRequestBatch(channel, state)
        batch.add_update_metadata(state.broker_ids.tolist(), "all")
        outcomes = channel.wait(batch.send_requests_to_brokers(state.controller_epoch), 30)
        assert {one.kind for one in outcomes} == {OutcomeKind.ACKNOWLEDGED}
    planned = PlannedCluster(state, config).full_push().traffic.total
    assert (planned.requests, planned.bytes) == _since(sinks, before)


def _since(sinks: Sinks, before: SinkReport) -> tuple[int, int]:
    now = sinks.report()
    return now.requests - before.requests, now.bytes - before.bytes


@pytest.mark.parametrize(("partitions", "brokers", "replication"), [(330, 4, 3), (400, 5, 2), (40, 2, 1)])
def test_events_of_a_controller_have_the_planned_bytes(
    sinks: Sinks, partitions: int, brokers: int, replication: int
) -> None:
    shape = Shape(partitions=partitions, brokers=brokers, replication=replication, partitions_per_topic=25)
    state = sunk(shape.state(), sinks.ports)
    start = sinks.report()
    with (
        MemoryNodes() as zookeeper,
        measured_nodes(zookeeper.address, state) as nodes,
        MeasuredController(nodes.address) as controller,
    ):
        nodes.wait_until_created()
        # Each broker is sent the live brokers, then LeaderAndIsr and UpdateMetadata of the new partitions.
        wait_until(lambda: _since(sinks, start)[0] >= 3 * brokers, timeout=60, what="all is created")
        assert _is_quiet(sinks)
        endpoint = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", controller.port)
        planned = PlannedCluster(state, ChannelConfig(controller_id=CONTROLLER_ID), controller=(endpoint,))
        first = state.broker(0)

        def compare(event: Counted, cause: Callable[[], None]) -> None:
            before = sinks.report()
            cause()
            total = event.traffic.total
            wait_until(
                lambda: _since(sinks, before)[0] >= total.requests,
                timeout=60,
                what=f"{total.requests} requests",
            )
            assert _is_quiet(sinks)
            assert _since(sinks, before) == (total.requests, total.bytes)

        compare(planned.failover(), nodes.depose)
        if replication > 1:
            compare(planned.death(0)[0], lambda: nodes.unregister(0))
            compare(planned.registration(first), lambda: nodes.register(first))


def _is_quiet(sinks: Sinks) -> bool:
    """Return whether nothing arrives for a while."""
    before = sinks.report()
    sleep(0.3)
    return sinks.report() == before and before.requests > 0
