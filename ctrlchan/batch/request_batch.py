"""ControllerBrokerRequestBatch decides which rows of the state go to which broker, and in which order.

In: partitions, one at a time or in whole selections. Out: one ``ControlRequest`` for each (API, version,
selection), shared by all the brokers it goes to. The state is read when the batch is sent, so the values of
that time are sent, except the leader epochs of StopReplica. Between adding and sending no row may be added to
the state or removed from it.

Mirrors ``kafka.controller.AbstractControllerBrokerRequestBatch`` (Kafka 3.9). Different on purpose: brokers
are grouped by version and by the rows they are sent, never by whether a callback is given (KAFKA-8294,
KAFKA-9499); and the error of a batch that fails names the requests and brokers that were not sent.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Mapping, Sequence
from time import monotonic_ns
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, cast

import numpy as np

from ctrlchan._codec import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    Brokers,
    Partitions,
    leader_and_isr_body,
    update_metadata_body,
)
from ctrlchan.batch.coverage import coverage_of_missing, coverage_of_partitions, coverage_of_rows
from ctrlchan.batch.full_state import StateSource
from ctrlchan.batch.known_metadata import (
    KnownMetadata,
    MissingMetadata,
    known_after_all,
    known_after_rows,
    missing_metadata,
)
from ctrlchan.batch.log_lines import log_leader_and_isr, log_stop_replica, log_update_metadata
from ctrlchan.batch.selection import EpochSelection, Int32, Int64, Selection, keys_of
from ctrlchan.batch.stop_replica import (
    DeletionResponses,
    StopReplicaHandler,
    stop_epoch,
    stop_epochs,
    stop_replicas,
)
from ctrlchan.channel import ChannelConfig, ControlRequest, Sent
from ctrlchan.channel.endpoints import live_leaders, plaintext_only
from ctrlchan.channel.outcome import OutcomeCallback
from ctrlchan.channel.queues.acknowledged import AcknowledgedMetadata
from ctrlchan.errors import IllegalStateError
from ctrlchan.protocol import API_NAMES, request_versions
from ctrlchan.rate_limit import LogRateLimit
from ctrlchan.state import NO_LEADERSHIP, ClusterState
from ctrlchan.state.table import FIXED_COLUMNS, LIST_COLUMNS
from ctrlchan.state.values import Rows, as_rows
from ctrlchan.state_change_log import StateChangeLogger

__all__ = ["ControllerBrokerRequestBatch", "RequestChannel"]

_LOG: Final = logging.getLogger(__name__)

#: From this version on LeaderAndIsr carries the leader recovery state (KIP-704).
RECOVERY_STATE_SINCE: Final = 6
#: An error names at most so many brokers.
_NAMED_BROKERS: Final = 20

#: A row, ``(topic, partition)``, or a selection of rows as ``ClusterState.update`` takes it.
Selected: TypeAlias = Rows | tuple[str, int]

AnySelection = TypeVar("AnySelection", Selection, EpochSelection)


class RequestChannel(Protocol):
    """The part of a channel that a batch uses; ``ControllerChannelManager`` is one."""

    @property
    def config(self) -> ChannelConfig: ...

    #: The metadata that its brokers have.
    acknowledged: AcknowledgedMetadata[Any]

    #: Whether it keeps a journal, for which requests need their ``coverage``.
    @property
    def has_journal(self) -> bool: ...
    def request_versions(self, broker_ids: Sequence[int], api_key: int) -> dict[int, list[int]]:
        """Return version -> those of the brokers that are sent it, in their order; each broker once."""
        ...

    def send_requests(
        self, broker_ids: Sequence[int], request: ControlRequest, callback: OutcomeCallback | None = None
    ) -> list[Sent]: ...


class ControllerBrokerRequestBatch:
    """Collects state changes and sends them: LeaderAndIsr, then UpdateMetadata, then StopReplica.

    Source: ``kafka.controller.AbstractControllerBrokerRequestBatch`` (Kafka 3.9).

    ``rows`` of the add calls: a row number, a ``(topic, partition)`` pair, a one-dimensional int64 array of
    rows (copied), a slice of rows or ``"all"``; KeyError for an unknown topic or partition, InvalidStateError
    for other rows that the state does not have. Broker ids below 0 are left out; brokers that are neither
    live nor shutting down when the batch is sent are sent nothing. A leader without an endpoint for its
    followers is logged and left out of the leaders' endpoints, as one that is not live. A batch belongs to
    the thread that changes the state.

    Where more UpdateMetadata wait for a broker than ``max_backlog_bytes``, one request with the full state,
    read when the broker can take it, replaces them. It is read on the channel's thread while that holds
    ``state.lock``: a thread that holds this lock must not wait for the channel.

    ``on_leader_and_isr_response`` and ``on_update_metadata_response`` are called with each broker's Outcome,
    of whatever kind. ``on_stop_replica_response(broker_id, error_code, {(topic, partition): error_code})`` is
    called for the partitions that were to be deleted, of topics whose deletion is in progress when the
    request ends, and only when there are any. A request without a response has an error code of its kind:
    FENCED 11, BROKER_GONE 8, TOO_LARGE 10, REFUSED 35, CANCELLED 7. All of them run on the channel's thread.
    ::

        batch.new_batch()
        batch.add_update_metadata(broker_ids, rows="changed")
        sent = batch.send_requests_to_brokers(controller_epoch)
    """

    def __init__(
        self,
        channel: RequestChannel,
        state: ClusterState,
        *,
        on_leader_and_isr_response: OutcomeCallback | None = None,
        on_update_metadata_response: OutcomeCallback | None = None,
        on_stop_replica_response: StopReplicaHandler | None = None,
    ) -> None:
        self._channel = channel
        self._state = state
        self._source = StateSource(state)
        self._on_leader_and_isr = on_leader_and_isr_response
        self._on_update_metadata = on_update_metadata_response
        self._on_stop_replica = on_stop_replica_response
        # Limits the warnings about leaders without an endpoint for their followers.
        self._without_endpoint = LogRateLimit()
        self._live_of: Brokers | None = None
        self._live: frozenset[int] = frozenset()
        # The list of brokers that UpdateMetadata was last added for, and its ids as a set.
        self._last_list: list[int] = []
        self._last_set: frozenset[int] = frozenset()
        # Once "changed" was asked for, pushes of named rows are remembered too.
        self._sends_differences = False
        self.clear()

    def clear(self) -> None:
        """Forget rows that were added and not sent."""
        self._leader_and_isr: dict[int, Selection] = {}
        self._stop_replica: dict[int, EpochSelection] = {}
        # UpdateMetadata is the same for all of its brokers: one selection.
        self._metadata_brokers: set[int] = set()
        self._metadata = Selection()
        self._metadata_added: frozenset[int] = frozenset()
        # Brokers that are to be sent their missing metadata.
        self._changed_brokers: set[int] = set()
        # Rows of the state when the first were added. None until then.
        self._total: int | None = None

    def new_batch(self) -> None:
        """Begin a batch. Raise IllegalStateError while the last one still holds rows that were not sent."""
        unsent = self._unsent()
        if unsent:
            raise IllegalStateError(f"the last batch was not sent; it still holds {unsent}")
        self.clear()

    def add_leader_and_isr(self, broker_ids: Iterable[int], rows: Selected, is_new: bool = False) -> None:
        """Send these brokers LeaderAndIsr of these partitions, and every live broker their metadata.

        ``is_new`` is sticky for a (broker, partition) within the batch. Raise IllegalStateError for rows
        without leadership information.
        """
        selected = self._select(rows)
        if _is_empty(selected):
            return
        self._require_leadership(selected)
        self._add(self._leader_and_isr, broker_ids, selected, is_new)
        self._add_metadata(self._live_ids(), selected)

    def add_stop_replica(self, broker_ids: Iterable[int], rows: Selected, delete: bool = False) -> None:
        """Send these brokers StopReplica of these partitions: stop the replicas, or stop and delete them.

        ``delete`` is sticky for a (broker, partition) within the batch. The leader epoch is taken now: when
        a replica goes offline, its StopReplica is added before the ISR shrinks and has the epoch from before.
        """
        selected = self._select(rows)
        if _is_empty(selected):
            return
        self._note_total()
        state, pending = self._state, self._stop_replica
        if isinstance(selected, int):
            epoch = stop_epoch(state, selected)
            for broker_id in _not_negative(broker_ids):
                pending.setdefault(broker_id, EpochSelection()).add(selected, delete, epoch)
            return
        if selected is None:
            selected = np.arange(len(state.partitions), dtype=np.int64)
        # Brokers with the same arrays share the merged selection and the request.
        keys, epochs = keys_of(selected, delete), stop_epochs(state, selected)
        for broker_id in _not_negative(broker_ids):
            pending.setdefault(broker_id, EpochSelection()).add_keys(keys, epochs)

    def add_update_metadata(self, broker_ids: Iterable[int], rows: Selected | Literal["changed"]) -> None:
        """Send these brokers ``state.live_brokers`` and the metadata of these partitions; ``()``: of none.

        All brokers of a batch are sent the same partitions: all that its calls added. Partitions without
        leadership information are left out.

        ``rows="changed"``: send each of these brokers its missing metadata, computed when the batch is sent,
        and nothing where nothing is missing. What was sent before and has not failed counts as known: by
        ``"changed"`` and ``"all"``, and from the first ``"changed"`` of this batch on by any other rows. A
        broker is sent everything at first, as a new generation, and after an error that leaves its metadata
        cache uncertain: of an UpdateMetadata, or a stale broker epoch (77). Other errors of LeaderAndIsr and
        StopReplica cost no metadata. Partitions that were removed from the state are sent with leader -2.
        Brokers with the same missing metadata share one request. Removals count from the first ``"all"`` or
        ``"changed"`` (or use of ``state.changes``) on, and only one state's batches may do this on a channel.
        """
        if isinstance(rows, str) and rows == "changed":
            self._sends_differences = True
            self._changed_brokers.update(_not_negative(broker_ids))
            return
        self._add_metadata(self._broker_set(broker_ids), self._select(rows))

    def send_requests_to_brokers(self, controller_epoch: int) -> list[Sent]:
        """Hand all requests to the channel, without waiting for brokers; return one Sent for each of them.

        Raise IllegalStateError that names the requests that were not sent; their rows stay in the batch until
        ``clear``.
        """
        log = StateChangeLogger(self._channel.config.controller_id, controller_epoch)
        sent: list[Sent] = []
        try:
            self._check_rows()
            self._forget_dead_brokers()
            self._send_leader_and_isr(controller_epoch, log, sent)
            self._send_update_metadata(controller_epoch, log, sent)
            self._send_differences(controller_epoch, log, sent)
            self._send_stop_replica(controller_epoch, log, sent)
        except Exception as error:
            message = f"the batch was not sent: {error}; left in it: {self._unsent()}"
            _LOG.error("%s", message)
            raise IllegalStateError(message) from error
        self.clear()
        return sent

    # -- collecting

    def _select(self, rows: Selected) -> int | Int64 | None:
        """Return one row, an int64 array, or None for every row. Raise KeyError, InvalidStateError."""
        if isinstance(rows, tuple) and len(rows) == 2 and isinstance(rows[0], str):
            return self._state.row(rows[0], rows[1])
        total = len(self._state.partitions)
        if isinstance(rows, (int, np.integer)) and 0 <= rows < total:
            return int(rows)
        selected = as_rows(cast("Rows", rows), total)
        if isinstance(selected, np.ndarray):
            return selected
        if (selected.start, selected.stop) == (0, total):
            return None
        return np.arange(selected.start, selected.stop, dtype=np.int64)

    def _require_leadership(self, rows: int | Int64 | None) -> None:
        leader_epoch = self._state.partitions.leader_epoch
        if isinstance(rows, int):
            if leader_epoch[rows] != NO_LEADERSHIP:
                return
            rows = np.array([rows], dtype=np.int64)
        unknown = np.flatnonzero(_at(leader_epoch, rows) == NO_LEADERSHIP)
        if len(unknown):
            first = int(unknown[0] if rows is None else rows[unknown[0]])
            raise IllegalStateError(
                f"LeaderAndIsr of {len(unknown)} partitions without leadership information; "
                f"the first is {self._name(first)}"
            )

    def _add(
        self, pending: dict[int, Selection], broker_ids: Iterable[int], rows: int | Int64 | None, flag: bool
    ) -> None:
        self._note_total()
        # Brokers with the same array share its keys, and with them the merged selection and the request.
        keys = keys_of(rows, flag) if isinstance(rows, np.ndarray) else None
        for broker_id in _not_negative(broker_ids):
            selection = pending.get(broker_id)
            if selection is None:
                selection = pending[broker_id] = Selection()
            if keys is None:
                selection.add(rows, flag)
            else:
                selection.add_keys(keys)

    def _add_metadata(self, broker_ids: frozenset[int], rows: int | Int64 | None) -> None:
        if broker_ids is not self._metadata_added:
            self._metadata_brokers |= broker_ids
            self._metadata_added = broker_ids
        if not _is_empty(rows):
            self._note_total()
            self._metadata.add(rows)

    def _broker_set(self, broker_ids: Iterable[int]) -> frozenset[int]:
        """Return these ids without negative ones; the same object for a list that is given again."""
        if not isinstance(broker_ids, list):
            return frozenset(_not_negative(broker_ids))
        if broker_ids != self._last_list:
            self._last_set = frozenset(_not_negative(broker_ids))
            self._last_list = broker_ids.copy()
        return self._last_set

    def _note_total(self) -> None:
        if self._total is None:
            self._total = len(self._state.partitions)

    def _live_ids(self) -> frozenset[int]:
        """Return live and shutting-down brokers; the same object as long as they do not change."""
        brokers = self._state.brokers
        if brokers is not self._live_of:
            self._live_of = brokers
            self._live = frozenset(brokers.ids.tolist())
        return self._live

    # -- sending

    def _check_rows(self) -> None:
        total = len(self._state.partitions)
        if self._total is not None and self._total != total:
            raise IllegalStateError(f"the state had {self._total} rows when some were added, now {total}")

    def _forget_dead_brokers(self) -> None:
        live = self._live_ids()
        if not self._metadata_brokers <= live:
            self._metadata_brokers &= live
        self._changed_brokers &= live
        for pending in (self._leader_and_isr, self._stop_replica):
            for broker_id in pending.keys() - live:
                del pending[broker_id]

    def _send_leader_and_isr(self, controller_epoch: int, log: StateChangeLogger, sent: list[Sent]) -> None:
        if not self._leader_and_isr:
            return
        state, config = self._state, self._channel.config
        partitions = state.partitions
        if request_versions(config.inter_broker_protocol).leader_and_isr < RECOVERY_STATE_SINCE:
            # As in Kafka, a controller of an older IBP does not set the recovery state at all. A broker that
            # negotiates a version below our IBP is the codec's concern, which must not drop the value.
            partitions = _without_recovery_state(partitions)
        for version, broker_ids, selection in self._groups(LEADER_AND_ISR, self._leader_and_isr):
            rows, is_new = selection.merge(len(partitions))
            if log.informs:
                log_leader_and_isr(log, state, broker_ids, rows, is_new)
            leaders, left_out = live_leaders(state.brokers, _at(partitions.leader, rows), config.leader_rule)
            if left_out:
                self._warn_of_leaders(left_out)
            shared_body = leader_and_isr_body(version, state.topics, partitions, leaders, rows, is_new=is_new)
            request = ControlRequest(shared_body, controller_epoch, rows=shared_body.rows)
            if self._channel.has_journal:
                request.state_version = state.changes.version
                every = slice(None) if rows is None else rows
                request.coverage = coverage_of_partitions(
                    state, partitions.topic_row[every], partitions.partition[every]
                )
            sent += self._channel.send_requests(broker_ids, request, self._on_leader_and_isr)
            _forget(self._leader_and_isr, broker_ids)

    def _warn_of_leaders(self, left_out: list[int]) -> None:
        """Log that the leaders' endpoints in LeaderAndIsr do not include these brokers."""
        now = monotonic_ns()
        for broker_id in left_out:
            unsaid = self._without_endpoint.admit(broker_id, now)
            if unsaid is not None:
                _LOG.warning(
                    "Followers cannot connect to leader %d: it has no endpoint for listener %s.%s",
                    broker_id,
                    self._channel.config.broker_listener,
                    unsaid,
                )

    def _send_update_metadata(self, controller_epoch: int, log: StateChangeLogger, sent: list[Sent]) -> None:
        if not self._metadata_brokers:
            return
        state = self._state
        rows, _ = self._metadata.merge(len(state.partitions))
        whole = rows is None
        has_leader = _at(state.partitions.leader_epoch, rows) != NO_LEADERSHIP
        count = int(np.count_nonzero(has_leader))
        if count < len(has_leader):
            rows = np.flatnonzero(has_leader) if rows is None else rows[has_leader]
            _LOG.info("UpdateMetadata leaves out %d partitions without a leader", len(has_leader) - count)
        if log.informs:
            log_update_metadata(log, sorted(self._metadata_brokers), count)
        for version, broker_ids in self._versions(UPDATE_METADATA, self._metadata_brokers).items():
            brokers = plaintext_only(state.live_brokers) if version == 0 else state.live_brokers
            shared_body = update_metadata_body(version, state.topics, state.partitions, brokers, rows)
            request = ControlRequest(
                shared_body, controller_epoch, full=whole, rows=shared_body.rows, full_state=self._source
            )
            if self._channel.has_journal:
                request.state_version = state.changes.version
                request.coverage = coverage_of_rows(state, None if whole else rows)
            if whole or self._sends_differences:
                sent += self._send_known(broker_ids, request, rows, whole)
            else:
                sent += self._channel.send_requests(broker_ids, request, self._on_update_metadata)
            self._metadata_brokers.difference_update(broker_ids)

    def _send_known(
        self, broker_ids: list[int], request: ControlRequest, rows: Int64 | None, whole: bool
    ) -> list[Sent]:
        """Send named rows, and record the metadata that the brokers have after them."""
        state, acknowledged = self._state, self._channel.acknowledged
        request.state_version = state.changes.version
        pushes = []
        for known, group in acknowledged.expected(broker_ids).items():
            if whole:
                after: KnownMetadata | None = known_after_all(state, known)
            else:
                after = known_after_rows(
                    state, known, np.arange(len(state.partitions)) if rows is None else rows
                )
            if after is not None:
                # It contains no removals, so on top of known metadata it repairs no failure before it.
                pushes.append((set(group), acknowledged.push(group, after, full=known is None)))
        sent = self._channel.send_requests(broker_ids, request, self._on_update_metadata)
        for ids, push in pushes:
            push.watch([one for one in sent if one.broker_id in ids])
        return sent

    def _send_differences(self, controller_epoch: int, log: StateChangeLogger, sent: list[Sent]) -> None:
        if not self._changed_brokers:
            return
        for known, broker_ids in self._channel.acknowledged.expected(sorted(self._changed_brokers)).items():
            missing, after = missing_metadata(self._state, known)
            if missing is not None:
                for version, group in self._versions(UPDATE_METADATA, broker_ids).items():
                    sent += self._send_missing(controller_epoch, log, version, group, missing, after)
                    self._changed_brokers.difference_update(group)
            self._changed_brokers.difference_update(broker_ids)

    def _send_missing(
        self,
        controller_epoch: int,
        log: StateChangeLogger,
        version: int,
        broker_ids: list[int],
        missing: MissingMetadata,
        after: KnownMetadata,
    ) -> list[Sent]:
        state, acknowledged = self._state, self._channel.acknowledged
        brokers = plaintext_only(state.live_brokers) if version == 0 else state.live_brokers
        shared_body = update_metadata_body(version, missing.topics, missing.partitions, brokers, missing.rows)
        if log.informs:
            log_update_metadata(log, broker_ids, shared_body.rows)
        request = ControlRequest(
            shared_body,
            controller_epoch,
            full=missing.full,
            rows=shared_body.rows,
            state_version=after.version,
            full_state=self._source,
        )
        if self._channel.has_journal:
            request.coverage = coverage_of_missing(state, missing)
        push = acknowledged.push(broker_ids, after, full=missing.full)
        sent = self._channel.send_requests(broker_ids, request, self._on_update_metadata)
        push.watch(sent)
        return sent

    def _send_stop_replica(self, controller_epoch: int, log: StateChangeLogger, sent: list[Sent]) -> None:
        if not self._stop_replica:
            return
        state = self._state
        for version, broker_ids, selection in self._groups(STOP_REPLICA, self._stop_replica):
            for stops in stop_replicas(state, version, *selection.merge()):
                if log.informs:
                    log_stop_replica(log, state, broker_ids, stops)
                request = ControlRequest(
                    stops.shared_body(version, state),
                    controller_epoch,
                    delete_partitions=bool(stops.deletes),
                    rows=len(stops.partition),
                )
                if self._channel.has_journal:
                    request.state_version = state.changes.version
                    request.coverage = coverage_of_partitions(state, stops.topic_row, stops.partition)
                callback = None
                if self._on_stop_replica is not None and stops.delete.any():
                    callback = DeletionResponses(state, stops, self._on_stop_replica)
                sent += self._channel.send_requests(broker_ids, request, callback)
            _forget(self._stop_replica, broker_ids)

    def _versions(self, api_key: int, broker_ids: Iterable[int]) -> dict[int, list[int]]:
        """Return version -> ascending broker ids."""
        return self._channel.request_versions(sorted(broker_ids), api_key)

    def _groups(
        self, api_key: int, pending: Mapping[int, AnySelection]
    ) -> list[tuple[int, list[int], AnySelection]]:
        """Return (version, ascending broker ids, the selection that all of them have)."""
        groups: dict[tuple[int, Hashable], list[int]] = {}
        for version, broker_ids in self._versions(api_key, pending).items():
            for broker_id in broker_ids:
                groups.setdefault((version, pending[broker_id].fingerprint), []).append(broker_id)
        return [(version, broker_ids, pending[broker_ids[0]]) for (version, _), broker_ids in groups.items()]

    # -- for messages

    def _name(self, row: int) -> str:
        partitions = self._state.partitions
        return f"{self._state.topic_name(int(partitions.topic_row[row]))}-{partitions.partition[row]}"

    def _unsent(self) -> str:
        """Describe the requests that the batch holds; empty when it holds none."""
        if not (
            self._leader_and_isr or self._metadata_brokers or self._changed_brokers or self._stop_replica
        ):
            return ""
        held: list[tuple[int, list[int], Iterable[Selection | EpochSelection]]] = [
            (LEADER_AND_ISR, sorted(self._leader_and_isr), self._leader_and_isr.values()),
            (UPDATE_METADATA, sorted(self._metadata_brokers | self._changed_brokers), [self._metadata]),
            (STOP_REPLICA, sorted(self._stop_replica), self._stop_replica.values()),
        ]
        total = len(self._state.partitions)
        return "; ".join(
            f"{API_NAMES[api_key]} of {_count(selections, total)} partitions to {_brokers(broker_ids)}"
            for api_key, broker_ids, selections in held
            if broker_ids
        )


def _not_negative(broker_ids: Iterable[int]) -> list[int]:
    return [int(broker_id) for broker_id in broker_ids if broker_id >= 0]


def _is_empty(rows: int | Int64 | None) -> bool:
    return isinstance(rows, np.ndarray) and not len(rows)


def _at(column: Int32, rows: Int64 | None) -> Int32:
    return column if rows is None else column[rows]


def _forget(pending: dict[int, AnySelection], broker_ids: Iterable[int]) -> None:
    for broker_id in broker_ids:
        del pending[broker_id]


def _count(selections: Iterable[Selection | EpochSelection], total: int) -> int:
    """Return how many partitions the selections have together, out of ``total``."""
    chosen = [selection.rows() for selection in selections]
    named = [rows for rows in chosen if rows is not None]
    if len(named) < len(chosen):
        return total
    return len(np.unique(np.concatenate(named))) if named else 0


def _brokers(broker_ids: Sequence[int]) -> str:
    named = ", ".join(map(str, broker_ids[:_NAMED_BROKERS]))
    more = len(broker_ids) - _NAMED_BROKERS
    return f"brokers {named} and {more} more" if more > 0 else f"brokers {named}"


def _without_recovery_state(partitions: Partitions) -> Partitions:
    if not partitions.recovery_state.any():
        return partitions
    columns = {name: getattr(partitions, name) for name in (*FIXED_COLUMNS, *LIST_COLUMNS)}
    return Partitions(**columns | {"recovery_state": np.zeros(len(partitions), dtype=np.int32)})
