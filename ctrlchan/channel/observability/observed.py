"""The parts of the channel state that are observed: queues with their unfinished requests, under one lock."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections import deque

    from ctrlchan.channel.outcome import Sent

__all__ = ["ObservedChannel", "ObservedQueue", "QueueTimes"]


class QueueTimes(Protocol):
    """``ctrlchan.channel.queues._entries.QueueTimes``."""

    @property
    def count(self) -> int: ...
    @property
    def total_ns(self) -> int: ...
    def histogram(self) -> list[int]: ...


class ObservedQueue(Protocol):
    """``ctrlchan.channel.queues.broker_queue.BrokerQueue``."""

    @property
    def state(self) -> str: ...
    @property
    def attempts(self) -> int: ...
    @property
    def needs_resync(self) -> bool: ...
    @property
    def waiting(self) -> deque[Sent]: ...
    @property
    def handed(self) -> deque[Sent]: ...
    @property
    def waiting_bytes(self) -> int: ...
    @property
    def handed_bytes(self) -> int: ...
    @property
    def queue_times(self) -> QueueTimes: ...
    def last_problem(self) -> str: ...


class ObservedChannel(Protocol):
    """``ctrlchan.channel.queues.channel_state.ChannelState``."""

    @property
    def lock(self) -> threading.Lock: ...
    @property
    def by_id(self) -> Mapping[int, ObservedQueue]: ...
