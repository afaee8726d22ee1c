"""The partitions of ``__transaction_state`` that this broker leads, with their transactional ids."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final, Self, TypeVar

from ctrlchan.broker.coordinator.common.leader_epochs import LeaderEpochs
from ctrlchan.broker.coordinator.common.timing_wheel import Timer
from ctrlchan.broker.coordinator.transaction.gates import Decision, Gate
from ctrlchan.broker.coordinator.transaction.ids import TransactionalIds
from ctrlchan.broker.coordinator.transaction.transaction import Transaction
from ctrlchan.errors import ErrorCode
from ctrlchan.internal_topics import coordinator_partition
from ctrlchan.log_context import ContextLogger

__all__ = ["StatePartition", "TransactionRegistry"]

_Result = TypeVar("_Result")

#: Transactional ids whose partition is remembered: the hash of a long id takes longer than the rest.
_REMEMBERED: Final = 2**14


class StatePartition:
    """A partition of ``__transaction_state``, during one leadership of this broker.

    ``with partition:`` locks it, for all its transactional ids; the lock is reentrant. What was given to
    ``after`` is called when the outermost ``with`` is left, without the lock. All attributes require it.
    It also closes the ``gate`` for processors, if there is one; `take_over` gets what they have decided.

    ``epoch``: the leader epoch. ``is_active``: loaded, and still led. ``transactions``: the transactional
    ids. ``idle``: those that may expire, the one without a change for the longest time first, and
    ``expiration`` the timer for them, if there is one.
    """

    def __init__(
        self,
        number: int,
        epoch: int,
        take_over: Callable[[StatePartition, Decision], None],
        log: ContextLogger,
    ) -> None:
        self._log = log
        self.number = number
        self.epoch = epoch
        self.gate: Gate | None = None
        self._take_over = take_over
        self.is_active = False
        self.transactions = TransactionalIds()
        self.idle: dict[str, None] = {}
        self.expiration: Timer | None = None
        self._lock = threading.RLock()
        self._depth = 0
        self._after: list[Callable[[], object]] = []

    def after(self, callback: Callable[[_Result], object], result: _Result) -> None:
        """Call `callback` with the result when the lock is released."""
        self._after.append(partial(callback, result))

    def holds(self, transaction: Transaction) -> bool:
        """Whether this broker coordinates the transaction still, and it is no earlier one of its id."""
        return self.is_active and self.transactions.find(transaction.transactional_id) is transaction

    def __enter__(self) -> Self:
        self._lock.acquire()
        self._depth += 1
        if self._depth == 1 and self.gate is not None:
            for decision in self.gate.enter():
                try:
                    self._take_over(self, decision)
                except Exception:  # noqa: BLE001 - who wants the lock has not made the decision
                    self._log.exception(
                        "partition %d of the transactions' topic: a decision is not taken over", self.number
                    )
        return self

    def settle(self) -> None:
        """Take over what processors have decided."""
        with self:
            pass

    def __exit__(self, *exception: object) -> None:
        calls: list[Callable[[], object]] = []
        self._depth -= 1
        if not self._depth:
            if self._after:
                calls, self._after = self._after, []
            if self.gate is not None:
                self.gate.leave()
        self._lock.release()
        for call in calls:
            try:
                call()
            except Exception:  # noqa: BLE001 - the other calls are made
                self._log.exception("partition %d of the transactions' topic: a callback failed", self.number)


class TransactionRegistry:
    """Which partitions of ``__transaction_state`` are led or being loaded. Any thread may call every method.

    Its own lock is taken last: that of no partition is taken while holding it. ``count``: how many partitions
    the topic has. `make` returns a StatePartition for a number and an epoch.
    """

    def __init__(self, count: int, make: Callable[[int, int], StatePartition]) -> None:
        self.count = count
        self._make = make
        self._lock = threading.Lock()
        self._partitions: dict[int, StatePartition] = {}
        self._loading: set[int] = set()
        self._epochs = LeaderEpochs()

    def partition_for(self, transactional_id: str) -> int:
        """Return the number of the partition that holds the transactional id."""
        return _partition_of(transactional_id, self.count)

    def find(self, transactional_id: str) -> StatePartition | ErrorCode:
        """Return the id's partition; NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS if it is not served."""
        number = self.partition_for(transactional_id)
        with self._lock:
            if number in self._loading:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return self._partitions.get(number, ErrorCode.NOT_COORDINATOR)

    def error_of(self, number: int) -> ErrorCode:
        """Return why a partition that this broker has led is not served now."""
        with self._lock:
            if number in self._loading:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return ErrorCode.NOT_COORDINATOR

    def served(self) -> list[StatePartition]:
        """Return the partitions that are led and loaded."""
        with self._lock:
            return [each for number, each in self._partitions.items() if number not in self._loading]

    def numbers(self) -> list[int]:
        """Return the partitions that are led, loaded or not."""
        with self._lock:
            return list(self._partitions)

    @property
    def loading(self) -> bool:
        """Whether a partition is being loaded."""
        with self._lock:
            return bool(self._loading)

    def begin_loading(self, number: int, epoch: int) -> tuple[StatePartition, StatePartition | None] | None:
        """Note that a partition is being loaded; return it, and what it had in an earlier epoch.

        None: it is or was loaded in this epoch, or the epoch is old.
        """
        with self._lock:
            earlier = self._partitions.get(number)
            if not self._epochs.is_current(number, epoch) or (earlier is not None and earlier.epoch >= epoch):
                return None
            self._loading.add(number)
            partition = self._partitions[number] = self._make(number, epoch)
            return partition, earlier

    def is_loading(self, partition: StatePartition) -> bool:
        """Whether the partition is being loaded, and was not taken away since that began."""
        with self._lock:
            return partition.number in self._loading and self._partitions.get(partition.number) is partition

    def end_loading(self, partition: StatePartition) -> bool:
        """Note that the partition is loaded; return False if it was taken away. Requires its lock."""
        with self._lock:
            if partition.number not in self._loading:
                return False
            if self._partitions.get(partition.number) is not partition:
                return False
            self._loading.discard(partition.number)
            return True

    def take_away(self, number: int, epoch: int | None) -> StatePartition | None:
        """Forget a partition and return it. An old epoch changes nothing; None is never old."""
        with self._lock:
            if not self._epochs.is_current(number, epoch):
                return None
            self._loading.discard(number)
            return self._partitions.pop(number, None)


@lru_cache(_REMEMBERED)
def _partition_of(transactional_id: str, count: int) -> int:
    return coordinator_partition(transactional_id, count)
