"""Kafka's metrics of a controller: their names, what they count, and when nobody answers."""

from __future__ import annotations

import threading
from math import isnan

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from ctrlchan._codec import ListColumn
from ctrlchan.channel import ChannelConfig, ControllerChannelManager
from ctrlchan.controller.events.event import ControllerState, Event
from ctrlchan.controller.machines.states import PartitionState, ReplicaState
from ctrlchan.controller.status import metrics as metrics_module
from ctrlchan.controller.status.metrics import ControllerMetrics
from tests.unit.controller.local_controller import LocalController, context_of, local_controller, pair

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]

#: Kafka's gauges and their MBean types.
GAUGES = {
    "KafkaController": (
        *("ActiveControllerCount", "OfflinePartitionsCount", "PreferredReplicaImbalanceCount"),
        *("ControllerState", "GlobalTopicCount", "GlobalPartitionCount", "TopicsToDeleteCount"),
        *("ReplicasToDeleteCount", "TopicsIneligibleToDeleteCount", "ReplicasIneligibleToDeleteCount"),
        *("ActiveBrokerCount", "FencedBrokerCount", "ZkMigrationState"),
    ),
    "ControllerEventManager": ("EventQueueSize",),
}
#: Kafka's timers and histograms.
TIMERS = {
    "ControllerStats": (
        *("ControllerChange", "LeaderElection", "TopicChange", "TopicDeletion", "PartitionReassignment"),
        *("AutoLeaderBalance", "ManualLeaderBalance", "ControlledShutdown", "IsrChange"),
        *("LeaderAndIsrResponseReceived", "LogDirChange", "ControllerShutdown"),
        *("UncleanLeaderElectionEnable", "TopicUncleanLeaderElectionEnable"),
        *("ListPartitionReassignment", "UpdateFeatures"),
    ),
}


def scrape(metrics: ControllerMetrics) -> Samples:
    registry = CollectorRegistry()
    registry.register(metrics)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def gauge(samples: Samples, name: str) -> float:
    return samples[f"kafka_controller_kafkacontroller_{name.lower()}", ()]


def attached(controller: LocalController, metrics: ControllerMetrics) -> Samples:
    metrics.attach(controller.loop, lambda: controller.core)
    return scrape(metrics)


def test_every_metric_of_kafka_is_there() -> None:
    samples = {name for name, _ in scrape(ControllerMetrics())}
    for kind, names in GAUGES.items():
        assert {f"kafka_controller_{kind}_{name}".lower() for name in names} <= samples
    for kind, names in TIMERS.items():
        for name in names:
            metric = f"kafka_controller_{kind}_{name}RateAndTimeMs".lower()
            assert {metric, f"{metric}_count", f"{metric}_sum"} <= samples
    assert "kafka_controller_controllereventmanager_eventqueuetimems_count" in samples
    assert "kafka_controller_controllerstats_uncleanleaderelectionspersec_total" in samples


def test_a_process_that_is_not_the_controller_has_zeros() -> None:
    metrics = ControllerMetrics()
    with local_controller() as controller:
        controller.core = None
        samples = attached(controller, metrics)
    gauges = {name: gauge(samples, name) for name in GAUGES["KafkaController"]}
    assert gauges.pop("ZkMigrationState") == 4
    assert set(gauges.values()) == {0}
    assert samples["ctrlchan_controller_epoch", ()] == -1


def test_gauges_count_what_the_columns_have() -> None:
    with local_controller() as controller:
        context, metrics = controller.context, ControllerMetrics()
        samples = attached(controller, metrics)
        assert gauge(samples, "ActiveControllerCount") == 1
        assert gauge(samples, "GlobalTopicCount") == 3
        assert gauge(samples, "GlobalPartitionCount") == 6
        assert gauge(samples, "ActiveBrokerCount") == 3
        assert gauge(samples, "OfflinePartitionsCount") == 0
        assert gauge(samples, "PreferredReplicaImbalanceCount") == 0
        assert gauge(samples, "TopicsToDeleteCount") == 0
        assert samples["ctrlchan_controller_epoch", ()] == 7

        def change() -> None:
            # Partition 0 of topic a is without a leader; broker 3 leads partition 1 in the place of 2.
            context.partition_states[0] = PartitionState.OFFLINE
            context.state.update(np.array([0, 1]), leader=np.array([-1, 3], np.int32))
            context.state.update(np.array([2]), adding=ListColumn.from_lists([[2]]))
            context.queue_topic_deletion(["b", "gone"])
            context.begin_topic_deletion(["b"])
            context.topics_ineligible.add("b")
            context.put_replica_states(*pair(3, 1), ReplicaState.DELETION_SUCCESSFUL)
            context.put_replica_states(*pair(3, 2), ReplicaState.DELETION_INELIGIBLE)

        controller.loop.call(ControllerState.TOPIC_DELETION, lambda _: change()).result(10)
        samples = scrape(metrics)
        assert gauge(samples, "OfflinePartitionsCount") == 1
        assert gauge(samples, "PreferredReplicaImbalanceCount") == 2
        assert gauge(samples, "TopicsToDeleteCount") == 2
        assert gauge(samples, "ReplicasToDeleteCount") == 2
        assert gauge(samples, "TopicsIneligibleToDeleteCount") == 1
        assert gauge(samples, "ReplicasIneligibleToDeleteCount") == 1
        assert samples["ctrlchan_controller_reassigning_partitions", ()] == 1


def test_events_are_counted_with_their_times() -> None:
    metrics = ControllerMetrics()
    with local_controller(metrics) as controller:
        metrics.attach(controller.loop, lambda: controller.core)
        for _ in range(3):
            controller.loop.call(ControllerState.BROKER_CHANGE, lambda _: None).result(10)
        controller.loop.call(ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED, lambda _: None).result(10)
        samples = scrape(metrics)
    election = "kafka_controller_controllerstats_leaderelectionrateandtimems"
    assert samples[f"{election}_count", ()] == 3
    assert samples[f"{election}_sum", ()] > 0
    assert 0 < samples[election, (("quantile", "0.5"),)] <= samples[election, (("quantile", "0.999"),)]
    # UpdateMetadataResponseReceived has no timer, but it was in the queue.
    assert samples["kafka_controller_controllereventmanager_eventqueuetimems_count", ()] == 4
    topic_change = "kafka_controller_controllerstats_topicchangerateandtimems"
    assert samples[f"{topic_change}_count", ()] == 0
    assert isnan(samples[topic_change, (("quantile", "0.5"),)])


def test_unclean_elections_are_counted_over_all_terms() -> None:
    def count(samples: Samples) -> float:
        return samples["kafka_controller_controllerstats_uncleanleaderelectionspersec_total", ()]

    metrics = ControllerMetrics()
    with local_controller(metrics) as controller:
        metrics.attach(controller.loop, lambda: controller.core)
        core = controller.core
        assert core is not None

        def elect(number: int) -> None:
            core.context.unclean_elections += number

        def take_over() -> None:
            core.context = context_of(core.state)
            core.context.unclean_elections += 5
            controller.core = core

        def elect_and_resign() -> None:
            elect(2)
            controller.core = None

        def process(function: object) -> None:
            done = threading.Event()
            assert callable(function)
            controller.loop.put(Event(ControllerState.CONTROLLER_CHANGE, "Test", function))
            controller.loop.put(Event(ControllerState.IDLE, "Done", done.set))
            assert done.wait(10)

        process(lambda: elect(3))
        assert count(scrape(metrics)) == 3
        process(elect_and_resign)
        assert count(scrape(metrics)) == 5
        process(take_over)
        process(lambda: elect(1))
        assert count(scrape(metrics)) == 11
        metrics.detach()
        assert count(scrape(metrics)) == 11
    assert controller.errors == []


def test_a_busy_loop_leaves_the_figures_of_the_scrape_before(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = ControllerMetrics()
    with local_controller(metrics) as controller:
        assert gauge(attached(controller, metrics), "GlobalTopicCount") == 3
        monkeypatch.setattr(metrics_module, "_WAIT_SECONDS", 0.01)
        go_on, begun = threading.Event(), threading.Event()

        def wait(_: object) -> None:
            begun.set()
            go_on.wait(30)

        waiting = controller.loop.call(ControllerState.TOPIC_CHANGE, wait)
        later = controller.loop.call(ControllerState.TOPIC_CHANGE, lambda _: None)
        assert begun.wait(10)
        samples = scrape(metrics)
        go_on.set()
        waiting.result(10)
        later.result(10)
    assert gauge(samples, "GlobalTopicCount") == 3
    assert gauge(samples, "ActiveControllerCount") == 1
    assert gauge(samples, "ControllerState") == ControllerState.TOPIC_CHANGE
    assert samples["kafka_controller_controllereventmanager_eventqueuesize", ()] >= 1


def test_the_metrics_of_the_channel_are_among_them() -> None:
    metrics = ControllerMetrics()
    with ControllerChannelManager(ChannelConfig(), 7, metrics=metrics.channel):
        assert scrape(metrics)["ctrlchan_channel_state", (("state", "new"),)] == 1
