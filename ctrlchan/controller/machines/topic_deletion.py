"""Deletes topics: from the request in ZooKeeper to the removal of the topic's nodes.

A request is a node below ``/admin/delete_topics``. The deletion of a topic is halted while one of its
replicas is offline or one of its partitions is being reassigned, and goes on when that ends. A topic is
removed when all its replicas have been deleted. Source: ``kafka.controller.TopicDeletionManager``
(Kafka 3.9). Different on purpose: all topics that can take a step take it together, and a topic that is
queued while it is being reassigned is halted (Kafka marks it before it is queued, which has no effect); the
reassignments of a deleted topic leave ``/admin/reassign_partitions``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ctrlchan.controller.machines.context import ControllerContext
from ctrlchan.controller.machines.log_texts import Listed, ListedPartitions
from ctrlchan.controller.machines.partition_states import PartitionStateMachine
from ctrlchan.controller.machines.reassignment_node import remove_entries
from ctrlchan.controller.machines.replica_states import ReplicaStateMachine
from ctrlchan.controller.machines.states import PartitionState, ReplicaState
from ctrlchan.errors import ErrorCode
from ctrlchan.log_context import ContextLogger
from ctrlchan.state.rows import distinct
from ctrlchan.zookeeper.cluster import ClusterNodes

__all__ = ["TopicDeletionManager"]

Bool: TypeAlias = npt.NDArray[np.bool_]
Int32: TypeAlias = npt.NDArray[np.int32]
Int64: TypeAlias = npt.NDArray[np.int64]

_LOG: Final = logging.getLogger(__name__)


class TopicDeletionManager:
    """Moves topics that are queued for deletion through the states of their replicas.

    Used on the event loop's thread alone. ``send_update_metadata``: sends these rows to all live brokers.
    ``enabled``: ``delete.topic.enable``; without it requests are removed and nothing else happens.
    ``controller_id``: for log lines, which begin as Kafka's. At DEBUG they name the replicas.

    Methods that write raise ControllerMovedError, ZooKeeperError and IllegalStateError (of a batch).
    """

    def __init__(
        self,
        context: ControllerContext,
        nodes: ClusterNodes,
        partition_states: PartitionStateMachine,
        replica_states: ReplicaStateMachine,
        send_update_metadata: Callable[[Int64], None],
        *,
        enabled: bool,
        controller_id: int,
    ) -> None:
        self._context = context
        self._nodes = nodes
        self._partition_states = partition_states
        self._replica_states = replica_states
        self._send_update_metadata = send_update_metadata
        self._enabled = enabled
        self._log = ContextLogger(_LOG, f"[Topic Deletion Manager {controller_id}] ")

    # -- requests

    def start(self, requested: Iterable[str]) -> None:
        """Queue the topics whose requests a failover found; ``resume`` begins their deletion.

        Topics with offline replicas or with partitions that are being reassigned are ineligible.
        """
        topics = self._accept(requested)
        if topics:
            self._context.queue_topic_deletion(topics)
            replicas = self._replicas_of(topics)
            offline = ~self._context.is_online(replicas.rows, replicas.brokers)
            self.mark_ineligible(replicas.topics_with(offline), "offline replicas")
            self.halt_reassigned(topics)

    def process_requests(self, requested: Iterable[str]) -> None:
        """Queue topics whose requests stand in ZooKeeper, and begin their deletion."""
        topics = self._accept(requested)
        if topics:
            self._log.info("deletion of topics is requested: %s", _listed(topics))
            self._context.queue_topic_deletion(topics)
            self.halt_reassigned(topics)
            self.resume()

    def is_queued(self, topic: str) -> bool:
        """Return whether the topic is queued for deletion or being deleted."""
        return topic in self._context.topics_to_delete

    # -- halting and resuming

    def mark_ineligible(self, topics: Iterable[str], reason: str) -> None:
        """Halt the deletion of these topics until ``resume_for``; topics that are not queued are left out."""
        halted = self._context.topics_to_delete.intersection(topics)
        if halted:
            self._context.topics_ineligible.update(halted)
            self._log.info("deletion of topics is halted (%s): %s", reason, _listed(halted))

    def halt_reassigned(self, topics: Iterable[str]) -> None:
        """Halt the deletion of topics that have a reassignment with a live leader.

        Without a leader a reassignment never ends, because topics that are queued elect none.
        """
        context = self._context
        rows = context.reassigning_rows()
        rows = rows[context.is_online(rows, context.state.partitions.leader[rows])]
        self.mark_ineligible(set(self._names(rows)).intersection(topics), "reassignment in progress")

    def resume_for(self, topics: Iterable[str]) -> None:
        """Go on with the deletion of these topics: a broker came back, or a reassignment ended.

        Topics that ``halt_reassigned`` names stay halted, unless their deletion has begun.
        """
        resumed = self._context.topics_to_delete.intersection(topics)
        if resumed:
            self._context.topics_ineligible.difference_update(resumed)
            self.halt_reassigned(resumed - self._context.topics_with_deletion_started)
            self.resume()

    def resume(self) -> None:
        """Let each queued topic take its next step: end, retry or begin."""
        if not self._enabled:
            return
        replicas = self._replicas_of(self._context.topics_to_delete)
        ended = replicas.topics_where(replicas.counts(ReplicaState.DELETION_SUCCESSFUL) == replicas.counts())
        if ended:
            self._end(ended)
            replicas = self._replicas_of(self._context.topics_to_delete)
        idle = replicas.counts(ReplicaState.DELETION_STARTED) == 0
        failed = replicas.states == ReplicaState.DELETION_INELIGIBLE
        retried = failed & idle[replicas.topic]
        if retried.any():
            self._log_replicas(
                "deletion of replicas is tried again", replicas.rows[retried], replicas.brokers[retried]
            )
            self._move(replicas, retried, ReplicaState.OFFLINE)
        ineligible = self._context.topics_ineligible
        begun = [name for name in replicas.topics_where(idle) if name not in ineligible]
        if begun:
            self._log.info("deletion of topics begins: %s", _listed(begun))
            self._begin(begun)

    # -- results

    def stop_replica_response(
        self, broker_id: int, error_code: int, errors: Mapping[tuple[str, int], int]
    ) -> None:
        """Process the outcome of StopReplica with deletions: ``errors`` of (topic, partition).

        A request that ends without a response has failed for all its partitions: its ``error_code`` is not 0.
        Of a broker that is gone (8) nothing follows here: ``fail_on_broker`` and ``fail`` are called for it,
        and its next registration may have been sent the next request before this outcome is processed.
        """
        if error_code == ErrorCode.BROKER_NOT_AVAILABLE:
            return
        failed = {
            key for key, code in errors.items() if error_code != ErrorCode.NONE or code != ErrorCode.NONE
        }
        if failed:
            first = min(failed)
            self._log.warning(
                "broker %d did not delete %d replicas, the first is %s-%d: error %d",
                broker_id,
                len(failed),
                *first,
                error_code or errors[first],
            )
        self._respond(failed, broker_id, self.fail)
        # Rows may have moved: topics end while others fail.
        self._respond(errors.keys() - failed, broker_id, self.complete)

    def fail(self, rows: Int64, brokers: Int32) -> None:
        """Halt the deletion of the topics of these replicas: they are offline or could not be deleted.

        Replicas of topics that are not queued are left out.
        """
        queued = self._context.is_to_delete(rows)
        if queued.any():
            rows = rows[queued]
            self._log_replicas("replicas cannot be deleted now", rows, brokers[queued])
            self._replica_states.handle_state_changes(rows, brokers[queued], ReplicaState.DELETION_INELIGIBLE)
            self.mark_ineligible(self._names(rows), "replicas that could not be deleted")
            self.resume()

    def fail_on_broker(self, broker_id: int) -> None:
        """Halt the deletion of all topics with a replica that is being deleted on this broker."""
        rows, brokers = self._context.replicas_on([broker_id])
        states = self._context.replica_states(rows, brokers)
        started = states == ReplicaState.DELETION_STARTED
        self.fail(rows[started], brokers[started])

    def complete(self, rows: Int64, brokers: Int32) -> None:
        """Note that these replicas were deleted, and remove topics all of whose replicas are.

        Replicas that are not being deleted any more are left out: their broker has started again since.
        """
        started = self._context.replica_states(rows, brokers) == ReplicaState.DELETION_STARTED
        chosen = started & self._context.is_to_delete(rows)
        self._log_replicas("replicas are deleted", rows[chosen], brokers[chosen])
        self._replica_states.handle_state_changes(
            rows[chosen], brokers[chosen], ReplicaState.DELETION_SUCCESSFUL
        )
        self.resume()

    # -- steps of a deletion

    def _accept(self, requested: Iterable[str]) -> list[str]:
        """Return the topics to queue; take back requests for unknown topics, or all when this is disabled."""
        names = sorted(set(requested))
        refused = [name for name in names if not self._enabled or not self._context.has_topic(name)]
        if refused:
            reason = "no such topics" if self._enabled else "delete.topic.enable is false"
            self._log.warning("requests to delete topics are removed (%s): %s", reason, _listed(refused))
            self._nodes.delete_topic_requests(refused)
        gone = set(refused)
        return [name for name in names if name not in gone]

    def _begin(self, topics: list[str]) -> None:
        """Announce the deletion to all brokers, stop the replicas and delete them."""
        context = self._context
        started = context.topics_with_deletion_started
        unseen = [name for name in topics if name not in started]
        if unseen:
            rows = context.rows_of_topics(unseen)
            self._partition_states.handle_state_changes(rows, PartitionState.OFFLINE)
            self._partition_states.handle_state_changes(rows, PartitionState.NON_EXISTENT)
            # After the changes of state: the number of offline partitions leaves out topics in deletion.
            context.begin_topic_deletion(unseen)
        # With leader -2: brokers stop serving the topics.
        self._send_update_metadata(context.rows_of_topics(topics))
        replicas = self._replicas_of(topics)
        deleted = replicas.states == ReplicaState.DELETION_SUCCESSFUL
        online = context.is_online(replicas.rows, replicas.brokers)
        dead, alive = ~online & ~deleted, online & ~deleted
        self._move(replicas, dead, ReplicaState.DELETION_INELIGIBLE)
        self._log_replicas("deletion of replicas begins", replicas.rows[alive], replicas.brokers[alive])
        self._move(replicas, alive, ReplicaState.OFFLINE)
        self._move(replicas, alive, ReplicaState.DELETION_STARTED)
        self.mark_ineligible(replicas.topics_with(dead), "offline replicas")

    def _end(self, topics: list[str]) -> None:
        """Remove topics whose replicas are all deleted, from ZooKeeper and then from the state.

        In this order it can be tried again when ZooKeeper does not answer. Reassignments of these topics that
        stand in the node are removed, so that no later topic of the same name has them.
        """
        remove_entries(self._nodes, lambda partition, _: partition[0] in topics)
        self._nodes.delete_topics(topics)
        replicas = self._replicas_of(topics)
        self._move(replicas, np.ones(len(replicas.rows), bool), ReplicaState.NON_EXISTENT)
        self._context.remove_topics(topics)
        self._log.info("topics are deleted: %s", _listed(topics))

    def _move(self, replicas: _Replicas, chosen: Bool, target: ReplicaState) -> None:
        if chosen.any():
            self._replica_states.handle_state_changes(replicas.rows[chosen], replicas.brokers[chosen], target)

    # -- log lines

    def _log_replicas(self, message: str, rows: Int64, brokers: Int32) -> None:
        """Write a line of level DEBUG that names replicas; none without replicas."""
        if len(rows):
            replicas = ListedPartitions(self._context, rows, lambda place: f" on broker {brokers[place]}")
            self._log.debug("%s: %s", message, replicas)

    # -- rows

    def _replicas_of(self, topics: Iterable[str]) -> _Replicas:
        context, state, names = self._context, self._context.state, sorted(topics)
        rows, brokers = context.replica_pairs(context.rows_of_topics(names))
        place = np.zeros(len(state.topics), np.int64)
        for index, name in enumerate(names):
            if context.has_topic(name):
                place[state.topic_row(name)] = index
        topic = place[state.partitions.topic_row[rows]]
        return _Replicas(names, rows, brokers, topic, context.replica_states(rows, brokers))

    def _names(self, rows: Int64) -> list[str]:
        return [name.decode() for name in self._context.names_of(rows)[0]]

    def _respond(
        self, keys: Iterable[tuple[str, int]], broker_id: int, function: Callable[[Int64, Int32], None]
    ) -> None:
        """Call ``function`` with the replicas of these partitions that the state still has, if any."""
        state = self._context.state
        wanted = [(state.topic_row(name), number) for name, number in keys if self._context.has_topic(name)]
        if wanted:
            topic_row, partition = np.array(wanted, np.int32).T
            rows = state.find_rows(topic_row, partition)
            rows = np.sort(rows[rows >= 0])
            function(rows, np.full(len(rows), broker_id, np.int32))


@dataclass(frozen=True, slots=True)
class _Replicas:
    """All assigned replicas of some topics as columns. ``topic``: index into ``names``, int64."""

    names: list[str]
    rows: Int64
    brokers: Int32
    topic: Int64
    states: npt.NDArray[np.int8]

    def counts(self, state: ReplicaState | None = None) -> Int64:
        """Return the number of replicas (in this state) of each topic."""
        chosen = self.topic if state is None else self.topic[self.states == state]
        return np.bincount(chosen, minlength=len(self.names))

    def topics_where(self, flags: Bool) -> list[str]:
        """Return the names of the topics whose flag is set."""
        return [self.names[index] for index in np.flatnonzero(flags).tolist()]

    def topics_with(self, replicas: Bool) -> list[str]:
        """Return the names of the topics that have one of the flagged replicas."""
        return [self.names[index] for index in distinct(self.topic[replicas]).tolist()]


def _listed(topics: Iterable[str]) -> Listed:
    return Listed(sorted(topics))
