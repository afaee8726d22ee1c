"""What the event loop processes (``Event``) and what it is called in metrics (``ControllerState``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

__all__ = ["ControllerState", "Event", "JointCall"]


class ControllerState(IntEnum):
    """The kind of an event: what the controller is doing while it processes one.

    The values are those of the metric ``ControllerState``. Source: ``kafka.controller.ControllerState``.
    """

    IDLE = 0
    CONTROLLER_CHANGE = 1
    BROKER_CHANGE = 2
    TOPIC_CHANGE = 3
    TOPIC_DELETION = 4
    ALTER_PARTITION_REASSIGNMENT = 5
    AUTO_LEADER_BALANCE = 6
    MANUAL_LEADER_BALANCE = 7
    CONTROLLED_SHUTDOWN = 8
    ISR_CHANGE = 9
    LEADER_AND_ISR_RESPONSE_RECEIVED = 10
    LOG_DIR_CHANGE = 11
    CONTROLLER_SHUTDOWN = 12
    UNCLEAN_LEADER_ELECTION_ENABLE = 13
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE = 14
    LIST_PARTITION_REASSIGNMENT = 15
    UPDATE_METADATA_RESPONSE_RECEIVED = 16
    UPDATE_FEATURES = 17

    @property
    def rate_and_time_metric(self) -> str | None:
        """Kafka's name of the metric with the number and duration of these events, if there is one."""
        if self in _WITHOUT_METRIC:
            return None
        return _METRICS.get(self) or f"{self.name.title().replace('_', '')}RateAndTimeMs"


_WITHOUT_METRIC: Final = (ControllerState.IDLE, ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED)
#: Names that are older than ``ControllerState``.
_METRICS: Final = {
    ControllerState.BROKER_CHANGE: "LeaderElectionRateAndTimeMs",
    ControllerState.ALTER_PARTITION_REASSIGNMENT: "PartitionReassignmentRateAndTimeMs",
}


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True, eq=False)
class JointCall:
    """One argument for ``function(core, arguments)``, and its result to come.

    ``function`` returns a result for each argument, or the exception with which that call ends.
    """

    function: Callable[[Any, Sequence[Any]], Sequence[Any]]
    argument: Any
    result: Future[Any] = field(default_factory=Future)


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """One entry of the queue. ``process`` runs on the loop's thread.

    ``preempt`` runs in its place, on another thread, when the queue is cleared before the event's turn.
    ``name``: Kafka's name of the event, for logs. ``call``: the call that the event is for, if it may be
    answered together with others of its function. ``is_of_election``: it belongs to no term and is processed
    even when the queue is cleared, because without it this controller might take part in no election any
    more. Source: ``kafka.controller.ControllerEvent``.
    """

    state: ControllerState
    name: str
    process: Callable[[], None]
    preempt: Callable[[], None] = _nothing
    call: JointCall | None = None
    is_of_election: bool = False

    @classmethod
    def of_election(cls, name: str, process: Callable[[], None]) -> Event:
        """Return an event that may end this controller's term or begin the next one."""
        return cls(ControllerState.CONTROLLER_CHANGE, name, process, is_of_election=True)

    def __str__(self) -> str:
        return self.name
