"""Failed log directories: the notifications of brokers, and the answers to LeaderAndIsr.

Source: ``KafkaController.processLogDirEventNotification`` and ``processLeaderAndIsrResponseReceived``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ControlResponse
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.handlers.broker_changes import on_replicas_become_offline
from ctrlchan.controller.machines.context import ControllerContext
from ctrlchan.controller.machines.lookups import (
    failed_rows,
    find_rows,
    topic_rows_of_names,
)
from ctrlchan.controller.machines.states import ReplicaState
from ctrlchan.errors import ErrorCode
from ctrlchan.protocol import LEADER_AND_ISR_IDS_SINCE
from ctrlchan.state.topic_table import name_list
from ctrlchan.zookeeper import paths

__all__ = ["process_leader_and_isr_response", "process_notifications"]

Int64 = npt.NDArray[np.int64]


def process_notifications(core: ControllerCore) -> None:
    """Send LeaderAndIsr with all their rows to brokers with failed directories: their answers name these."""
    names = core.watches.children(paths.LOG_DIR_EVENT_NOTIFICATIONS)
    if not names:
        return
    try:
        broker_ids, malformed = core.nodes.read_log_dir_event_notifications(names)
        core.note_malformed(paths.LOG_DIR_EVENT_NOTIFICATIONS, malformed)
        core.log.info("Handling log directory failure for brokers %s", sorted(broker_ids))
        rows, brokers = core.context.replicas_on(broker_ids)
        core.replica_states.handle_state_changes(rows, brokers, ReplicaState.ONLINE)
    finally:
        core.nodes.delete_log_dir_event_notifications(names)


def process_leader_and_isr_response(
    core: ControllerCore, broker_id: int, response: ControlResponse | None, count: int
) -> None:
    """Take over which replicas of the broker are in failed directories; newly failed ones go offline.

    ``response``: None when all ``count`` partitions were acknowledged. Error 56 adds a replica to the failed
    ones, 0 removes it, and other errors say nothing. An unchanged set changes no row. Different on purpose:
    partitions without a leader get one as soon as a replica is back. A broker of Kafka starts again for that.
    """
    if broker_id not in core.state.online_broker_ids:
        return
    if response is None:
        if broker_id not in core.failed_dirs:
            return
        # Which partitions is not kept; a request with so many has named all.
        acknowledges_all = count >= len(core.context.rows_with_replica_on([broker_id]))
        before = failed_rows(core.state, broker_id)
        after = before[:0] if acknowledges_all else before
    elif response.error_code != ErrorCode.NONE:
        return
    else:
        codes = response.partition_error
        failed = codes == ErrorCode.KAFKA_STORAGE_ERROR
        before = failed_rows(core.state, broker_id)
        if not len(before) and not failed.any():
            return
        rows = _rows_of(core.context, response)
        after = np.union1d(
            np.setdiff1d(before, rows[(codes == ErrorCode.NONE) & (rows >= 0)]), rows[failed & (rows >= 0)]
        )
        after = np.intersect1d(after, core.context.rows_with_replica_on([broker_id]))
    _take(core, broker_id, before, after)


def _take(core: ControllerCore, broker_id: int, before: Int64, after: Int64) -> None:
    """Act on other rows whose replica on this broker is in a failed directory."""
    new, back = np.setdiff1d(after, before), np.setdiff1d(before, after)
    if not len(new) and not len(back):
        return
    core.state.set_offline_dirs(broker_id, after)
    core.failed_dirs.add(broker_id)
    if len(new):
        core.log.warning("%d replicas on broker %d are in failed log directories", len(new), broker_id)
        core.state_changes.replicas_offline(new, broker_id)
        on_replicas_become_offline(core, new, np.full(len(new), broker_id, np.int32))
    if len(back):
        core.log.info("%d replicas on broker %d are in failed log directories no more", len(back), broker_id)
        core.partition_states.trigger_online(back)
        # Leaders that were elected since the broker was asked are not known there.
        brokers = np.full(len(back), broker_id, np.int32)
        core.replica_states.handle_state_changes(back, brokers, ReplicaState.ONLINE)


def _rows_of(context: ControllerContext, response: ControlResponse) -> Int64:
    """Return the state's row of each partition of the response, -1 where there is none."""
    if response.version >= LEADER_AND_ISR_IDS_SINCE:
        topic_rows = context.topic_rows_of_ids(one.tobytes() for one in response.topics.ids)
    else:
        topic_rows = topic_rows_of_names(context.state, name_list(response.topics.names))
    return find_rows(context.state, np.repeat(topic_rows, np.diff(response.topic_starts)), response.partition)
