"""kafka-reassign-partitions on a cluster that ctrlchan controls.

Most are twins of cases in Kafka's ReassignPartitionsCommandTest.
"""

from __future__ import annotations

import json
import re

import pytest

from tests.acceptance.clients import consume, produce
from tests.acceptance.controller import nodes
from tests.acceptance.controller.agreement import wait_until_agreed, wait_until_in_sync
from tests.acceptance.controller.cluster import ControlledCluster
from tests.acceptance.controller.load import write_large
from tests.acceptance.controller.tools import KafkaTools, Plan, wait_until_complete
from tests.kafka.waiting import wait_until


def test_a_plan_is_generated_executed_and_verified(cluster: ControlledCluster, tools: KafkaTools) -> None:
    rig, topic = cluster.rig, "generated"
    cluster.create_topic(topic, [[1, 2], [2, 1], [1, 2]])
    topics = tools.file({"version": 1, "topics": [{"topic": topic}]})
    run = tools.reassign("--generate", "--topics-to-move-json-file", topics, "--broker-list", "2,3")
    assert run.status == 0, run
    current, proposed = (json.loads(text) for text in re.findall(r"^\{.*\}$", run.output, re.MULTILINE))
    assert [entry["replicas"] for entry in current["partitions"]] == [[1, 2], [2, 1], [1, 2]]
    plan = {(e["topic"], e["partition"]): e["replicas"] for e in proposed["partitions"]}
    assert all(set(replicas) == {2, 3} for replicas in plan.values())
    _execute_to_the_end(cluster, tools, plan)
    # Without --broker-list's live brokers there is no plan.
    short = tools.reassign("--generate", "--topics-to-move-json-file", topics, "--broker-list", "2")
    assert short.status == 1
    # What was executed can be taken back by the printed current assignment.
    _execute_to_the_end(
        cluster, tools, {(e["topic"], e["partition"]): e["replicas"] for e in current["partitions"]}
    )
    for broker_id in rig.broker_ids:
        hosted = {
            p
            for (t, p), node in nodes.partition_nodes(rig.zookeeper, {topic}).items()
            if broker_id in node.replicas
        }
        folders = {
            f for f in rig.data_folders(broker_id) if f.startswith(f"{topic}-") and not f.endswith("-delete")
        }
        assert folders == {f"{topic}-{partition}" for partition in hosted}
    cluster.delete_topic(topic)


def test_replicas_are_added_removed_and_reordered(cluster: ControlledCluster, tools: KafkaTools) -> None:
    topic = "resized"
    cluster.create_topic(topic, [[1], [1, 2, 3], [1, 2], [3, 1]])
    plan = {(topic, 0): [1, 2, 3], (topic, 1): [2], (topic, 2): [2, 1], (topic, 3): [2]}
    for partition in range(4):
        produce(cluster.rig.bootstrap, topic, [b"before"], partition)
    _execute_to_the_end(cluster, tools, plan)
    for partition in range(4):
        assert consume(cluster.rig.bootstrap, topic, partition, 1) == [b"before"]
    cluster.delete_topic(topic)


@pytest.mark.parametrize(
    ("partition", "replicas", "message"),
    [
        (0, [1000], "not live"),
        (0, [1, 9], "Unknown broker id 9"),
        (7, [1], "Unable to find partition|does not exist|UnknownTopicOrPartition"),
    ],
)
def test_bad_plans_are_refused(
    cluster: ControlledCluster, tools: KafkaTools, partition: int, replicas: list[int], message: str
) -> None:
    topic = f"refused-{partition}-{replicas[-1]}"
    cluster.create_topic(topic, [[1, 2]])
    run = tools.execute({(topic, partition): replicas})
    assert run.status == 1
    assert re.search(message, run.output + run.errors), run
    assert nodes.partition_nodes(cluster.rig.zookeeper, {topic})[topic, 0].replicas == (1, 2)
    cluster.delete_topic(topic)


def test_a_reassignment_in_progress_is_listed_and_completed(
    cluster: ControlledCluster, tools: KafkaTools
) -> None:
    """Twins of testThrottledReassignment, testAlterReassignmentThrottle, and production in between."""
    rig, topic = cluster.rig, "throttled"
    cluster.create_topic(topic, [[1, 2]])
    many = write_large(rig.bootstrap, topic, 0)
    plan = {(topic, 0): [3, 2]}
    _execute_throttled(tools, plan)
    node = nodes.partition_nodes(rig.zookeeper, {topic})[topic, 0]
    assert (set(node.replicas), node.adding, node.removing) == ({1, 2, 3}, (3,), (1,))
    wait_until_agreed(rig, [topic])
    described = tools.topics("--describe", "--topic", topic).output
    assert "Adding Replicas: 3" in described
    assert "Removing Replicas: 1" in described
    listed = tools.reassign("--list")
    assert re.search(rf"{topic}-0: replicas: [\d,]+\. adding: 3\. removing: 1\.", listed.output), listed
    assert "is still in progress" in tools.verify(plan).output
    second = tools.execute(plan)
    assert second.status == 1
    assert "Cannot execute because there is an existing partition assignment" in second.output + second.errors
    # Messages are taken meanwhile.
    produce(rig.bootstrap, topic, [b"in between"], 0)
    more = tools.execute(plan, "--additional", "--throttle", "100000000")
    assert more.status == 0, more
    _wait_until_complete(cluster, tools, plan)
    assert consume(rig.bootstrap, topic, 0, len(many) + 1) == [*many, b"in between"]
    assert "No partition reassignments found" in tools.reassign("--list").output
    cluster.delete_topic(topic)


def test_reassignments_are_cancelled(cluster: ControlledCluster, tools: KafkaTools) -> None:
    """Twins of testCancellation and testCancellationAddingAndRemovingReplica."""
    rig, topic = cluster.rig, "cancelled"
    cluster.create_topic(topic, [[1, 2], [2, 1], [3]])
    for partition in range(3):
        write_large(rig.bootstrap, topic, partition)
    # The tool of 3.9 leaves alone what only adds replicas.
    plan = {(topic, 0): [1, 3], (topic, 1): [2, 3], (topic, 2): [1, 2]}
    _execute_throttled(tools, plan)
    run = tools.cancel(plan)
    assert run.status == 0, run
    assert f"Successfully cancelled partition reassignments for: {topic}-0,{topic}-1,{topic}-2" in run.output
    wait_until_in_sync(rig, [topic])
    found = nodes.partition_nodes(rig.zookeeper, {topic})
    assert [found[topic, p].replicas for p in range(3)] == [(1, 2), (2, 1), (3,)]
    wait_until(
        lambda: not [f for f in rig.data_folders(3) if f in (f"{topic}-0", f"{topic}-1")],
        what="broker 3 has deleted the replicas that were added",
    )
    # Nothing is left to cancel.
    again = tools.cancel(plan)
    assert "None of the specified partition reassignments are active." in again.output, again
    cluster.delete_topic(topic)


def test_a_second_plan_replaces_the_first(cluster: ControlledCluster, tools: KafkaTools) -> None:
    rig, topic = cluster.rig, "replaced"
    cluster.create_topic(topic, [[1]])
    many = write_large(rig.bootstrap, topic, 0)
    _execute_throttled(tools, {(topic, 0): [2]})
    plan = {(topic, 0): [3]}
    run = tools.execute(plan, "--additional", "--throttle", "100000000")
    assert run.status == 0, run
    _wait_until_complete(cluster, tools, plan)
    wait_until(lambda: f"{topic}-0" not in rig.data_folders(2), what="broker 2 has deleted its replica")
    assert consume(rig.bootstrap, topic, 0, len(many)) == many
    cluster.delete_topic(topic)


def _execute_throttled(tools: KafkaTools, plan: Plan) -> None:
    run = tools.execute(plan, "--throttle", "1")
    assert run.status == 0, run
    assert "Successfully started partition reassignment" in run.output


def _execute_to_the_end(cluster: ControlledCluster, tools: KafkaTools, plan: Plan) -> None:
    run = tools.execute(plan)
    assert run.status == 0, run
    assert "Successfully started partition reassignment" in run.output
    _wait_until_complete(cluster, tools, plan)


def _wait_until_complete(cluster: ControlledCluster, tools: KafkaTools, plan: Plan) -> None:
    wait_until_complete(tools, plan)
    topics = {topic for topic, _ in plan}
    wait_until_in_sync(cluster.rig, topics)
    found = nodes.partition_nodes(cluster.rig.zookeeper, topics)
    assert {key: list(found[key].replicas) for key in plan} == dict(plan)
