"""Producer ids for idempotent producers, from blocks that the controller allocates.

Source: ``kafka.coordinator.transaction.RPCProducerIdManager``, KIP-730. Kafka answers
COORDINATOR_LOAD_IN_PROGRESS until it has the next block; here the requests wait for the block.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.log_context import ContextLogger

__all__ = ["ProducerIds", "random_block"]

_LOG = logging.getLogger("ctrlchan.broker")

#: First id and number of ids.
Block = tuple[int, int]
_BLOCK_SIZE: Final = 1_000  # ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE
_MAX_ID: Final = 2**63 - 1


def random_block() -> Future[Block]:
    """Return a block for a broker without a controller.

    It begins at any thousand: ids of an earlier start of the broker may live on in its logs, and two blocks
    among 2^53 do not meet.
    """
    block: Future[Block] = Future()
    block.set_result(((int.from_bytes(os.urandom(7)) >> 3) * _BLOCK_SIZE, _BLOCK_SIZE))
    return block


class ProducerIds:
    """Hands out producer ids. Any thread may call every method. `allocate` asks for the next block."""

    def __init__(self, broker_id: int, allocate: Callable[[], Future[Block]]) -> None:
        self._log = ContextLogger(_LOG, f"[RPC ProducerId Manager {broker_id}]: ")
        self._allocate = allocate
        self._lock = threading.Lock()
        self._next = self._end = 0
        self._waiting: deque[Future[int]] = deque()
        self._allocating = False

    def take(self) -> Future[int]:
        """Return the future of a unique id; it fails with COORDINATOR_LOAD_IN_PROGRESS if no id can be had.

        Clients repeat their request after that error.
        """
        wanted: Future[int] = Future()
        with self._lock:
            if self._next < self._end:
                wanted.set_result(self._next)
                self._next += 1
                return wanted
            self._waiting.append(wanted)
            if self._allocating:
                return wanted
            self._allocating = True
        self._ask()
        return wanted

    def _ask(self) -> None:
        try:
            self._allocate().add_done_callback(self._take_block)
        except Exception as error:  # noqa: BLE001 - producers wait for an answer
            failed: Future[Block] = Future()
            failed.set_exception(error)
            self._take_block(failed)

    def _take_block(self, allocated: Future[Block]) -> None:
        """Give ids to the requests that wait; ask for another block when the ids are used up."""
        failure = allocated.exception()
        first, count = (0, 0) if failure is not None else allocated.result()
        if failure is None and not (0 <= first <= _MAX_ID - count and count > 0):
            failure = ValueError(f"a block of {count} ids from {first} on")
        with self._lock:
            if failure is None:
                self._next, self._end = first, first + count
            taken = []
            while self._waiting and (failure is not None or self._next < self._end):
                taken.append((self._waiting.popleft(), self._next))
                self._next += failure is None
            self._allocating = bool(self._waiting)
            ask = self._allocating
        if failure is not None:
            self._log.warning("no block of producer ids: %s", failure)
        for wanted, producer_id in taken:
            if failure is None:
                wanted.set_result(producer_id)
            else:
                wanted.set_exception(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(failure)))
        if ask:
            self._ask()
