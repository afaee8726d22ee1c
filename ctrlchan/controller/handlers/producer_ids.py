"""Allocates blocks of producer ids to brokers (AllocateProducerIds).

Source: ``kafka.controller.KafkaController.processAllocateProducerIds`` and
``kafka.coordinator.transaction.ZkProducerIdManager`` (Kafka 3.9).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ctrlchan.controller.core import ControllerCore
from ctrlchan.errors import ErrorCode, ZooKeeperError

__all__ = ["BLOCK_SIZE", "Allocation", "allocate", "next_block"]

#: Producer ids in a block (``ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE``).
BLOCK_SIZE: Final = 1_000
#: The highest producer id: an int64.
_MAX_ID: Final = 2**63 - 1


class Allocation(NamedTuple):
    """The answer to AllocateProducerIds. ``first`` and ``length`` are 0 where ``error`` is not."""

    error: int
    first: int = 0
    length: int = 0


def allocate(core: ControllerCore, broker_id: int, broker_epoch: int) -> Allocation:
    """Write the next block of 1,000 producer ids to ZooKeeper and return it.

    Errors: 102 for a broker that is not live, 77 for another broker epoch, -1 when the int64 ids are used up
    the node is malformed, or ZooKeeper
    does not answer. Raises ControllerMovedError.
    """
    try:
        epoch: int | None = core.state.broker(broker_id).epoch
    except KeyError:
        epoch = None
    if epoch is None:
        core.log.warning("AllocateProducerIds of broker %d is refused: the broker is not live", broker_id)
        return Allocation(ErrorCode.BROKER_ID_NOT_REGISTERED)
    if epoch != broker_epoch:
        core.log.warning(
            "AllocateProducerIds of broker %d is refused: its broker epoch is %d, not %d",
            broker_id, epoch, broker_epoch,
        )  # fmt: skip
        return Allocation(ErrorCode.STALE_BROKER_EPOCH)
    try:
        return next_block(core, broker_id)
    except ZooKeeperError as error:
        core.log.error("AllocateProducerIds of broker %d: %s", broker_id, error)
        return Allocation(ErrorCode.UNKNOWN_SERVER_ERROR)


def next_block(core: ControllerCore, broker_id: int) -> Allocation:
    """Do the same for any broker id, such as the controller's own. Raises ZooKeeperError too."""
    while True:
        block = core.nodes.read_producer_id_block()
        first = 0 if block is None else block.last + 1
        if first > _MAX_ID - BLOCK_SIZE:
            core.log.critical("all producer ids are used: the last block ends at %d", first - 1)
            return Allocation(ErrorCode.UNKNOWN_SERVER_ERROR)
        # Brokers below IBP 3.0 write the node themselves; the write is refused when one was faster.
        version = None if block is None else block.version
        if core.nodes.write_producer_id_block(broker_id, first, first + BLOCK_SIZE - 1, version):
            core.log.info("broker %d gets the producer ids from %d on", broker_id, first)
            return Allocation(ErrorCode.NONE, first, BLOCK_SIZE)
