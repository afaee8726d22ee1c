"""Everything that happens in a cluster's life, while a producer writes: no acknowledged message is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.cimpl import NewPartitions

from tests.acceptance.controller import nodes
from tests.acceptance.controller.agreement import wait_until_agreed, wait_until_in_sync
from tests.acceptance.controller.cluster import (
    BROKER_PROPERTIES,
    CONTROLLER_ID,
    ControlledCluster,
    controlled_cluster,
)
from tests.acceptance.controller.load import Load
from tests.acceptance.controller.tools import KafkaTools
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until

TOPIC = "orders"
OTHER = "short-lived"


def test_no_acknowledged_message_is_lost(cluster: ControlledCluster, tools: KafkaTools) -> None:
    _live_under_our_controller(cluster, tools)


@pytest.mark.long
@pytest.mark.parametrize("inter_broker_protocol", ["2.4", "2.8"])
def test_no_acknowledged_message_is_lost_at_older_protocols(
    inter_broker_protocol: str, kafka_jars_ready: None, tmp_path: Path
) -> None:
    with (
        controlled_cluster(tmp_path / "rig", inter_broker_protocol=inter_broker_protocol) as cluster,
        KafkaTools(tmp_path, cluster.rig.bootstrap) as tools,
    ):
        _live_under_our_controller(cluster, tools)


@pytest.mark.long
def test_no_acknowledged_message_is_lost_under_a_brokers_controller(
    kafka_jars_ready: None, tmp_path: Path
) -> None:
    """The control run: what fails here too is not ctrlchan's fault.

    Under Kafka's controller the producer gets the same acknowledgements without offsets, and brokers log the
    same OutOfOrderSequenceExceptions: both are of an idempotent producer whose leaders move.
    """
    with (
        KafkaRig(tmp_path / "rig", properties=BROKER_PROPERTIES) as rig,
        KafkaTools(tmp_path, rig.bootstrap) as tools,
    ):
        _live_through_everything(ControlledCluster(rig), tools)


def _live_under_our_controller(cluster: ControlledCluster, tools: KafkaTools) -> None:
    epoch = nodes.controller_epoch(cluster.rig.zookeeper)
    _live_through_everything(cluster, tools)
    controller = nodes.controller(cluster.rig.zookeeper)
    assert controller is not None
    # No broker was ever elected.
    assert (controller.id, nodes.controller_epoch(cluster.rig.zookeeper)) == (CONTROLLER_ID, epoch)


def _live_through_everything(cluster: ControlledCluster, tools: KafkaTools) -> None:
    cluster.create_topic(TOPIC, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    cluster.create_topic(OTHER, [[1, 2, 3], [2, 1]])
    with Load(cluster.rig.bootstrap, TOPIC) as load:
        _add_partitions(cluster)
        load.wait_for_more(partitions=6)
        _reassign(cluster, tools, load)
        _elect_preferred_leaders(cluster)
        load.wait_for_more(partitions=6)
        _kill_a_broker(cluster, load)
        load.wait_for_more(partitions=6)
        _restart_all(cluster, load)
        _elect_preferred_leaders(cluster)
        cluster.delete_topic(OTHER)
        load.wait_for_more(partitions=6)
    wait_until_in_sync(cluster.rig)
    load.check_nothing_is_lost()
    cluster.delete_topic(TOPIC)


def _add_partitions(cluster: ControlledCluster) -> None:
    more = NewPartitions(TOPIC, 6, replica_assignment=[[1, 3, 2], [2, 1, 3], [3, 2, 1]])
    cluster.admin.create_partitions([more])[TOPIC].result(timeout=60)
    wait_until_in_sync(cluster.rig, [TOPIC])
    assert len(nodes.partition_nodes(cluster.rig.zookeeper, {TOPIC})) == 6


def _reassign(cluster: ControlledCluster, tools: KafkaTools, load: Load) -> None:
    """Take replicas away, and put them back in another order."""
    smaller = {(TOPIC, 0): [3, 1], (TOPIC, 1): [1, 2], (TOPIC, 2): [2], (TOPIC, 4): [3, 1, 2]}
    larger = {(TOPIC, 0): [2, 3, 1], (TOPIC, 1): [3, 2, 1], (TOPIC, 2): [1, 2, 3]}
    for plan in (smaller, larger):
        run = tools.execute(plan)
        assert "Successfully started partition reassignments" in run.output, run
        wait_until(
            lambda plan=plan: (
                "still in progress" not in (run := tools.verify(plan)).output and run.status == 0
            ),  # type: ignore[misc]
            timeout=90,
            what=f"the reassignment is complete: {plan}",
        )
        wait_until_in_sync(cluster.rig, [TOPIC])
        found = nodes.partition_nodes(cluster.rig.zookeeper, {TOPIC})
        assert {key: list(found[key].replicas) for key in plan} == plan
        load.wait_for_more(partitions=6)


def _elect_preferred_leaders(cluster: ControlledCluster) -> None:
    partitions = [TopicPartition(TOPIC, partition) for partition in range(6)]

    def elected() -> bool:
        errors = cluster.admin.elect_leaders(ElectionType.PREFERRED, partitions).result(timeout=60)
        names = {tp.partition: error.name() for tp, error in errors.items() if error is not None}
        if set(names.values()) == {"NOT_CONTROLLER"}:
            # Another broker has been elected, and the client does not know it yet.
            del cluster.admin
            return False
        assert set(names.values()) <= {"ELECTION_NOT_NEEDED"}, names
        return True

    wait_until(elected, what="the controller elects preferred leaders")
    wait_until_agreed(cluster.rig, [TOPIC])
    found = nodes.partition_nodes(cluster.rig.zookeeper, {TOPIC})
    assert all(node.leader == node.replicas[0] for node in found.values()), found


def _kill_a_broker(cluster: ControlledCluster, load: Load) -> None:
    rig = cluster.rig
    rig.kill_broker(2)
    wait_until(
        lambda: all(
            node.leader in (1, 3) and 2 not in node.isr
            for node in nodes.partition_nodes(rig.zookeeper).values()
        ),
        what="broker 2 leads nothing and is in no ISR",
    )
    wait_until_agreed(rig)
    load.wait_for_more(partitions=6)
    rig.restart_broker(2)
    wait_until_in_sync(rig)


def _restart_all(cluster: ControlledCluster, load: Load) -> None:
    """Stop and start the brokers one after the other; each hands its leaders over before it ends."""
    rig = cluster.rig
    for broker_id in rig.broker_ids:
        rig.stop_broker(broker_id)
        log = rig.log_lines(broker_id)
        assert any("Controlled shutdown request returned successfully" in line for line in log)
        load.wait_for_more(partitions=6)
        rig.restart_broker(broker_id)
        wait_until_in_sync(rig)
