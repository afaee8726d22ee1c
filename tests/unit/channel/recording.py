"""A sender without a process: keeps the commands that it is given."""

from __future__ import annotations

from typing import Any

__all__ = ["RecordingSender"]


# Typed as Any: a queue uses no other part of a sender.
class RecordingSender(Any):  # type: ignore[misc]
    def __init__(self) -> None:
        self.written = b""

    def write(self, record: bytes) -> None:
        self.written += record
