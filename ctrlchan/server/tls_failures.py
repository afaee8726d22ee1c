"""Why TLS failed on a connection: numbers that processors report, and their texts for the log."""

from __future__ import annotations

import threading
from typing import Final

from ctrlchan.server import _openssl

__all__ = ["number_of", "why_tls_failed"]

#: OpenSSL has fewer reasons. What comes from elsewhere must not fill the memory.
_MOST: Final = 1000
_OTHER: Final = "for another reason than the first 1,000"
#: Reasons that Python's ssl has given. The number of each is -1 minus its index.
_reasons: list[str] = [_OTHER]
_numbers: dict[str, int] = {_OTHER: -1}
_lock: Final = threading.Lock()


def number_of(reason: str) -> int:
    """Return the number of a reason of Python's ssl. Any thread may call it."""
    with _lock:
        if reason not in _numbers:
            if len(_reasons) > _MOST:
                return _numbers[_OTHER]
            _reasons.append(reason)
            _numbers[reason] = -len(_reasons)
        return _numbers[reason]


def why_tls_failed(number: int) -> str:
    """Return the reason of a failure as text; those of ``number_of`` are negative."""
    return _openssl.why_tls_failed(number) if number >= 0 else _reasons[-1 - number]
