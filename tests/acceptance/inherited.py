"""The state that the rig's JVM controller leaves: a topic, and the description of the cluster."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from functools import partial

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ctrlchan import ClusterState
from tests.acceptance.clients import metadata
from tests.kafka.jars import java_command
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until


@dataclass(frozen=True)
class Inherited:
    """The only topic there is. ``described``: by ``kafka-topics --describe``; ``state``: by ZooKeeper."""

    topic: str
    partitions: int
    described: str
    state: ClusterState


def leave_behind(kafka: KafkaRig) -> Inherited:
    """Have the JVM controller make a topic of six partitions on all brokers, and look at the cluster."""
    wait_until(lambda: kafka.jvm_controller() is not None, what="a JVM controller is elected")
    topic, partitions = "inherited", 6
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 2})
    new_topic = NewTopic(topic, partitions, len(kafka.broker_ids))
    admin.create_topics([new_topic])[topic].result(timeout=60)
    # Every broker has the topic before the next controller takes over.
    for broker_id in kafka.broker_ids:
        wait_until(
            partial(_has_all, kafka, broker_id, topic, partitions),
            what=f"broker {broker_id} has {topic}",
        )
    # kafka-topics asks the controller for reassignments, which only a JVM controller answers.
    command = java_command(
        "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", kafka.bootstrap, "--describe"
    )
    described = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    return Inherited(topic, partitions, described, ClusterState.from_zookeeper(kafka.zookeeper))


def _has_all(kafka: KafkaRig, broker_id: int, topic: str, partitions: int) -> bool:
    view = metadata(kafka, broker_id, [topic])[topic]
    return view.error == 0 and len(view.partitions) == partitions
