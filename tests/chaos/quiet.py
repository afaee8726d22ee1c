"""The settings that all clients of librdkafka share: nothing is printed of what they get over."""

from __future__ import annotations

import logging
from typing import Any, Final

__all__ = ["QUIET"]

_LOGGER: Final = logging.getLogger("tests.chaos.clients")
_LOGGER.addHandler(logging.NullHandler())
_LOGGER.propagate = False

QUIET: Final[dict[str, Any]] = {
    "logger": _LOGGER,
    "error_cb": lambda _error: None,
    "reconnect.backoff.max.ms": 500,
    # What a broker did not know is asked again soon.
    "topic.metadata.refresh.interval.ms": 5000,
}
