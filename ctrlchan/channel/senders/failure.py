"""The exception for a connection that cannot be used any more."""

from __future__ import annotations

from ctrlchan.channel.wire.records import Failure

__all__ = ["ConnectionFailed"]


class ConnectionFailed(Exception):
    """The broker did something after which the connection must be closed. ``detail`` is for people, or ""."""

    def __init__(self, failure: Failure, detail: str = "") -> None:
        super().__init__(f"{failure.text}: {detail}" if detail else failure.text)
        self.failure = failure
        self.detail = detail
