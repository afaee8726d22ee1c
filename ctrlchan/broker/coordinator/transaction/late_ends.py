"""LateEnds: EndTxn requests that would have ended the transaction after theirs."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ctrlchan.log_context import ContextLogger
from ctrlchan.rate_limit import LogRateLimit

__all__ = ["LateEnds"]


class LateEnds:
    """Counts and logs refused requests. Any thread may call ``add``. `now_ms` returns milliseconds."""

    def __init__(self, now_ms: Callable[[], int], log: ContextLogger) -> None:
        self._log = log
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._lines = LogRateLimit()
        self.count = 0

    def add(self, transactional_id: str) -> None:
        """Note the request of a producer."""
        with self._lock:
            self.count += 1
            left_out = self._lines.admit(0, self._now_ms() * 1_000_000)
        if left_out is not None:
            self._log.warning(
                "transactional id %.100r: an EndTxn is refused, whose connection is older than the one that "
                "began the transaction%s",
                transactional_id,
                left_out,
            )
