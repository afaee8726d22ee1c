"""Lines of the state-change log about changed states, in Kafka's words, so that Kafka's tools read them.

INFO for each partition that got a leader, TRACE for each other change, ERROR for each failed one. Source:
``kafka.controller.ZkPartitionStateMachine``, ``kafka.controller.ZkReplicaStateMachine`` (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn
from ctrlchan.controller.machines.context import ControllerContext
from ctrlchan.controller.machines.states import PartitionState, ReplicaState, previous_states
from ctrlchan.errors import ErrorCode, IllegalStateError, ResultCode, StateChangeFailedError
from ctrlchan.state.rows import distinct
from ctrlchan.state_change_log import StateChangeLogger

__all__ = ["Reason", "StateChangeLines", "later_controller", "no_state_node", "refusals"]

Bool = npt.NDArray[np.bool_]
Int8 = npt.NDArray[np.int8]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

#: Why a change failed: an error that stopped it, or a function: partition name, row -> text.
Reason: TypeAlias = Exception | Callable[[str, int], str]

_RECOVERY_STATES = ("RECOVERED", "RECOVERING")


class StateChangeLines:
    """Writes the lines of one controller term. Nothing is formatted when its level is off."""

    def __init__(self, context: ControllerContext, log: StateChangeLogger, controller_id: int) -> None:
        self._context = context
        self._log = log
        self._controller = f"Controller {controller_id} epoch {context.epoch}"
        # Kafka's lines about errors of responses name no epoch.
        self._without_epoch = StateChangeLogger(controller_id, None)

    # -- partitions

    def partitions_new(self, rows: Int64) -> None:
        """Log new partitions, before their state changes."""
        if not self._log.informs:
            return
        replicas = self._context.state.partitions.replicas
        for name, row, state in self._partitions(rows):
            assigned = ",".join(map(str, replicas[row].tolist()))
            self._log.info(
                f"Changed partition {name} state from {state.kafka_name} to "
                f"{PartitionState.NEW.kafka_name} with assigned replicas {assigned}"
            )

    def partitions_online(self, rows: Int64) -> None:
        """Log partitions with a new leader, before their state changes."""
        if not self._log.informs:
            return
        for name, row, state in self._partitions(rows):
            self._log.info(
                f"Changed partition {name} from {state.kafka_name} to {PartitionState.ONLINE.kafka_name} "
                f"with state {self._leader_and_isr(row)}"
            )

    def partitions_changed(self, rows: Int64, target: PartitionState) -> None:
        """Log partitions that go to ``target``, before their state changes."""
        if not self._log.traces:
            return
        for name, _, state in self._partitions(rows):
            self._log.trace(f"Changed partition {name} state from {state.kafka_name} to {target.kafka_name}")

    def partitions_invalid(self, rows: Int64, target: PartitionState) -> None:
        """Log partitions whose state does not allow the change."""
        for name, _, state in self._partitions(rows):
            self._partition_failed(
                name, state, target, _invalid(f"Partition {name} should be in one of", "", target, state)
            )

    def partitions_failed(self, rows: Int64, target: PartitionState, reason: Reason) -> None:
        """Log partitions whose change to ``target`` failed."""
        for name, row, state in self._partitions(rows):
            self._partition_failed(name, state, target, _error(reason, name, row))

    # -- replicas

    def replicas_changed(self, rows: Int64, brokers: Int32, states: Int8, target: ReplicaState) -> None:
        """Log replicas that went from ``states`` to ``target``."""
        if not self._log.traces:
            return
        for name, _, broker, state in self._replicas(rows, brokers, states):
            self._log.trace(
                f"Changed state of replica {broker} for partition {name} "
                f"from {state.kafka_name} to {target.kafka_name}"
            )

    def replicas_invalid(self, rows: Int64, brokers: Int32, states: Int8, target: ReplicaState) -> None:
        """Log replicas whose state does not allow the change."""
        for name, _, broker, state in self._replicas(rows, brokers, states):
            topic, _, number = name.rpartition("-")
            replica = f"Replica [Topic={topic},Partition={number},Replica={broker}] should be in the"
            self._replica_failed(name, broker, state, target, _invalid(replica, " states", target, state))

    def replicas_failed(
        self, rows: Int64, brokers: Int32, states: Int8, target: ReplicaState, reason: Reason
    ) -> None:
        """Log replicas whose change to ``target`` failed."""
        for name, row, broker, state in self._replicas(rows, brokers, states):
            self._replica_failed(name, broker, state, target, _error(reason, name, row))

    def isr_changed(self, rows: Int64, brokers: Int32) -> None:
        """Log partitions that have the state without this broker in the ISR."""
        if not self._log.informs:
            return
        for row, broker in zip(rows.tolist(), brokers.tolist(), strict=True):
            self._log.info(
                f"Partition {self._context.partition_name(row)} state changed to {self._leadership(row)} "
                f"after removing replica {broker} from the ISR as part of transition to "
                f"{ReplicaState.OFFLINE.kafka_name}"
            )

    # -- reassignments, failed log directories, responses

    def reassignments_sent(self, rows: Int64) -> None:
        """Log partitions whose replicas got a new assignment."""
        if not self._log.informs:
            return
        partitions = self._context.state.partitions
        for row in rows.tolist():
            self._log.info(
                f"Sent LeaderAndIsr request {self._leadership(row)} with new replica assignment "
                f"{self._assignment(row)} to leader {partitions.leader[row]} for partition being reassigned "
                f"{self._context.partition_name(row)}"
            )

    def reassignments_failed(self, rows: Int64) -> None:
        """Log partitions whose new assignment could not be sent."""
        for row in rows.tolist():
            self._log.error(
                f"Failed to send LeaderAndIsr request with new replica assignment {self._assignment(row)} "
                f"to leader for partition being reassigned {self._context.partition_name(row)}"
            )

    def replicas_offline(self, rows: Int64, broker_id: int) -> None:
        """Log partitions whose replica on a broker is in a failed log directory now."""
        if self._log.informs:
            names = ",".join(self._context.partition_name(row) for row in rows.tolist())
            self._without_epoch.info(f"Mark replicas {names} on broker {broker_id} as offline")

    def error_response(self, api: str, error_code: int, response: str, broker_id: int) -> None:
        """Log the error of a whole response."""
        self._without_epoch.error(
            f"Received error {ErrorCode.name_of(error_code)} in {api} response {response} "
            f"from broker {broker_id}"
        )

    # -- helpers

    def _partitions(self, rows: Int64) -> Iterator[tuple[str, int, PartitionState]]:
        states = self._context.partition_states[rows]
        for row, state in zip(rows.tolist(), states.tolist(), strict=True):
            yield self._context.partition_name(row), row, PartitionState(state)

    def _replicas(
        self, rows: Int64, brokers: Int32, states: Int8
    ) -> Iterator[tuple[str, int, int, ReplicaState]]:
        for row, broker, state in zip(rows.tolist(), brokers.tolist(), states.tolist(), strict=True):
            yield self._context.partition_name(row), row, broker, ReplicaState(state)

    def _partition_failed(
        self, name: str, state: PartitionState, target: PartitionState, error: Exception
    ) -> None:
        self._log.error(
            f"{self._controller} failed to change state for partition {name} "
            f"from {state.kafka_name} to {target.kafka_name}",
            error,
        )

    def _replica_failed(
        self, name: str, broker: int, state: ReplicaState, target: ReplicaState, error: Exception
    ) -> None:
        self._log.error(
            f"{self._controller} initiated state change of replica {broker} for partition {name} "
            f"from {state.kafka_name} to {target.kafka_name} failed",
            error,
        )

    def _leadership(self, row: int) -> str:
        """Return the leadership as Kafka's LeaderIsrAndControllerEpoch prints itself."""
        partitions = self._context.state.partitions
        return (
            f"(Leader:{partitions.leader[row]},ISR:{_joined(partitions.isr, row)},"
            f"LeaderRecoveryState:{_RECOVERY_STATES[partitions.recovery_state[row]]},"
            f"LeaderEpoch:{partitions.leader_epoch[row]},ZkVersion:{partitions.partition_epoch[row]},"
            f"ControllerEpoch:{partitions.controller_epoch[row]})"
        )

    def _assignment(self, row: int) -> str:
        partitions = self._context.state.partitions
        return (
            f"ReplicaAssignment(replicas={_joined(partitions.replicas, row)}, "
            f"addingReplicas={_joined(partitions.adding, row)}, "
            f"removingReplicas={_joined(partitions.removing, row)})"
        )

    def _leader_and_isr(self, row: int) -> str:
        partitions = self._context.state.partitions
        isr = ", ".join(
            f"BrokerState(brokerId={one}, brokerEpoch=-1)" for one in partitions.isr[row].tolist()
        )
        return (
            f"LeaderAndIsr(leader={partitions.leader[row]}, leaderEpoch={partitions.leader_epoch[row]}, "
            f"isrWithBrokerEpoch=List({isr}), "
            f"leaderRecoveryState={_RECOVERY_STATES[partitions.recovery_state[row]]}, "
            f"partitionEpoch={partitions.partition_epoch[row]})"
        )


def _joined(lists: ListColumn | None, row: int) -> str:
    return "" if lists is None else ",".join(map(str, lists[row].tolist()))


def refusals(
    verb: str, error: Int32, expected: Collection[int] = (ResultCode.OK,)
) -> Iterator[tuple[Bool, Reason]]:
    """Yield (flags of ``error``, reason) for each code of ZooKeeper that is not expected.

    ``verb``: what the state nodes could not be, "created" or "written".
    """
    for code in distinct(error.astype(np.int64)).tolist():
        if code not in expected:
            yield error == code, _refused(verb, code)


def _refused(verb: str, code: int) -> Reason:
    return lambda name, row: f"the state node of {name} could not be {verb}: {ResultCode.name_of(code)}"


def no_state_node(name: str, row: int) -> str:
    """Return the reason of a change without state node."""
    return f"the state node of {name} does not exist or is malformed"


def later_controller(name: str, row: int) -> str:
    """Return the reason of a change that a later controller has overtaken."""
    return f"the state node of {name} was written by a controller of a later epoch"


def _error(reason: Reason, name: str, row: int) -> Exception:
    return reason if isinstance(reason, Exception) else StateChangeFailedError(reason(name, row))


def _invalid(
    subject: str, noun: str, target: PartitionState | ReplicaState, state: PartitionState | ReplicaState
) -> IllegalStateError:
    allowed = ",".join(one.kafka_name for one in previous_states(target))
    return IllegalStateError(
        f"{subject} {allowed}{noun} before moving to {target.kafka_name} state; "
        f"instead it is in {state.kafka_name} state"
    )
