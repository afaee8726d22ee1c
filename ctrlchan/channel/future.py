"""``Sent.future``: a request's end for those who work with ``concurrent.futures``."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

from ctrlchan.channel.outcome import Outcome, OutcomeKind

if TYPE_CHECKING:
    from ctrlchan.channel.outcome import Sent

__all__ = ["SentFuture"]


class SentFuture(Future[Outcome]):
    """Pending until the request ends; cancelled only where ``cancel`` could cancel the request."""

    def __init__(self, sent: Sent) -> None:
        super().__init__()
        self._sent = sent
        self._to_be_cancelled = False

    def cancel(self) -> bool:
        if self.done():
            return self.cancelled()
        # Before the channel's thread can publish the end.
        self._to_be_cancelled = True
        if not self._sent.cancel():
            self._to_be_cancelled = False
            return self.cancelled()
        return super().cancel()

    def finished(self, sent: Sent) -> None:
        outcome = sent.outcome
        assert outcome is not None
        if self._to_be_cancelled and outcome.kind is OutcomeKind.CANCELLED:
            super().cancel()
        if self.set_running_or_notify_cancel():
            self.set_result(outcome)
