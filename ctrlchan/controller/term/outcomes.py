"""What the controller does with the outcomes of its requests. The channel's callbacks only put events.

Source: ``KafkaController.processLeaderAndIsrResponseReceived``, ``processUpdateMetadataResponseReceived``,
``processTopicDeletionStopReplicaResponseReceived``. Different on purpose: a request that ends without a
response is acted on too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from ctrlchan.channel import Outcome, OutcomeKind
from ctrlchan.channel.observability.log_lines import response_text
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.handlers.broker_changes import add_again
from ctrlchan.controller.handlers.log_dirs import process_leader_and_isr_response
from ctrlchan.controller.machines.log_texts import Listed
from ctrlchan.errors import ErrorCode

__all__ = ["OutcomeHandlers"]


class OutcomeHandlers:
    """The callbacks of a batch. They run on the channel's thread and put events for the term of ``core``.

    ``fenced``: called with the core, on the loop's thread, when a broker knows a higher controller epoch.
    """

    def __init__(self, fenced: Callable[[ControllerCore], object]) -> None:
        self._fenced = fenced
        # The batch is made before the core that it is a part of.
        self._core: ControllerCore | None = None

    def attach(self, core: ControllerCore) -> None:
        """Put events for this core from now on."""
        self._core = core

    def leader_and_isr(self, outcome: Outcome) -> None:
        """Put an event with the outcome of a LeaderAndIsr."""
        core = self._core
        if core is None or not core.active:
            return
        if outcome.kind in (OutcomeKind.ACKNOWLEDGED, OutcomeKind.PARTITION_ERRORS):
            broker_id, response, count = outcome.broker_id, outcome.response, outcome.rows
            core.enqueue(
                ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED,
                "LeaderAndIsrResponseReceived",
                lambda core: process_leader_and_isr_response(core, broker_id, response, count),
            )
        else:
            self._failed(core, outcome, "LeaderAndIsr")

    def update_metadata(self, outcome: Outcome) -> None:
        """Put an event with an UpdateMetadata that was not acknowledged."""
        core = self._core
        if core is not None and core.active and outcome.kind is not OutcomeKind.ACKNOWLEDGED:
            self._failed(core, outcome, "UpdateMetadata")

    def stop_replica(self, broker_id: int, error_code: int, errors: Mapping[tuple[str, int], int]) -> None:
        """Put an event with the errors of replicas that were to be deleted."""
        core = self._core
        if core is not None and core.active:
            core.enqueue(
                ControllerState.TOPIC_DELETION,
                "TopicDeletionStopReplicaResponseReceived",
                lambda core: _process_deletions(core, broker_id, error_code, errors),
            )

    def _failed(self, core: ControllerCore, outcome: Outcome, name: str) -> None:
        kind, broker_id, code = outcome.kind, outcome.broker_id, outcome.error_code
        if kind is OutcomeKind.FENCED and code == ErrorCode.STALE_CONTROLLER_EPOCH:

            def fenced(core: ControllerCore) -> None:
                _log_error(core, outcome, name)
                self._fenced(core)

            core.enqueue(ControllerState.CONTROLLER_CHANGE, "StaleControllerEpoch", fenced)
            return
        detail = outcome.detail or ErrorCode.name_of(code)

        def process(core: ControllerCore) -> None:
            _log_error(core, outcome, name)
            # What still waited for a broker that has died is no failure.
            gone = kind is OutcomeKind.BROKER_GONE and broker_id not in core.state.broker_ids
            level = logging.INFO if gone else logging.ERROR
            core.log.log(level, "%s to broker %d ended as %s: %s", name, broker_id, kind.value, detail)
            if kind is OutcomeKind.BROKER_GONE:
                add_again(core, broker_id)

        core.enqueue(ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED, f"{name}Failed", process)


def _log_error(core: ControllerCore, outcome: Outcome, name: str) -> None:
    """Log an error of the whole response in the state-change log, as Kafka."""
    response = outcome.response
    if response is not None and response.error_code:
        core.state_changes.error_response(
            name, response.error_code, response_text(response), outcome.broker_id
        )


def _process_deletions(
    core: ControllerCore, broker_id: int, error_code: int, errors: Mapping[tuple[str, int], int]
) -> None:
    core.log.debug(
        "Delete topic callback invoked on StopReplica response received from broker %d: request error = %s, "
        "partition errors = %s",
        broker_id,
        error_code,
        Listed(list(errors.items())),
    )
    core.deletion.stop_replica_response(broker_id, error_code, errors)
    if error_code == ErrorCode.BROKER_NOT_AVAILABLE:
        add_again(core, broker_id)
