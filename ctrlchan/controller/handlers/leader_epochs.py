"""Increments leader epochs without changing leader or ISR."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.machines.leadership import read_back, write_leadership
from ctrlchan.controller.machines.log_texts import ListedPartitions
from ctrlchan.errors import ResultCode
from ctrlchan.state.lists import take

__all__ = ["increment_leader_epochs"]

Bool: TypeAlias = npt.NDArray[np.bool_]
Int64: TypeAlias = npt.NDArray[np.int64]


def increment_leader_epochs(core: ControllerCore, rows: Int64) -> Bool:
    """Write the state of each row with the next leader epoch; return a flag for each: whether it was written.

    A leader has one list of replicas for each leader epoch, so a new assignment needs the next one. A state
    that a broker has changed meanwhile is read and written again. Rows without a state node, or with one of a
    later controller, fail, which is logged. Raises ControllerMovedError, ZooKeeperError.
    Source: ``kafka.controller.KafkaController.updateLeaderEpoch`` (Kafka 3.9).
    """
    context = core.context
    core.log.debug("Updating leader epoch for partition %s", ListedPartitions(context, rows))
    done = np.zeros(len(rows), bool)
    pending = np.arange(len(rows))
    stale = pending[~context.has_leadership(rows)]
    while len(pending):
        if len(stale):
            found = read_back(context, core.nodes, rows[stale])
            _log_failed(core, rows[stale[found.missing]], "it has no valid state node")
            _log_failed(core, rows[stale[found.later]], "a later controller wrote its state")
            pending = np.setdiff1d(pending, stale[found.missing | found.later])
        chosen, partitions = rows[pending], core.state.partitions
        errors = write_leadership(
            context,
            core.nodes,
            chosen,
            leader=partitions.leader[chosen],
            leader_epoch=partitions.leader_epoch[chosen] + np.int32(1),
            recovery_state=partitions.recovery_state[chosen],
            isr=take(partitions.isr, chosen),
        )
        done[pending[errors == ResultCode.OK]] = True
        for code in np.setdiff1d(errors, [ResultCode.OK, ResultCode.BAD_VERSION]).tolist():
            _log_failed(core, chosen[errors == code], f"error {code} of ZooKeeper")
        pending = stale = pending[errors == ResultCode.BAD_VERSION]
    _log_written(core, rows[done])
    return done


def _log_written(core: ControllerCore, rows: Int64) -> None:
    if len(rows):
        partitions = core.state.partitions
        written = ListedPartitions(
            core.context,
            rows,
            lambda place: (
                f" to {partitions.leader_epoch[rows[place]]}, "
                f"zkVersion={partitions.partition_epoch[rows[place]]}"
            ),
        )
        core.log.info("Updated leader epoch for partition %s", written)


def _log_failed(core: ControllerCore, rows: Int64, reason: str) -> None:
    for row in rows.tolist():
        core.log.error(
            "the leader epoch of %s is not incremented: %s", core.context.partition_name(row), reason
        )
