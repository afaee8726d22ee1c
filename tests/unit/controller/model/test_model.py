"""Random histories of a cluster with real controllers on real ZooKeeper."""

from __future__ import annotations

import itertools
from collections.abc import Collection

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ctrlchan.controller.handlers.elections import ElectionType
from ctrlchan.zookeeper import paths
from tests.kafka.zookeeper import ZooKeeperServer
from tests.unit.controller.model.checks import check_healed, check_quiet
from tests.unit.controller.model.cluster import Key, ModelCluster
from tests.unit.controller.model.controllers import ModelController

BROKERS = (1, 2, 3, 4)
TOPICS = ("a", "b", "c")
MOST_CONTROLLERS = 2
MOST_PARTITIONS = 4

_chroots = itertools.count()

brokers = st.sampled_from(BROKERS)
topics = st.sampled_from(TOPICS)
#: An assignment of one partition.
replicas = st.lists(brokers, min_size=1, max_size=3, unique=True)
#: A number that chooses one of what there is.
choices = st.integers(0, 11)
counts = st.integers(1, 4)

_MALFORMED = (
    paths.broker(99),
    paths.topic("malformed"),
    paths.REASSIGN_PARTITIONS,
    paths.PREFERRED_REPLICA_ELECTION,
    paths.isr_change_notification("isr_change_0000000000"),
    paths.log_dir_event_notification("log_dir_event_0000000000"),
    paths.deleted_topic("unknown"),
    paths.config_change("config_change_9999999999"),
)


class ControllerMachine(RuleBasedStateMachine):
    """Lets anything happen in any order; compares everything when the cluster is quiet."""

    address = ""

    def __init__(self) -> None:
        super().__init__()
        self._cluster: ModelCluster | None = None

    @property
    def cluster(self) -> ModelCluster:
        assert self._cluster is not None
        return self._cluster

    @initialize(
        ibp=st.sampled_from(("3.9", "3.9", "2.7", "2.4")),
        running=st.lists(brokers, min_size=2, unique=True),
        assignment=st.lists(replicas, min_size=1, max_size=3),
    )
    def begin(self, ibp: str, running: list[int], assignment: list[list[int]]) -> None:
        self._cluster = ModelCluster(self.address, f"/model-{next(_chroots)}", ibp, BROKERS)
        for broker_id in running:
            self.cluster.start_broker(broker_id)
        self.cluster.start_controller()
        self.cluster.settle()
        self.cluster.create_topic("a", dict(enumerate(assignment)))
        self.cluster.settle()
        check_quiet(self.cluster)

    def teardown(self) -> None:
        if self._cluster is None:
            return
        try:
            self._heal()
        finally:
            self._cluster.close()

    # -- time

    @rule()
    def settle(self) -> None:
        self.cluster.settle()
        check_quiet(self.cluster)

    @rule(choice=choices, count=counts)
    def process_events(self, choice: int, count: int) -> None:
        if controller := self._controller(choice):
            self.cluster.process(controller, count)

    @rule(choice=choices, broker_id=brokers, count=counts)
    def deliver(self, choice: int, broker_id: int, count: int) -> None:
        if controller := self._controller(choice):
            self.cluster.deliver(controller, broker_id, count)

    # -- controllers

    @precondition(lambda self: len(self.cluster.controllers) < MOST_CONTROLLERS)
    @rule()
    def start_controller(self) -> None:
        self.cluster.start_controller()

    @rule(choice=choices)
    def kill_controller(self, choice: int) -> None:
        if controller := self._controller(choice):
            self.cluster.kill_controller(controller)

    @rule(choice=choices)
    def resign(self, choice: int) -> None:
        if controller := self._controller(choice):
            self.cluster.resign(controller)

    @rule(choice=choices, number=counts, dies=st.booleans())
    def end_controller_at_write(self, choice: int, number: int, dies: bool) -> None:
        if controller := self._controller(choice):
            self.cluster.end_at_write(controller, number, dies=dies)

    @rule(choice=choices)
    def expire_controller(self, choice: int) -> None:
        if controller := self._controller(choice):
            self.cluster.expire_controller(controller)

    @rule()
    def remove_controller_node(self) -> None:
        self.cluster.remove_controller_node()

    # -- brokers

    @rule(broker_id=brokers)
    def start_broker(self, broker_id: int) -> None:
        if self.cluster.is_registered(broker_id):
            return
        if self.cluster.brokers[broker_id].runs:
            self.cluster.register(broker_id)
        else:
            self.cluster.start_broker(broker_id)

    @rule(broker_id=brokers)
    def kill_broker(self, broker_id: int) -> None:
        if self.cluster.is_registered(broker_id):
            self.cluster.kill_broker(broker_id)

    @rule(broker_id=brokers)
    def restart_broker(self, broker_id: int) -> None:
        if self.cluster.is_registered(broker_id):
            self.cluster.kill_broker(broker_id)
            self.cluster.start_broker(broker_id)

    @rule(broker_id=brokers, at_once=st.booleans())
    def expire_session(self, broker_id: int, at_once: bool) -> None:
        if self.cluster.is_registered(broker_id):
            self.cluster.unregister(broker_id)
            if at_once:
                self.cluster.register(broker_id)

    @rule(broker_id=brokers)
    def move_endpoint(self, broker_id: int) -> None:
        if self.cluster.is_registered(broker_id):
            self.cluster.move_endpoint(broker_id)

    @rule(broker_id=brokers, choice=choices)
    def shut_down_broker(self, broker_id: int, choice: int) -> None:
        controller = self._controller(choice)
        if controller and self.cluster.is_registered(broker_id):
            self.cluster.shut_down(controller, broker_id)
            self.cluster.process(controller, 100)
            self.cluster.deliver(controller, broker_id, 100)
            self.cluster.kill_broker(broker_id)

    @rule(broker_id=brokers)
    def fail_directory(self, broker_id: int) -> None:
        if self.cluster.is_registered(broker_id):
            self.cluster.fail_directory(broker_id)

    @rule(choice=choices, broker_id=brokers)
    def give_broker_up(self, choice: int, broker_id: int) -> None:
        controller = self._controller(choice)
        if controller and controller.channel is not None:
            self.cluster.lossy = True
            controller.channel.give_up(broker_id)

    @rule(choice=choices, broker_id=brokers, which=choices, isr=replicas)
    def alter_isr(self, choice: int, broker_id: int, which: int, isr: list[int]) -> None:
        controller, led = self._controller(choice), self.cluster.led(broker_id)
        if controller and led:
            key = led[which % len(led)]
            allowed = set(self.cluster.brokers[broker_id].hosted[key].replicas)
            members = [broker_id, *(one for one in isr if one != broker_id and one in allowed)]
            self.cluster.alter_isr(controller, broker_id, key, members)

    @rule(choice=choices)
    def catch_up(self, choice: int) -> None:
        if controller := self._controller(choice):
            self._catch_up(controller)

    # -- topics

    @rule(topic=topics, assignment=st.lists(replicas, min_size=1, max_size=3))
    def create_topic(self, topic: str, assignment: list[list[int]]) -> None:
        if topic not in self.cluster.topics():
            self.cluster.create_topic(topic, dict(enumerate(assignment)))

    @rule(topic=topics)
    def delete_topic(self, topic: str) -> None:
        if topic in self.cluster.topics():
            self.cluster.delete_topic(topic)

    @rule(topic=topics, assignment=replicas)
    def add_partition(self, topic: str, assignment: list[int]) -> None:
        if 0 < len(self.cluster.assignments(topic)) < MOST_PARTITIONS:
            self.cluster.add_partition(topic, assignment)

    @rule(topic=topics)
    def allow_unclean(self, topic: str) -> None:
        if topic in self.cluster.topics():
            self.cluster.allow_unclean(topic)

    # -- operators

    @rule(choice=choices, kind=st.sampled_from(ElectionType))
    def elect(self, choice: int, kind: ElectionType) -> None:
        controller, keys = self._controller(choice), self._keys()
        if controller and keys:
            self.cluster.elect(controller, keys[choice % len(keys) :][:2], kind)

    @rule(choice=choices)
    def elect_by_node(self, choice: int) -> None:
        if keys := self._keys():
            self.cluster.elect_by_node([keys[choice % len(keys)], ("unknown", 0)])

    @rule(choice=choices)
    def rebalance(self, choice: int) -> None:
        if controller := self._controller(choice):
            self.cluster.rebalance(controller)

    @rule(choice=choices, which=choices, wanted=st.none() | replicas)
    def reassign(self, choice: int, which: int, wanted: list[int] | None) -> None:
        controller, keys = self._controller(choice), self._keys()
        if controller and keys:
            self.cluster.reassign(controller, {keys[which % len(keys)]: wanted})

    @rule(which=choices, wanted=replicas)
    def reassign_by_node(self, which: int, wanted: list[int]) -> None:
        if keys := self._keys():
            self.cluster.reassign_by_node({keys[which % len(keys)]: wanted})

    @rule(path=st.sampled_from(_MALFORMED))
    def put_malformed(self, path: str) -> None:
        self.cluster.put_malformed(path)

    # -- helpers

    def _controller(self, choice: int) -> ModelController | None:
        controllers = self.cluster.controllers
        return controllers[choice % len(controllers)] if controllers else None

    def _keys(self) -> list[Key]:
        return [
            (topic, number)
            for topic in self.cluster.topics()
            if topic in TOPICS
            for number in sorted(self.cluster.assignments(topic))
        ]

    def _catch_up(self, controller: ModelController) -> None:
        """Let every leader take its live followers into the ISR."""
        for broker_id, broker in self.cluster.brokers.items():
            for key in self.cluster.led(broker_id):
                others = [one for one in broker.hosted[key].replicas if one != broker_id]
                in_sync = [
                    one
                    for one in others
                    if self.cluster.is_registered(one) and key in self.cluster.brokers[one].hosted
                ]
                self.cluster.alter_isr(controller, broker_id, key, [broker_id, *in_sync])

    def _heal(self) -> None:
        """Remove all faults; everything must go on to its end."""
        cluster = self.cluster
        for controller in cluster.controllers:
            controller.session.end_at_write(0, None)
        cluster.settle()
        check_quiet(cluster)
        cluster.remove_malformed()
        if not cluster.controllers:
            cluster.start_controller()
        for broker_id in BROKERS:
            if cluster.is_registered(broker_id):
                cluster.kill_broker(broker_id)
            cluster.start_broker(broker_id)
        cluster.settle()
        for topic in TOPICS:
            if topic in cluster.topics():
                cluster.allow_unclean(topic)
        for _ in range(3):
            cluster.settle()
            if active := cluster.active:
                self._catch_up(active)
        cluster.settle()
        check_healed(cluster)


def run(
    server: ZooKeeperServer,
    examples: int,
    steps: int,
    *,
    fixed: bool = False,
    phases: Collection[Phase] = tuple(Phase),
) -> None:
    """Run so many random histories of so many steps; ``fixed``: the same ones each time."""

    class Machine(ControllerMachine):
        address = server.address

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=fixed,
            database=None,
            print_blob=True,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_random_histories(zookeeper_server: ZooKeeperServer) -> None:
    run(zookeeper_server, 15, 30, fixed=True)


@pytest.mark.long
def test_many_long_random_histories(zookeeper_server: ZooKeeperServer) -> None:
    run(zookeeper_server, 500, 60)
