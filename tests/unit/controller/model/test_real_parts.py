"""Random histories of real parts: ZooKeeper, controllers with their channels, embedded brokers.

Everything runs at its own pace. When it is quiet, every live broker has what stands in ZooKeeper.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

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
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ctrlchan.controller.kafka_controller import KafkaController
from ctrlchan.zookeeper import nodes, paths
from tests.kafka.waiting import wait_until
from tests.kafka.zookeeper import ZooKeeperServer
from tests.unit.controller.expiry import expire
from tests.unit.controller.real_cluster import TIMEOUT, RealCluster

BROKERS = (1, 2, 3)
TOPICS = ("a", "b")
MOST_CONTROLLERS = 2
MOST_PARTITIONS = 3

_chroots = itertools.count()
brokers = st.sampled_from(BROKERS)
topics = st.sampled_from(TOPICS)
replicas = st.lists(brokers, min_size=1, max_size=3, unique=True)
choices = st.integers(0, 5)


class RealMachine(RuleBasedStateMachine):
    """Lets brokers, controllers and topics come and go without waiting for the effect."""

    address = ""

    def __init__(self) -> None:
        super().__init__()
        self._znodes = KazooClient(hosts=self.address, timeout=30)
        self._znodes.start()
        chroot = f"/real-model-{next(_chroots)}"
        self._znodes.create(chroot)
        self._znodes.chroot = chroot
        self.cluster = RealCluster(f"{self.address}{chroot}", self._znodes)
        self._numbers = 1000

    @initialize(assignment=st.lists(replicas, min_size=1, max_size=MOST_PARTITIONS))
    def begin(self, assignment: list[list[int]]) -> None:
        self.cluster.start_brokers(*BROKERS)
        self.start_controller()
        self.cluster.create_topic("a", dict(enumerate(assignment)))

    def teardown(self) -> None:
        try:
            if not self.cluster.brokers:
                return
            for broker_id in BROKERS:
                self.start_broker(broker_id)
            if not self.cluster.controllers:
                self.start_controller()
            self.wait_until_quiet()
        finally:
            with self.cluster:
                pass
            self._znodes.stop()
            self._znodes.close()

    # -- controllers

    @precondition(lambda self: len(self.cluster.controllers) < MOST_CONTROLLERS)
    @rule()
    def start_controller(self) -> None:
        self._numbers += 1
        self.cluster.controller(self._numbers)

    @precondition(lambda self: self.cluster.controllers)
    @rule(choice=choices)
    def close_controller(self, choice: int) -> None:
        controller = self._controller(choice)
        self.cluster.controllers.remove(controller)
        controller.close()

    @precondition(lambda self: self.cluster.controllers)
    @rule(choice=choices)
    def resign(self, choice: int) -> None:
        self._controller(choice).resign()

    @precondition(lambda self: self.cluster.controllers)
    @rule(choice=choices)
    def expire_controller(self, choice: int) -> None:
        expire(self._controller(choice).session)

    # -- brokers

    @rule(broker_id=brokers)
    def start_broker(self, broker_id: int) -> None:
        if broker_id not in self.cluster.brokers:
            self.cluster.start_brokers(broker_id)

    @rule(broker_id=brokers)
    def kill_broker(self, broker_id: int) -> None:
        if broker_id in self.cluster.brokers and len(self.cluster.brokers) > 1:
            self.cluster.kill_brokers(broker_id)

    @rule(broker_id=brokers)
    def restart_broker(self, broker_id: int) -> None:
        if broker_id in self.cluster.brokers:
            self.cluster.kill_brokers(broker_id)
            self.cluster.start_brokers(broker_id)

    @rule(broker_id=brokers)
    def register_again(self, broker_id: int) -> None:
        """Give a broker another epoch, as after an expired session: it goes on with its memory."""
        if broker_id in self.cluster.brokers:
            self.cluster.unregister(broker_id)
            self.cluster.register(broker_id)

    # -- topics

    @rule(topic=topics, assignment=st.lists(replicas, min_size=1, max_size=MOST_PARTITIONS))
    def create_topic(self, topic: str, assignment: list[list[int]]) -> None:
        # A deletion ends with its request.
        if not any(map(self._znodes.exists, (paths.topic(topic), paths.deleted_topic(topic)))):
            self.cluster.create_topic(topic, dict(enumerate(assignment)))

    @rule(topic=topics)
    def delete_topic(self, topic: str) -> None:
        if self._znodes.exists(paths.topic(topic)) and not self._znodes.exists(paths.deleted_topic(topic)):
            self.cluster.delete_topic(topic)

    @rule(topic=topics, which=choices, wanted=replicas)
    def reassign(self, topic: str, which: int, wanted: list[int]) -> None:
        assigned = self._assignments(topic)
        if assigned and self._znodes.exists(paths.REASSIGN_PARTITIONS) is None:
            entries = nodes.encode_reassignments({(topic, which % len(assigned)): wanted})
            self._znodes.create(paths.REASSIGN_PARTITIONS, entries, makepath=True)

    @rule()
    def wait_until_quiet(self) -> None:
        if not self.cluster.controllers:
            return
        for broker_id in list(self.cluster.brokers):
            found: list[str] = []

            def agrees(broker_id: int = broker_id, found: list[str] = found) -> bool:
                found[:] = self._differences(broker_id)
                return not found

            try:
                wait_until(agrees, timeout=TIMEOUT, what="")
            except TimeoutError:
                raise AssertionError(f"broker {broker_id}: {found}") from None

    # -- what is there

    def _controller(self, choice: int) -> KafkaController:
        return self.cluster.controllers[choice % len(self.cluster.controllers)]

    def _assignments(self, topic: str) -> list[nodes.Assignment]:
        """Return the partitions in the node of a topic, none without a node."""
        try:
            return list(nodes.parse_topic(self._znodes.get(paths.topic(topic))[0]).assignments)
        except NoNodeError:
            return []

    def _differences(self, broker_id: int) -> list[str]:
        """Return what a broker has otherwise than ZooKeeper, and what ZooKeeper should not have."""
        return [
            *self._of_brokers(broker_id),
            *(one for topic in TOPICS for one in self._of_topic(broker_id, topic)),
        ]

    def _of_brokers(self, broker_id: int) -> Iterator[str]:
        live = set(self.cluster.live_brokers(broker_id))
        if live != set(self.cluster.brokers):
            yield f"its live brokers are {live}"

    def _of_topic(self, broker_id: int, topic: str) -> Iterator[str]:
        live, assigned = set(self.cluster.brokers), self._assignments(topic)
        seen, hosted = self.cluster.seen(broker_id, topic), self.cluster.hosted(broker_id, topic)
        if self._znodes.exists(paths.deleted_topic(topic)):
            # A dead broker halts the deletion, and a reassignment.
            if all(live.issuperset(one.replicas) and not one.adding for one in assigned):
                yield f"{topic} is not deleted"
            return
        numbers = {one.partition for one in assigned}
        if not (seen.keys() | hosted.keys()) <= numbers:
            yield f"{topic} has partitions {numbers}, seen {set(seen)}, hosted {set(hosted)}"
        for one in assigned:
            where, state = f"{topic}-{one.partition}", self.cluster.state_node(topic, one.partition)
            if state is None:
                if live.intersection(one.replicas) - set(one.adding):
                    yield f"{where} has no leader yet"
                continue
            if state.leader not in live and (state.leader != -1 or live.intersection(state.isr)):
                yield f"{where} is led by {state}"
            expected = state.leader, state.leader_epoch, state.isr, one.replicas
            found = seen.get(one.partition)
            if found is None or found[:4] != expected:
                yield f"{where} is seen as {found}, not as {expected}"
            replica = hosted.get(one.partition)
            if broker_id in one.replicas and state.leader in live:
                if replica is None or replica != (state.leader, state.leader_epoch, replica.isr):
                    yield f"{where} is hosted as {replica}, not as {state}"
                elif state.leader == broker_id and replica.isr != state.isr:
                    yield f"{where} is led with another ISR: {replica}, not {state}"


def run(server: ZooKeeperServer, examples: int, steps: int, *, fixed: bool = False) -> None:
    """Run so many random histories of so many steps; ``fixed``: the same ones each time."""

    class Machine(RealMachine):
        address = server.address

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=fixed,
            database=None,
            # A smaller history takes another course: real parts have their own pace.
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_random_histories_of_real_parts(zookeeper_server: ZooKeeperServer) -> None:
    run(zookeeper_server, 4, 10, fixed=True)


@pytest.mark.long
def test_many_random_histories_of_real_parts(zookeeper_server: ZooKeeperServer) -> None:
    run(zookeeper_server, 100, 20)
