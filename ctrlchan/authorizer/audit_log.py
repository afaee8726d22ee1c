"""Writes what was allowed and denied to the logger ``kafka.authorizer.logger``, as Kafka's AclAuthorizer.

INFO: a request that named a resource was denied. DEBUG: a request was allowed. Level 5 (Kafka: TRACE): what
results are filtered by, and authorized operations.
"""

from __future__ import annotations

import logging
from typing import Final

from ctrlchan.authorizer.acls import pascal_case
from ctrlchan.authorizer.interface import Action, Requester
from ctrlchan.text import printable

__all__ = ["log_decision", "logs_each_decision"]

_LOG: Final = logging.getLogger("kafka.authorizer.logger")
_TRACE: Final = 5


def logs_each_decision() -> bool:
    """Return whether the logger takes lines of what is allowed, too."""
    return _LOG.isEnabledFor(logging.DEBUG)


def log_decision(requester: Requester, action: Action, is_allowed: bool) -> None:
    """Write the line of one decision, where the logger takes it."""
    if is_allowed:
        level = logging.DEBUG if action.logs_allowed else _TRACE
    else:
        level = logging.INFO if action.logs_denied else _TRACE
    if _LOG.isEnabledFor(level):
        _LOG.log(
            level,
            "Principal = %s is %s Operation = %s from host = %s on resource = %s for request = %s"
            " with resourceRefCount = %d",
            # Peers choose names: none of them may look like another line.
            printable(requester.principal),
            "Allowed" if is_allowed else "Denied",
            pascal_case(action.operation),
            requester.host,
            printable(str(action.pattern)),
            requester.api,
            action.references,
        )
