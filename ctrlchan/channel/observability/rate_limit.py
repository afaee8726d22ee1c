"""Lines that would come too often: which of them are worth being written."""

from __future__ import annotations

from typing import Final

__all__ = ["LogRateLimit"]

#: So many lines of a broker may come at once ...
_BURST: Final = 5
#: ... and then one in so many nanoseconds.
_EVERY: Final = 10_000_000_000
#: A trouble that goes on is told of again after so long.
_REMIND: Final = 600_000_000_000


class LogRateLimit:
    """Remembers when something was said of a broker, and how much has not been said since."""

    def __init__(self) -> None:
        # Broker id -> until when its lines have used up their share, when the last was written, lines unsaid.
        self._spent: dict[int, tuple[int, int, int]] = {}

    def says(self, broker_id: int, now: int, *, worth: bool = True) -> str | None:
        """What to append to the line when it shall be written now, else None. ``now``: monotonic nanoseconds.

        One that is not ``worth`` it is written when nothing was for ten minutes.
        """
        spent, last, unsaid = self._spent.get(broker_id, (now - _REMIND, now - _REMIND, 0))
        spent = max(spent, now - _BURST * _EVERY)
        if spent + _EVERY > now or not (worth or now - last >= _REMIND):
            self._spent[broker_id] = spent, last, unsaid + 1
            return None
        self._spent[broker_id] = spent + _EVERY, now, 0
        return f" ({unsaid} more since the last such line)" if unsaid else ""
