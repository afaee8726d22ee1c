"""LeaderAndIsr (4): become leader or follower.

State and error codes as Kafka 3.9 in ZooKeeper mode without migration:
``KafkaApis.handleLeaderAndIsrRequest``, ``ReplicaManager.becomeLeaderOrFollower``, and of
``Partition.makeLeader`` and ``makeFollower`` what does not concern the contents of logs. A broker that stores
records has a ``ReplicaManager``, which then opens the logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ctrlchan._codec import LEADER_AND_ISR, ControlResponse, LeaderAndIsrRequest, ListColumn
from ctrlchan.authorizer.acls import Operation
from ctrlchan.broker.core import BrokerCore
from ctrlchan.broker.handlers import control
from ctrlchan.broker.metadata.hosted_replicas import Assignment, Bool
from ctrlchan.broker.metadata.jvm_order import (
    UInt32,
    partition_hashes,
    scala_map_order,
    topic_partition_hashes,
)
from ctrlchan.errors import ErrorCode
from ctrlchan.server.access import needs_cluster
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.state.lists import contains, empty_lists, packed_values, take

if TYPE_CHECKING:
    from ctrlchan._codec import Int32, Int64
    from ctrlchan.broker.replica.replica_manager import Failure

__all__ = ["API"]

_RECOVERED = np.int32(0)
_TOPIC_IDS_SINCE = 5  # first version whose response names topics by id


def _handle(core: BrokerCore, request: Request) -> Reply:
    return control.answer(
        core, request, LeaderAndIsrRequest, LEADER_AND_ISR, _become_leader_or_follower, _refuse
    )


API = Api(
    key=LEADER_AND_ISR,
    name="LeaderAndIsr",
    lowest=0,
    highest=7,
    flexible_from=4,
    handle=_handle,
    needs=needs_cluster(Operation.CLUSTER_ACTION),
)


def _become_leader_or_follower(core: BrokerCore, message: LeaderAndIsrRequest) -> ControlResponse:
    control.check_broker_epoch(core, message)
    if message.version >= 2 and control.has_repeated_topic(message.topics):
        # Kafka's ``topicIds()`` makes a map of the topic states and throws.
        raise control.Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "a topic comes twice")
    control.check_controller_epoch(core, message)
    core.replicas.controller_epoch = message.controller_epoch
    return _Transition(core, message).run()


def _refuse(message: LeaderAndIsrRequest, error_code: int) -> ControlResponse:
    """Return an answer with this error for every partition, in the order of the request."""
    return ControlResponse(
        api_key=LEADER_AND_ISR,
        version=message.version,
        error_code=int(error_code),
        topics=message.topics,
        topic_starts=message.topic_starts,
        partition=message.partitions.partition,
        partition_error=np.full(len(message.partitions), error_code, dtype=np.int32),
    )


class _Transition:
    """Applies one request to the replicas. A row is an index of a partition in the request."""

    def __init__(self, core: BrokerCore, message: LeaderAndIsrRequest) -> None:
        self.replicas = core.replicas
        self.manager = core.replica_manager
        self.message = message
        self.partitions = message.partitions
        self.ours = np.int32(core.id)
        self.live_brokers = core.metadata.live_ids
        self.topic_ids = message.topics.ids[self.partitions.topic_row]
        self.keys = self.replicas.keys_of(
            message.topics, self.partitions.topic_row, self.partitions.partition
        )

    def run(self) -> ControlResponse:
        existed = self.replicas.find(self.keys) >= 0
        self.replicas.create(self.keys, self.message.topics)
        self.hosted = self.replicas.find(self.keys)
        if self.manager is not None:
            self._find_topic_ids(np.flatnonzero(~existed))
        errors, becomes, stop = self._check()
        if stop is not None:
            # Kafka's loop throws here: partitions that the request names only after this row are not made.
            late = np.setdiff1d(self.keys[stop + 1 :][~existed[stop + 1 :]], self.keys[: stop + 1])
            self.replicas.remove(self.replicas.find(late))
            raise control.Refused(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "a topic id for a partition without a log"
            )
        hashes = control.topic_hashes(self.message.topics)[self.partitions.topic_row]
        leads = self.partitions.leader == self.ours
        map_hashes = partition_hashes(hashes, self.partitions.partition)
        leaders = self._in_map_order(np.flatnonzero(becomes & leads), map_hashes)
        followers = self._in_map_order(np.flatnonzero(becomes & ~leads), map_hashes)
        self._make_leaders(leaders, errors)
        self._make_followers(followers, errors)

        # Puts to the map that becomes the response: refusals in request order, then leaders, then followers.
        puts = np.concatenate((np.flatnonzero(~becomes), leaders, followers))
        keys = self.keys[puts]
        order = scala_map_order(keys, topic_partition_hashes(hashes, self.partitions.partition)[puts])
        return self._response(puts[order], errors[puts[control.last_of_each_key(keys)[order]]])

    def _check(self) -> tuple[Int32, Bool, int | None]:
        """Return (error of each row, rows that become leader or follower, row at which Kafka throws or None).

        Every row is checked against the state before the request: all rows are checked before any is applied.
        """
        columns, partitions = self.replicas.columns, self.partitions
        epoch, current = partitions.leader_epoch, columns.leader_epoch[self.hosted]
        log_ids = self.replicas.topic_ids[self.hosted]
        given, logged = self.topic_ids.any(axis=1), log_ids.any(axis=1)
        offline = self.replicas.offline[self.hosted].astype(bool)
        conflict = ~offline & given & logged & (self.topic_ids != log_ids).any(axis=1)
        free = ~offline & ~conflict
        same = free & (epoch == current)
        newer = free & ((epoch > current) | (same & self.message.is_kraft_controller))
        assigned = contains(partitions.replicas, np.full(len(epoch), self.ours, dtype=np.int32))
        # The same leader epoch again is accepted only with a topic id that the log does not have yet, or
        # (after a downgrade) without the topic id that a follower's log has.
        adds_id = same & ~newer & given & ~logged
        loses_id = same & ~newer & ~given & logged & (partitions.leader != self.ours)

        errors = np.full(len(epoch), ErrorCode.STALE_CONTROLLER_EPOCH, dtype=np.int32)
        errors[newer | adds_id | loses_id] = ErrorCode.NONE
        errors[newer & ~assigned] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        errors[conflict] = ErrorCode.INCONSISTENT_TOPIC_ID
        errors[offline] = ErrorCode.KAFKA_STORAGE_ERROR

        with_new_id = np.flatnonzero(adds_id)
        without_log = with_new_id[self.replicas.has_log[self.hosted[with_new_id]] == 0]
        stop = int(without_log[0]) if len(without_log) else None
        if stop is not None:
            with_new_id = with_new_id[with_new_id < stop]
        self.replicas.topic_ids[self.hosted[with_new_id]] = self.topic_ids[with_new_id]
        repeated = np.ones(len(with_new_id), dtype=bool)
        repeated[np.unique(self.keys[with_new_id], return_index=True)[1]] = False
        errors[with_new_id[repeated]] = ErrorCode.STALE_CONTROLLER_EPOCH
        return errors, newer & assigned, stop

    def _in_map_order(self, rows: Int64, hashes: UInt32) -> Int64:
        """Return `rows` in the order of Kafka's ``Map[Partition, State]``; the last of equal keys counts."""
        keys = self.keys[rows]
        return rows[control.last_of_each_key(keys)[scala_map_order(keys, hashes[rows])]]

    def _make_leaders(self, rows: Int64, errors: Int32) -> None:
        rows = self._not_older(rows)
        hosted, partitions = self.hosted[rows], self.partitions
        current = self.replicas.columns.leader_epoch[hosted]
        self._assign(
            rows,
            leader=self.ours,
            leader_epoch=np.maximum(current, partitions.leader_epoch[rows]),
            recovery_state=_RECOVERED,
            isr=take(partitions.isr, rows),
        )
        self.replicas.open_logs(hosted, self.topic_ids[rows])
        if self.manager is not None:
            self._store(rows, errors, self.manager.make_leaders)

    def _make_followers(self, rows: Int64, errors: Int32) -> None:
        partitions = self.partitions
        live = np.isin(partitions.leader[rows], self.live_brokers)
        # A follower of a dead leader gets only its log: the same leader epoch counts as newer once more.
        waiting = rows[~live]
        self.replicas.open_logs(self.hosted[waiting], self.topic_ids[waiting])
        if self.manager is not None:
            self._store(waiting, errors, self.manager.open_logs)
        rows = self._not_older(rows[live])
        self._assign(
            rows,
            leader=partitions.leader[rows],
            leader_epoch=partitions.leader_epoch[rows],
            recovery_state=partitions.recovery_state[rows],
            isr=empty_lists(1),
        )
        self.replicas.open_logs(self.hosted[rows], self.topic_ids[rows])
        if self.manager is not None:
            self._store(rows, errors, self.manager.make_followers)

    # -- logs

    def _find_topic_ids(self, rows: Int64) -> None:
        """Note the topic ids of logs that were here before the broker started."""
        assert self.manager is not None
        names, partition = self._names(rows), self.partitions.partition[rows].tolist()
        for row, name, number in zip(rows.tolist(), names, partition, strict=True):
            topic_id = self.manager.topic_id(name, number)
            if topic_id is not None:
                self.replicas.topic_ids[self.hosted[row]] = np.frombuffer(topic_id, dtype=np.uint8)

    def _store(
        self, rows: Int64, errors: Int32, become: Callable[[Iterable[Assignment]], dict[int, Failure]]
    ) -> None:
        """Let the ReplicaManager follow; write the errors of partitions whose logs cannot be used."""
        for index, failure in become(self._assignments(rows)).items():
            row = rows[index]
            errors[row] = failure.code
            if failure.is_offline:
                self.replicas.offline[self.hosted[row]] = 1
            elif failure.code == ErrorCode.KAFKA_STORAGE_ERROR:
                self.replicas.refuse(self.hosted[row])

    def _assignments(self, rows: Int64) -> Iterator[Assignment]:
        partitions, hosted = self.partitions, self.hosted[rows]
        values = (
            self._names(rows),
            partitions.partition[rows].tolist(),
            map(bytes, self.replicas.topic_ids[hosted]),
            partitions.leader[rows].tolist(),
            self.replicas.columns.leader_epoch[hosted].tolist(),
            partitions.partition_epoch[rows].tolist(),
            _tuples(take(partitions.replicas, rows)),
            _tuples(take(partitions.isr, rows)),
            self.message.is_new[rows].astype(bool).tolist(),
        )
        return map(Assignment, *values)

    def _names(self, rows: Int64) -> list[str]:
        names = self.message.topics.names.to_list()
        return [names[topic] or "" for topic in self.partitions.topic_row[rows].tolist()]

    # -- columns

    def _not_older(self, rows: Int64) -> Int64:
        """Return the rows without an older partition epoch: AlterPartition's answer may have come first."""
        current = self.replicas.columns.partition_epoch[self.hosted[rows]]
        return rows[self.partitions.partition_epoch[rows] >= current]

    def _assign(
        self,
        rows: Int64,
        *,
        leader: Int32 | np.int32,
        leader_epoch: Int32,
        recovery_state: Int32 | np.int32,
        isr: ListColumn,
    ) -> None:
        partitions = self.partitions
        lists = {"isr": isr, "replicas": take(partitions.replicas, rows)}
        for name in ("adding", "removing"):
            column = getattr(partitions, name)
            lists[name] = empty_lists(1) if column is None else take(column, rows)
        self.replicas.assign(
            self.hosted[rows],
            {
                "controller_epoch": partitions.controller_epoch[rows],
                "leader": leader,
                "leader_epoch": leader_epoch,
                "partition_epoch": partitions.partition_epoch[rows],
                "recovery_state": recovery_state,
            },
            lists,
        )

    def _response(self, order: Int64, errors: Int32) -> ControlResponse:
        """Return an answer with these rows and errors in this order; from v5 on grouped by topic id."""
        topics = self.message.topics
        topic_row = self.partitions.topic_row[order]
        if self.message.version < _TOPIC_IDS_SINCE:
            named, topic_starts = control.names_in_runs(topics, topic_row)
        else:
            # By id: topics without one are a single topic of the response.
            same_id = np.unique(topics.ids, axis=0, return_inverse=True)[1].reshape(-1)[topic_row]
            _, first, group = np.unique(same_id, return_index=True, return_inverse=True)
            rank = np.argsort(np.argsort(first))[group]
            named = control.select_topics(topics, topic_row[np.sort(first)])
            topic_starts = np.concatenate(([0], np.cumsum(np.bincount(rank, minlength=len(first)))))
            by_topic = np.argsort(rank, kind="stable")
            order, errors = order[by_topic], errors[by_topic]
        return ControlResponse(
            api_key=LEADER_AND_ISR,
            version=self.message.version,
            error_code=int(ErrorCode.NONE),
            topics=named,
            topic_starts=topic_starts.astype(np.int64),
            partition=self.partitions.partition[order],
            partition_error=errors,
        )


def _tuples(lists: ListColumn) -> list[tuple[int, ...]]:
    values = packed_values(lists).tolist()
    ends = [0, *np.cumsum(lists.lengths).tolist()]
    return [tuple(values[start:end]) for start, end in pairwise(ends)]
