"""What the services of the coordinators run on threads of their own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial

__all__ = ["now_ms", "run_on"]

_LOG = logging.getLogger(__name__)


def now_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def run_on(executor: Executor, work: Callable[[], None], coordinator: str) -> None:
    """Call `work` on a thread of the executor, unless that is shut down.

    An exception of it is logged with the kind of `coordinator`.
    """
    with suppress(RuntimeError):  # it was shut down
        executor.submit(work).add_done_callback(partial(_log_failure, coordinator))


def _log_failure(coordinator: str, future: Future[None]) -> None:
    if not future.cancelled() and (failure := future.exception()) is not None:
        _LOG.error("work for the %s coordinator failed", coordinator, exc_info=failure)
