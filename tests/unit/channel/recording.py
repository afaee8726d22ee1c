"""A sender process that is none: keeps what it would have been told."""

from __future__ import annotations

from typing import Any

__all__ = ["RecordingSender"]


# Any: a queue asks for no more of a sender than this.
class RecordingSender(Any):  # type: ignore[misc]
    def __init__(self) -> None:
        self.written = b""

    def write(self, record: bytes) -> None:
        self.written += record
