"""Outcomes for asyncio, without a thread for each call.

The channel's thread wakes the event loop once for many ended requests; futures are resolved on the event
loop's own thread.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ctrlchan.channel.queues._entries import Countdown

if TYPE_CHECKING:
    from ctrlchan.channel.queues._entries import Outcome, Sent

__all__ = ["outcome_of", "outcomes_of"]


class _Bridge:
    """Resolves futures of one event loop from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # A weak reference: ``_BRIDGES`` must not keep the loop alive.
        self._loop = weakref.ref(loop)
        self._ready: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    def resolve(self, future: asyncio.Future[None]) -> None:
        """Have the loop resolve the future. One wake-up of the loop serves all futures until it runs."""
        self._ready.append(future)
        # The loop clears the flag before it reads the deque, so it finds this future.
        if self._is_scheduled:
            return
        self._is_scheduled = True
        loop = self._loop()
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._resolve)
                return
            except RuntimeError:
                # The loop is closed, so nobody waits.
                pass
        self._is_scheduled = False
        self._ready.clear()

    def _resolve(self) -> None:
        self._is_scheduled = False
        while self._ready:
            future = self._ready.popleft()
            if not future.done():
                future.set_result(None)


_BRIDGES: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Bridge] = weakref.WeakKeyDictionary()
_MAKING = threading.Lock()


def _bridge_to(loop: asyncio.AbstractEventLoop) -> _Bridge:
    with _MAKING:
        bridge = _BRIDGES.get(loop)
        if bridge is None:
            bridge = _BRIDGES[loop] = _Bridge(loop)
        return bridge


async def outcomes_of(sent: Sequence[Sent]) -> list[Outcome]:
    """Await the outcomes and return them in the order of ``sent``.

    If the awaiting task is cancelled, requests that are still queued are cancelled too.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    countdown = Countdown(list(sent), partial(_bridge_to(loop).resolve, future))
    if countdown.missing:
        try:
            await future
        except asyncio.CancelledError:
            countdown.stop()
            _withdraw(sent)
            raise
    return [one.outcome for one in sent if one.outcome is not None]


async def outcome_of(sent: Sent) -> Outcome:
    """Await the outcome of one request."""
    return (await outcomes_of((sent,)))[0]


def _withdraw(sent: Sequence[Sent]) -> None:
    unfinished = [one for one in sent if one.outcome is None]
    channel = unfinished[0].request.channel if unfinished else None
    if channel is not None:
        channel.cancel(unfinished)
