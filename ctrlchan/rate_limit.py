"""Limits how many lines about one subject are written to a log."""

from __future__ import annotations

from typing import Final

__all__ = ["LogRateLimit"]

#: So many lines of one key may be written at once ...
_BURST: Final = 5
#: ... and then one in so many nanoseconds.
_INTERVAL: Final = 10_000_000_000
#: A line about a trouble that goes on is written again after so many nanoseconds.
_REPEAT: Final = 600_000_000_000


class LogRateLimit:
    """Decides for each line whether to write it, and counts the lines that were left out, by key."""

    def __init__(self) -> None:
        # Key -> until when its lines have used up their share, when the last was written, lines left out.
        self._used: dict[int, tuple[int, int, int]] = {}

    def admit(self, key: int, now: int, *, important: bool = True) -> str | None:
        """Return the text to append to a line that is written, or None when the line is left out.

        `key`: of the lines that share one limit, such as a broker id. `now`: monotonic nanoseconds. A line
        that is not `important` is written only when none was written for ten minutes.
        """
        used, last, left_out = self._used.get(key, (now - _REPEAT, now - _REPEAT, 0))
        used = max(used, now - _BURST * _INTERVAL)
        if used + _INTERVAL > now or not (important or now - last >= _REPEAT):
            self._used[key] = used, last, left_out + 1
            return None
        self._used[key] = used + _INTERVAL, now, 0
        return f" ({left_out} more since the last such line)" if left_out else ""
