"""Asks the controller for the ISRs that leaders of this broker want, and applies its answers.

Source: ``AlterPartitionManager`` and ``Partition.submitAlterPartition`` (Kafka 3.9).
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Final, Protocol

from ctrlchan.broker.metadata.hosted_replicas import HostedReplicas
from ctrlchan.broker.replica._partitions import Partition, WantedIsr
from ctrlchan.broker.replica.isr_changes import AlteredPartition, IsrChange
from ctrlchan.errors import ErrorCode
from ctrlchan.log_context import ContextLogger

__all__ = ["IsrController", "IsrUpdates"]

_LOG: Final = logging.getLogger("ctrlchan.broker")

#: Answers of the controller after which the ISR stays as it is.
_NOT_CHANGED: Final = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA)


class IsrController(Protocol):
    """The part of the controller's client that ISRs need."""

    def alter_partition(self, change: IsrChange) -> Future[AlteredPartition]: ...


class IsrUpdates:
    """Gives partitions the ISRs that the controller accepts. ``lock`` guards ``replicas``."""

    def __init__(
        self,
        controller: IsrController,
        replicas: HostedReplicas,
        lock: AbstractContextManager[object],
    ) -> None:
        self._controller = controller
        self._replicas = replicas
        self._lock = lock
        self._counting = threading.Lock()
        #: ISRs that the controller has accepted with fewer and with more replicas; those that it has refused.
        self.shrinks = self.expands = self.failures = 0

    def ask(self, partition: Partition, wanted: WantedIsr) -> None:
        """Ask the controller for another ISR of a partition that this broker leads."""
        log = ContextLogger(_LOG, partition.log_context)
        log.info("ISR %s is wanted, after %s", list(wanted.isr), list(partition.isr))
        change = IsrChange(
            partition.topic,
            partition.topic_id,
            partition.partition,
            wanted.leader_epoch,
            wanted.partition_epoch,
            tuple(wanted.isr),
        )
        answer = self._controller.alter_partition(change)
        answer.add_done_callback(lambda done: self._altered(partition, wanted, done))

    def _altered(self, partition: Partition, wanted: WantedIsr, done: Future[AlteredPartition]) -> None:
        """Apply the controller's answer to a wanted ISR."""
        if done.cancelled() or done.exception() is not None:
            partition.keep_isr(wanted.leader_epoch, wanted.partition_epoch)
            self._count("failures")
            return
        altered = done.result()
        if altered.error in _NOT_CHANGED:
            partition.keep_isr(wanted.leader_epoch, wanted.partition_epoch)
        if altered.error:
            self._count("failures")
            # After any other error the next LeaderAndIsr has the valid ISR.
            log = ContextLogger(_LOG, partition.log_context)
            log.info("the controller answers %s to the wanted ISR", ErrorCode.name_of(altered.error))
            return
        self._count("shrinks" if len(altered.isr) < len(partition.isr) else "expands")
        partition.set_isr(tuple(altered.isr), altered.partition_epoch, altered.leader_epoch)
        with self._lock:
            try:
                self._replicas.raise_partition_epoch(
                    partition.topic, partition.partition, altered.leader_epoch, altered.partition_epoch
                )
            except KeyError:
                return  # deleted in between

    def _count(self, name: str) -> None:
        # Answers come on several threads.
        with self._counting:
            setattr(self, name, getattr(self, name) + 1)
