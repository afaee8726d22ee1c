"""Log lines that begin with a context, such as ``[ReplicaManager broker=1] ``, by which people search a log.

Source: ``org.apache.kafka.common.utils.LogContext``, ``kafka.utils.Logging``.
"""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["ContextLogger"]


class ContextLogger(logging.LoggerAdapter[logging.Logger]):
    """Writes lines to ``logger``, each behind ``context``. Nothing is formatted while the level is off."""

    def __init__(self, logger: logging.Logger, context: str) -> None:
        super().__init__(logger)
        self.context = context

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Write a line. All other methods of a logger call this one."""
        if self.isEnabledFor(level):
            # The line is of the caller's caller, not of this function.
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
            # An argument: a context with the name of a directory may have percent signs.
            if args:
                self.logger.log(level, f"%s{msg}", self.context, *args, **kwargs)
            else:
                self.logger.log(level, "%s%s", self.context, msg, **kwargs)
