"""What a controller does when it has won the election, in Kafka's order.

Source: ``KafkaController.onControllerFailover`` and ``initializeControllerContext`` (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.events.notifications import NotificationKind
from ctrlchan.controller.events.watches import ControllerWatches, WatchGroup
from ctrlchan.controller.handlers import elections, features, reassignment
from ctrlchan.controller.handlers.broker_changes import (
    announce,
    process_broker_change,
    process_broker_modification,
    read_live_brokers,
    watch_brokers,
)
from ctrlchan.controller.handlers.isr_changes import process_notifications as process_isr_changes
from ctrlchan.controller.handlers.log_dirs import process_notifications as process_log_dir_events
from ctrlchan.controller.handlers.own_replicas import give_own_replicas_away
from ctrlchan.controller.handlers.topic_changes import (
    add_topics,
    process_partition_modifications,
    process_topic_change,
)
from ctrlchan.controller.machines.leader_changes import LeaderComparison
from ctrlchan.controller.machines.log_texts import Listed
from ctrlchan.controller.machines.partition_states import PartitionStateMachine
from ctrlchan.controller.machines.replica_states import ReplicaStateMachine
from ctrlchan.controller.machines.state_changes import StateChangeLines
from ctrlchan.controller.machines.topic_deletion import TopicDeletionManager
from ctrlchan.state.lists import take
from ctrlchan.state_change_log import StateChangeLogger
from ctrlchan.zookeeper import paths

__all__ = ["complete_core", "fail_over"]

#: Seconds from the election to the first check of the leaders' balance.
_FIRST_REBALANCE = 5.0


def complete_core(core: ControllerCore) -> None:
    """Make the state machines and the topic deletion of a new term, and register its watches.

    ``fail_over`` sets them, each before it reads the node.
    """
    config, context, nodes, batch = core.config, core.context, core.nodes, core.batch
    log = StateChangeLogger(config.controller_id, core.epoch)
    core.state_changes = StateChangeLines(context, log, config.controller_id)
    core.partition_states = PartitionStateMachine(
        context,
        nodes,
        batch,
        log,
        controller_id=config.controller_id,
        recovery_supported=config.recovery_state,
        unclean_election_enabled=core.topic_configs.unclean_election_enabled,
    )
    core.replica_states = ReplicaStateMachine(context, nodes, batch, log, controller_id=config.controller_id)
    core.deletion = TopicDeletionManager(
        context,
        nodes,
        core.partition_states,
        core.replica_states,
        lambda rows: core.send_update_metadata(None, rows),
        enabled=config.delete_topics,
        controller_id=config.controller_id,
    )

    def put(kind: ControllerState, name: str, function: object) -> None:
        assert callable(function)
        core.enqueue(kind, name, lambda _: function())

    core.leader_comparison = LeaderComparison(context)
    core.watches = ControllerWatches(core.session, put)
    core.broker_watches = WatchGroup(
        core.session,
        put,
        ControllerState.BROKER_CHANGE,
        "BrokerModifications",
        lambda changed: process_broker_modification(core, changed),
    )
    core.topic_watches = WatchGroup(
        core.session,
        put,
        ControllerState.TOPIC_CHANGE,
        "PartitionModifications",
        lambda changed: process_partition_modifications(core, changed),
    )
    core.isr_watches = WatchGroup(
        core.session,
        put,
        ControllerState.ALTER_PARTITION_REASSIGNMENT,
        "PartitionReassignmentIsrChange",
        lambda changed: reassignment.process_isr_changes(core, changed),
    )
    children = (
        (paths.BROKER_IDS, ControllerState.BROKER_CHANGE, "BrokerChange", process_broker_change),
        (paths.TOPICS, ControllerState.TOPIC_CHANGE, "TopicChange", process_topic_change),
        (paths.DELETED_TOPICS, ControllerState.TOPIC_DELETION, "TopicDeletion", _process_topic_deletion),
        (
            paths.LOG_DIR_EVENT_NOTIFICATIONS,
            ControllerState.LOG_DIR_CHANGE,
            "LogDirEventNotification",
            process_log_dir_events,
        ),
        (
            paths.ISR_CHANGE_NOTIFICATIONS,
            ControllerState.ISR_CHANGE,
            "IsrChangeNotification",
            process_isr_changes,
        ),
    )
    for path, kind, name, handler in children:
        core.watches.watch(path, kind, name, lambda handler=handler: handler(core))  # type: ignore[misc]


def fail_over(core: ControllerCore) -> None:
    """Read the cluster, tell all brokers of it, and go on with everything that was in progress."""
    log = core.log
    finalized = features.startup(core)
    log.info("Registering handlers")
    # A change after this reading becomes an event.
    brokers, topics, deletions, log_dir_events, isr_changes = core.watches.children_of_each(
        (
            paths.BROKER_IDS,
            paths.TOPICS,
            paths.DELETED_TOPICS,
            paths.LOG_DIR_EVENT_NOTIFICATIONS,
            paths.ISR_CHANGE_NOTIFICATIONS,
        )
    )
    log.info("Deleting log dir event notifications and isr change notifications")
    core.nodes.delete_log_dir_event_notifications(log_dir_events)
    core.nodes.delete_isr_change_notifications(isr_changes)
    log.info("Initializing controller context")
    _read_cluster(core, brokers, topics, finalized)
    log.info("Fetching topic deletions in progress")
    log.info("Initializing topic deletion manager")
    core.deletion.start(sorted(deletions))
    for what, listed in (
        ("to be deleted", core.context.topics_to_delete),
        ("ineligible for deletion", core.context.topics_ineligible),
    ):
        log.info("List of topics %s: %s", what, Listed(sorted(listed)))
    core.is_loaded = True
    # Brokers need the live brokers before they can follow the leaders of a LeaderAndIsr.
    log.info("Sending update metadata request")
    core.send_update_metadata(None, ())
    core.replica_states.startup()
    core.partition_states.startup()
    log.info("Ready to serve as the new controller with epoch %d", core.epoch)
    reassignment.resume(core)
    reassignment.process_node(core)
    core.deletion.resume()
    elections.process_node(core)
    elections.process_config_changes(core)
    log.info("Starting the controller scheduler")
    if core.config.auto_leader_rebalance:
        core.schedule(
            ControllerState.AUTO_LEADER_BALANCE,
            "AutoPreferredReplicaLeaderElection",
            _FIRST_REBALANCE,
            elections.rebalance,
        )
    core.notify(NotificationKind.ELECTED)


def _read_cluster(
    core: ControllerCore, brokers: Sequence[str], topics: Sequence[str], finalized: Mapping[str, int]
) -> None:
    """Fill the context. Source: ``initializeControllerContext``.

    ``brokers``, ``topics``: the children of ``/brokers/ids`` and ``/brokers/topics``.
    """
    state = core.state
    state.set_brokers(read_live_brokers(core, brokers, finalized))
    announce(core)
    # Different on purpose: connections are made while the rest is read.
    core.channel.startup(state.brokers)
    watch_brokers(core, state.broker_ids.tolist())
    add_topics(core, sorted(topics))
    _read_leadership(core)
    give_own_replicas_away(core)
    core.log.info("Currently active brokers in the cluster: %s", sorted(state.broker_ids.tolist()))
    core.log.info("Currently shutting brokers in the cluster: %s", sorted(state.shutting_down))
    core.log.info(
        "The cluster has %d topics with %d partitions, %d of them with a leader",
        len(state.topics),
        len(state.partitions),
        np.count_nonzero(state.partitions.leader >= 0),
    )


def _read_leadership(core: ControllerCore) -> None:
    """Read all state nodes. Partitions without one stay without leadership, malformed ones too."""
    context, partitions = core.context, core.state.partitions
    rows = context.all_rows
    names, topic_row = context.names_of(rows)
    read = core.nodes.read_partition_states(names, topic_row, partitions.partition)
    core.note_malformed(
        "partition states",
        {context.partition_name(row): reason for row, reason in read.malformed.items()},
    )
    found = np.flatnonzero(read.version >= 0)
    context.put_leadership(
        found,
        leader=read.leader[found],
        leader_epoch=read.leader_epoch[found],
        partition_epoch=read.version[found],
        controller_epoch=read.controller_epoch[found],
        recovery_state=read.recovery_state[found],
        isr=take(read.isr, found),
    )


def _process_topic_deletion(core: ControllerCore) -> None:
    topics = core.watches.children(paths.DELETED_TOPICS)
    core.log.debug("Delete topics listener fired for topics %s to be deleted", Listed(topics))
    core.deletion.process_requests(topics)
