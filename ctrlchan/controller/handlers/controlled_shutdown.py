"""ControlledShutdown: leaders move away from a broker before it stops.

Source: ``KafkaController.doControlledShutdown`` (Kafka 3.9).
"""

from __future__ import annotations

import numpy as np

from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.machines.leader_election import Strategy
from ctrlchan.controller.machines.log_texts import Listed
from ctrlchan.controller.machines.lookups import partition_pairs
from ctrlchan.controller.machines.states import PartitionState, ReplicaState
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.protocol import NO_BROKER_EPOCH

__all__ = ["controlled_shutdown"]


def controlled_shutdown(
    core: ControllerCore, broker_id: int, broker_epoch: int | None
) -> list[tuple[str, int]]:
    """Move leaders away from a broker, stop its followers, and return the (topic, partition) it still leads.

    Only partitions with more than one replica count, without those of topics queued for deletion.
    ``broker_epoch``: None or -1 from brokers that do not send it. Raises KafkaError: STALE_BROKER_EPOCH for
    an older registration, BROKER_NOT_AVAILABLE for a broker that is not live.
    """
    state, context = core.state, core.context
    try:
        current = int(state.brokers.epochs[state.broker_row(broker_id)])
    except KeyError:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker id {broker_id} does not exist.") from None
    if broker_epoch is not None and broker_epoch != NO_BROKER_EPOCH and broker_epoch < current:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Received controlled shutdown request from an old broker epoch {broker_epoch} for broker "
            f"{broker_id}. Current broker epoch is {current}.",
        )
    core.log.info("Shutting down broker %d", broker_id)
    state.set_shutting_down(state.shutting_down | {broker_id})
    core.log.debug("All shutting down brokers: %s", Listed(sorted(state.shutting_down)))
    core.log.debug("Live brokers: %s", Listed(state.online_broker_ids.tolist()))
    rows = context.rows_with_replica_on([broker_id])
    rows = rows[
        (state.partitions.replicas.lengths[rows] > 1)
        & context.has_leadership(rows)
        & ~context.is_to_delete(rows)
    ]
    led = state.partitions.leader[rows] == broker_id
    core.partition_states.handle_state_changes(rows[led], PartitionState.ONLINE, Strategy.CONTROLLED_SHUTDOWN)
    followed = rows[~led]
    core.batch.new_batch()
    core.batch.add_stop_replica([broker_id], followed, delete=False)
    core.batch.send_requests_to_brokers(core.epoch)
    core.replica_states.handle_state_changes(
        followed, np.full(len(followed), broker_id, np.int32), ReplicaState.OFFLINE
    )
    return partition_pairs(state, context.rows_led_by(broker_id))
