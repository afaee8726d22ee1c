"""Times from costs, costs from times, and where one machine ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ctrlchan.channel import ChannelConfig
from ctrlchan.errors import ConfigError
from ctrlchan.planning.costs import DEFAULT_COSTS, Costs
from ctrlchan.planning.events import Counted
from ctrlchan.planning.fit import fit
from ctrlchan.planning.plan import Plan, make_plan
from ctrlchan.planning.shape import Shape
from ctrlchan.planning.times import failover_time, network_rate, push_time
from ctrlchan.planning.traffic import ApiTraffic, Traffic
from ctrlchan.state import ClusterState

COSTS = Costs(
    encode_seconds=1e-9,
    byte_seconds=1e-10,
    cached_byte_seconds=1e-10,
    request_seconds=1e-6,
    push_seconds=1e-3,
    read_seconds=1e-6,
    failover_seconds=0.1,
    failover_partition_seconds=2e-6,
    failover_broker_seconds=1e-3,
    write_seconds=1e-5,
    event_seconds=0.01,
    controller_bytes=1e8,
    controller_partition_bytes=1_000,
    processors=8,
)
TRAFFIC = Traffic({"UpdateMetadata": ApiTraffic(1_000, 10**9, 10**6, 10**5)})


def plan(network: float | None = None, within: float = 6.0, costs: Costs = COSTS, **shape: Any) -> Plan:
    state = Shape(**{"partitions": 10_000, "brokers": 10, **shape}).state()
    return make_plan(state, ChannelConfig(controller_id=99), costs, network=network, within_seconds=within)


def test_the_slower_of_processor_and_network_decides() -> None:
    here = push_time(COSTS, TRAFFIC, None)
    assert here.bound == "processor"
    # A push, 100,000 partitions, a gigabyte and a thousand requests.
    assert here.seconds == pytest.approx(1e-3 + 1e-4 + 0.1 + 1e-3)
    fast = push_time(COSTS, TRAFFIC, network_rate(100))
    assert (fast.seconds, fast.bound) == (here.seconds, "processor")
    slow = push_time(COSTS, TRAFFIC, network_rate(10))
    assert slow.bound == "network"
    assert slow.seconds == pytest.approx(1e-3 + 1e-4 + 0.8)


def test_a_failover_adds_zookeeper_and_the_controllers_own_work() -> None:
    takes = failover_time(COSTS, Counted(TRAFFIC), 100_000, 20, None)
    assert takes.seconds == pytest.approx(push_time(COSTS, TRAFFIC, None).seconds + 0.1 + 0.3 + 0.02)
    assert takes.bound == "controller"


def test_a_fit_finds_the_costs_of_exact_times() -> None:
    amounts = [(10**9, 10, 1), (10**8, 1_000, 1), (10**6, 10, 1), (10**7, 500, 1)]
    wanted = [2e-10, 3e-6, 1e-3]
    seconds = [sum(a * b for a, b in zip(row, wanted, strict=True)) for row in amounts]
    assert fit(amounts, seconds) == pytest.approx(wanted)


def test_no_cost_of_a_fit_is_below_zero() -> None:
    # The second column would explain these times best with a negative cost.
    found = fit([(1, 1), (2, 10), (3, 30)], [1.0, 1.5, 1.0])
    assert min(found) >= 0
    assert max(found) > 0


@pytest.mark.parametrize("wrong", [-1.0, "1", None, True, float("nan"), float("inf")])
def test_a_wrong_cost_is_named(wrong: object) -> None:
    given = {name: getattr(COSTS, name) for name in Costs.__dataclass_fields__}
    assert Costs.of(given) == COSTS
    with pytest.raises(ConfigError, match="write_seconds"):
        Costs.of(given | {"write_seconds": wrong})


def test_one_machine_is_enough_up_to_the_limit_and_not_beyond() -> None:
    within = 0.5
    limit = plan(within=within).limit
    assert limit.is_enough
    most: list[dict[str, Any]] = [{"partitions": limit.most_partitions}, {"brokers": limit.most_brokers}]
    for shape in most:
        # The bytes of brokers and topics do not grow exactly as those of partitions do.
        takes = plan(within=within, **shape).event("failover").seconds
        assert takes == pytest.approx(within, rel=0.1)
    beyond = plan(within=within, partitions=2 * limit.most_partitions)
    assert not beyond.limit.is_enough


def test_the_network_needs_so_many_machines() -> None:
    planned = plan(network=network_rate(0.1), within=0.5)
    assert planned.limit.bound == "network"
    sending = planned.event("failover").bytes / network_rate(0.1)
    assert planned.limit.machines == -(-sending // 0.5)


def test_most_is_none_at_all_where_the_controllers_work_alone_takes_longer() -> None:
    limit = plan(within=0.05).limit
    assert (limit.is_enough, limit.bound, limit.most_partitions) == (False, "controller", 0)


def test_memory_grows_with_partitions() -> None:
    small, large = plan(), plan(partitions=20_000)
    assert large.memory_bytes - small.memory_bytes > 10_000 * COSTS.controller_partition_bytes
    assert small.sender_processes == 4


def test_a_cluster_of_one_broker_has_no_deaths() -> None:
    names = [one.name for one in plan(brokers=1, replication=1).events]
    assert names == ["full push", "difference push: one topic", "failover"]


def test_restarts_of_many_brokers_are_not_exact() -> None:
    assert plan(brokers=10).event("rolling restart").exact
    planned = plan(brokers=30)
    assert not planned.event("rolling restart").exact
    assert all(one.exact for one in planned.events if one.name != "rolling restart")


def test_an_empty_cluster_is_refused() -> None:
    with pytest.raises(ConfigError, match="partitions"):
        make_plan(
            ClusterState.empty(), ChannelConfig(controller_id=99), COSTS, network=None, within_seconds=1
        )


@pytest.mark.parametrize(
    ("shape", "named"),
    [
        ({"topic_name_length": 5}, "topic_name_length"),
        ({"replication": 11}, "replication"),
        ({"racks": 11}, "racks"),
        ({"host": "a", "partitions_per_topic": 0}, "partitions"),
    ],
)
def test_a_shape_that_cannot_be_is_named(shape: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        plan(**shape)


def test_the_last_topic_is_filled() -> None:
    assert Shape(partitions=101, brokers=3).topics == 2
    assert len(Shape(partitions=101, brokers=3).state().partitions) == 200
    assert len(Shape(partitions=7, brokers=3).state().partitions) == 7


def test_costs_of_a_slower_machine_take_longer() -> None:
    for partitions, cost in ((10_000, "cached_byte_seconds"), (100_000, "byte_seconds")):
        slower = replace(DEFAULT_COSTS, **{cost: getattr(DEFAULT_COSTS, cost) * 10})
        before, after = (
            plan(costs=costs, partitions=partitions).event("full push") for costs in (DEFAULT_COSTS, slower)
        )
        assert after.seconds > before.seconds
