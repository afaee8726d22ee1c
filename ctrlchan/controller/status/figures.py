"""Figures of the cluster, counted from the controller's columns: for metrics and for the status."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ctrlchan.controller.machines.context import ControllerContext
from ctrlchan.controller.machines.states import ReplicaState
from ctrlchan.state import NO_LEADERSHIP

__all__ = ["NO_FIGURES", "ClusterFigures", "figures_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFigures:
    """Numbers of things, as Kafka counts them for its metrics. Source: ``KafkaController.updateMetrics``.

    ``partitions``: those with known leadership. ``replicas_to_delete``: assigned replicas of topics to delete
    that are not deleted yet. ``active_brokers``: live ones, also those that are shutting down.
    """

    active_brokers: int = 0
    topics: int = 0
    partitions: int = 0
    offline_partitions: int = 0
    preferred_replica_imbalance: int = 0
    topics_to_delete: int = 0
    topics_ineligible_to_delete: int = 0
    replicas_to_delete: int = 0
    replicas_ineligible_to_delete: int = 0
    #: Not a metric of Kafka's controller: partitions with adding or removing replicas.
    reassigning_partitions: int = 0


#: Of a process that is not the controller.
NO_FIGURES = ClusterFigures()


def figures_of(context: ControllerContext) -> ClusterFigures:
    """Count. Runs on the thread of the event loop; 100,000 partitions take milliseconds."""
    state = context.state
    rows, brokers = context.replica_pairs(context.rows_of_topics(context.topics_to_delete))
    deletions = context.replica_states(rows, brokers)
    return ClusterFigures(
        active_brokers=len(state.broker_ids),
        topics=len(state.topics),
        partitions=int(np.count_nonzero(state.partitions.leader_epoch != NO_LEADERSHIP)),
        offline_partitions=context.offline_partition_count(),
        preferred_replica_imbalance=context.preferred_replica_imbalance(),
        topics_to_delete=len(context.topics_to_delete),
        topics_ineligible_to_delete=len(context.topics_ineligible),
        replicas_to_delete=int(np.count_nonzero(deletions != ReplicaState.DELETION_SUCCESSFUL)),
        replicas_ineligible_to_delete=int(np.count_nonzero(deletions == ReplicaState.DELETION_INELIGIBLE)),
        reassigning_partitions=len(context.reassigning_rows()),
    )
