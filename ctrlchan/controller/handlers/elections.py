"""Elects leaders: by request, by the node ``/admin/preferred_replica_election``, automatically when brokers
lead too few of their partitions, and where a change of settings allows unclean elections.

Source: ``kafka.controller.KafkaController.processReplicaLeaderElection`` and
``checkAndTriggerAutoLeaderRebalance`` (Kafka 3.9). Different on purpose: the automatic rebalance elects the
partitions of all brokers together.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from enum import IntEnum
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.machines.leader_election import Strategy
from ctrlchan.controller.machines.log_texts import ListedPartitions
from ctrlchan.controller.machines.states import PartitionState
from ctrlchan.errors import ErrorCode
from ctrlchan.protocol import NO_LEADER
from ctrlchan.state.lists import contains, take
from ctrlchan.state.rows import distinct
from ctrlchan.state_change_log import TRACE
from ctrlchan.zookeeper import paths

__all__ = [
    "Answer",
    "ElectionType",
    "Partition",
    "elect_leaders",
    "process_config_changes",
    "process_node",
    "rebalance",
]

Int64: TypeAlias = npt.NDArray[np.int64]
#: (topic, partition)
Partition: TypeAlias = tuple[str, int]
#: (error code, message); code 0 has no message.
Answer: TypeAlias = tuple[int, str | None]

_ELECTED: Final[Answer] = (ErrorCode.NONE, None)
_UNKNOWN: Final[Answer] = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
_DELETED: Final[Answer] = (ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
_NOT_NEEDED: Final[Answer] = (
    ErrorCode.ELECTION_NOT_NEEDED,
    "Leader election not needed for topic partition.",
)


class ElectionType(IntEnum):
    """What may be elected. Source: ``org.apache.kafka.common.ElectionType``."""

    PREFERRED = 0
    UNCLEAN = 1


_STRATEGIES: Final = {
    ElectionType.PREFERRED: Strategy.PREFERRED,
    ElectionType.UNCLEAN: Strategy.OFFLINE_UNCLEAN,
}
#: Kafka's names of them, which clients see.
_STRATEGY_NAMES: Final = {
    ElectionType.PREFERRED: "PreferredReplicaPartitionLeaderElectionStrategy",
    ElectionType.UNCLEAN: "OfflinePartitionLeaderElectionStrategy(true)",
}


def elect_leaders(
    core: ControllerCore,
    partitions: Collection[Partition] | None,
    kind: ElectionType,
    trigger: str = "AdminClientTriggered",
) -> dict[Partition, Answer]:
    """Elect a leader for each of these partitions, or for all (ElectLeaders).

    Preferred: the first replica, where it does not lead. Unclean: any live replica, where the leader is not
    live; in-sync replicas come first. ``trigger``: Kafka's name for who asks, in log lines. Codes: 3 for an
    unknown partition, 17 for a topic that is being deleted, 84 where no election is needed (left out for all
    partitions), 80 (preferred) or 83 (unclean) where no replica can be elected. Raises ControllerMovedError,
    ZooKeeperError, IllegalStateError.
    """
    answers: dict[Partition, Answer] = {}
    if partitions is None:
        rows = core.context.all_rows
    else:
        known = {}
        for partition in partitions:
            try:
                known[core.state.row(*partition)] = partition
            except KeyError:
                answers[partition] = _UNKNOWN
        rows = np.array(sorted(known), np.int64)
    deleted = core.context.is_to_delete(rows)
    needed = ~deleted & _needs_election(core, rows, kind)
    if partitions is not None:
        answers |= dict.fromkeys(_partitions(core, rows[deleted]), _DELETED)
        answers |= dict.fromkeys(_partitions(core, rows[~deleted & ~needed]), _NOT_NEEDED)
    elected = rows[needed]
    errors = _elect(core, elected, kind, trigger)
    for partition, error in zip(_partitions(core, elected), errors.tolist(), strict=True):
        answers[partition] = (error, _failure(partition, kind)) if error else _ELECTED
    return answers


def _failure(partition: Partition, kind: ElectionType) -> str:
    topic, index = partition
    return f"Failed to elect leader for partition {topic}-{index} under strategy {_STRATEGY_NAMES[kind]}"


def process_node(core: ControllerCore) -> None:
    """Elect preferred leaders of the partitions in ``/admin/preferred_replica_election``; watch the node.

    The node is removed, whatever the elections' results. Raises ControllerMovedError, ZooKeeperError,
    IllegalStateError (of a batch).
    """
    core.watches.watch(
        paths.PREFERRED_REPLICA_ELECTION,
        ControllerState.MANUAL_LEADER_BALANCE,
        "ReplicaLeaderElection",
        lambda: process_node(core),
    )
    if not core.watches.exists(paths.PREFERRED_REPLICA_ELECTION):
        return
    node = core.nodes.read_preferred_election()
    if node is None:
        return
    for path, reason in node.malformed.items():
        core.log.error("%s: %s", path, reason)
    try:
        for partition, (code, message) in elect_leaders(
            core, node.partitions, ElectionType.PREFERRED, "ZkTriggered"
        ).items():
            if code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                core.log.warning(
                    "%s: %s-%d: %s",
                    paths.PREFERRED_REPLICA_ELECTION, *partition, message or ErrorCode.name_of(code),
                )  # fmt: skip
    finally:
        core.nodes.delete_preferred_election()


def rebalance(core: ControllerCore) -> None:
    """Elect preferred leaders where a broker leads too few of its partitions; schedule the next check.

    A broker's partitions are those whose first replica it is. They are elected when more than
    ``leader.imbalance.per.broker.percentage`` of them have another leader. Raises ControllerMovedError,
    ZooKeeperError, IllegalStateError (of a batch).
    """
    try:
        core.log.info("Processing automatic preferred replica leader election")
        core.log.log(TRACE, "Checking need to trigger auto leader balancing")
        rows = _imbalanced_rows(core)
        if len(rows):
            _elect(core, rows, ElectionType.PREFERRED, "AutoTriggered")
    finally:
        core.schedule(
            ControllerState.AUTO_LEADER_BALANCE,
            "AutoPreferredReplicaLeaderElection",
            core.config.leader_imbalance_check_interval,
            rebalance,
        )


def process_config_changes(core: ControllerCore) -> None:
    """Elect leaders of offline partitions where settings allow unclean elections now; watch for changes."""
    core.watches.watch(
        paths.CONFIG_CHANGES,
        ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE,
        "UncleanLeaderElectionEnable",
        lambda: process_config_changes(core),
    )
    enabled = core.topic_configs.unclean_elections_enabled(core.watches.children(paths.CONFIG_CHANGES))
    if enabled.by_default:
        core.log.info("unclean leader election is enabled by default")
        core.partition_states.trigger_online()
    elif enabled.topics:
        core.log.info("unclean leader election is enabled for topics: %s", ", ".join(enabled.topics))
        core.partition_states.trigger_online(core.context.rows_of_topics(enabled.topics))


def _elect(core: ControllerCore, rows: Int64, kind: ElectionType, trigger: str) -> npt.NDArray[np.int16]:
    """Elect leaders of these rows, ascending; return Kafka's error code of each, 0 where it has a leader."""
    core.log.info(
        "Starting replica leader election (%s) for partitions %s triggered by %s",
        kind.name,
        ListedPartitions(core.context, rows),
        trigger,
    )
    elections = core.partition_states.handle_state_changes(rows, PartitionState.ONLINE, _STRATEGIES[kind])
    # New partitions have no result: they get their first leader, or none.
    errors = np.where(
        core.state.partitions.leader[rows] == NO_LEADER,
        np.int16(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        np.int16(ErrorCode.NONE),
    )
    errors[np.searchsorted(rows, elections.rows)] = elections.error
    return errors


def _needs_election(core: ControllerCore, rows: Int64, kind: ElectionType) -> npt.NDArray[np.bool_]:
    leader = core.state.partitions.leader[rows]
    needed: npt.NDArray[np.bool_]
    if kind == ElectionType.PREFERRED:
        needed = leader != core.context.preferred_replicas(rows)
    else:
        needed = (leader == NO_LEADER) | ~np.isin(leader, core.state.online_broker_ids)
    return needed


def _imbalanced_rows(core: ControllerCore) -> Int64:
    """Return the rows of imbalanced brokers whose preferred leader can be elected, ascending."""
    context, partitions = core.context, core.state.partitions
    rows: Int64 = context.all_rows
    rows = rows[~context.is_to_delete(rows) & (partitions.replicas.lengths > 0)]
    preferred = context.preferred_replicas(rows)
    elsewhere = context.has_leadership(rows) & (partitions.leader[rows] != preferred)
    brokers = distinct(preferred.astype(np.int64))
    broker = np.searchsorted(brokers, preferred)
    total = np.bincount(broker, minlength=len(brokers))
    imbalance = np.bincount(broker[elsewhere], minlength=len(brokers)) / np.maximum(total, 1)
    if core.log.isEnabledFor(logging.DEBUG):
        for place, broker_id in enumerate(brokers.tolist()):
            led = ListedPartitions(context, rows[elsewhere & (broker == place)])
            core.log.debug("Topics not in preferred replica for broker %d %s", broker_id, led)
            core.log.log(TRACE, "Leader imbalance ratio for broker %d is %s", broker_id, imbalance[place])
    chosen = elsewhere & (imbalance > core.config.leader_imbalance_percentage / 100)[broker]
    rows, preferred = rows[chosen], preferred[chosen]
    electable = context.is_online(rows, preferred) & contains(take(partitions.isr, rows), preferred)
    return rows[electable]


def _partitions(core: ControllerCore, rows: Int64) -> list[Partition]:
    columns = core.state.partitions
    topics = [core.state.topic_name(row) for row in columns.topic_row[rows].tolist()]
    return list(zip(topics, columns.partition[rows].tolist(), strict=True))
