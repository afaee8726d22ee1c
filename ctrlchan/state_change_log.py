"""Kafka's ``state.change.logger``: the requests of the controller and their responses, in Kafka's format.

Lines begin with ``[Controller id=<id> epoch=<epoch>] ``; INFO for each request, TRACE (below DEBUG) for
each partition and each response; ERROR for the error of a whole response, and for each failed change of a
state, with the exception's text on the next line, where Kafka's log has a stack trace. Source:
``kafka.controller.StateChangeLogger``.
Check ``informs`` or ``traces`` before formatting a line: nothing is formatted when its level is off.
"""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["LAYOUT", "TRACE", "StateChangeLogger"]

#: For ``logging.Formatter``: lines as Kafka's own ``[%d] %p %m (%c)%n`` writes them, so that
#: ``ctrlchan pipeline merge-logs`` reads both.
LAYOUT: Final = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"

#: log4j's TRACE is below DEBUG; Python has no level of this name.
TRACE: Final = logging.DEBUG - 5
logging.addLevelName(TRACE, "TRACE")

_LOGGER: Final = logging.getLogger("state.change.logger")


class StateChangeLogger:
    """Writes the state-change log of one controller in one epoch; None: lines that name no epoch."""

    __slots__ = ("_prefix",)

    def __init__(self, controller_id: int, controller_epoch: int | None) -> None:
        epoch = "" if controller_epoch is None else f" epoch={controller_epoch}"
        self._prefix = f"[Controller id={controller_id}{epoch}] "

    @property
    def informs(self) -> bool:
        return _LOGGER.isEnabledFor(logging.INFO)

    @property
    def traces(self) -> bool:
        return _LOGGER.isEnabledFor(TRACE)

    def info(self, message: str) -> None:
        _LOGGER.info("%s%s", self._prefix, message)

    def error(self, message: str, error: Exception | None = None) -> None:
        """Log a failure and the reason, if there is one. The error need not have been raised."""
        reason = None if error is None else (type(error), error, None)
        _LOGGER.error("%s%s", self._prefix, message, exc_info=reason)

    def trace(self, message: str) -> None:
        _LOGGER.log(TRACE, "%s%s", self._prefix, message)
