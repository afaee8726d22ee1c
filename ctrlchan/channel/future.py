"""``Sent.future``: the outcome of a request as a future of ``concurrent.futures``."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Final

from ctrlchan.channel.outcome_kind import OutcomeKind
from ctrlchan.channel.queues._entries import Outcome

if TYPE_CHECKING:
    from ctrlchan.channel.queues._entries import Sent

__all__ = ["SentFuture"]

_LOG: Final = logging.getLogger("ctrlchan.channel")


class SentFuture(Future[Outcome]):
    """A future that is pending until the request ends.

    It is cancelled only if ``cancel`` could cancel the request.
    """

    def __init__(self, sent: Sent) -> None:
        super().__init__()
        self._sent = sent
        self._to_be_cancelled = False
        self._is_finishing = False

    def cancel(self) -> bool:
        if self.done():
            return self.cancelled()
        # Set it before the channel's thread can publish the outcome.
        self._to_be_cancelled = True
        if not self._sent.cancel():
            self._to_be_cancelled = False
            return self.cancelled()
        return super().cancel()

    def add_done_callback(self, fn: Callable[[Future[Outcome]], object]) -> None:
        super().add_done_callback(partial(self._call, fn))

    def _call(self, fn: Callable[[Future[Outcome]], object], future: Future[Outcome]) -> None:
        try:
            fn(future)
        except Exception:
            # ``concurrent.futures`` logs the error.
            raise
        except BaseException:
            if not self._is_finishing:
                raise
            # This is the channel's thread, and it must still call the other callbacks.
            _LOG.exception("A callback of the future of %r failed", self._sent)

    def finished(self, sent: Sent) -> None:
        self._is_finishing = True
        try:
            self._finish(sent)
        finally:
            self._is_finishing = False

    def _finish(self, sent: Sent) -> None:
        outcome = sent.outcome
        assert outcome is not None
        if self._to_be_cancelled and outcome.kind is OutcomeKind.CANCELLED:
            super().cancel()
        if self.set_running_or_notify_cancel():
            self.set_result(outcome)
