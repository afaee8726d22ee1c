"""Outcomes for asyncio: no thread for a call, and one wake-up of an event loop for many ended requests.

The channel's thread says only that something has ended; futures are resolved on the event loop's own thread.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ctrlchan.channel.outcome import Countdown

if TYPE_CHECKING:
    from ctrlchan.channel.outcome import Outcome, Sent

__all__ = ["outcome_of", "outcomes_of"]


class _Bridge:
    """From any thread to one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # The table of bridges would keep a loop alive that a bridge keeps alive.
        self._loop = weakref.ref(loop)
        self._ready: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    def resolve(self, future: asyncio.Future[None]) -> None:
        """Have the loop resolve this; while the loop has not come to it, others travel with it."""
        self._ready.append(future)
        # The loop clears the flag before it looks: what was appended by then it finds.
        if self._is_scheduled:
            return
        self._is_scheduled = True
        loop = self._loop()
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._resolve)
                return
            except RuntimeError:
                # It is closed: nobody waits any more.
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
    """The outcomes, in the order of ``sent``. Cancelled while it waits, it cancels those still queued."""
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
    return (await outcomes_of((sent,)))[0]


def _withdraw(sent: Sequence[Sent]) -> None:
    owed = [one for one in sent if one.outcome is None]
    channel = owed[0].request.channel if owed else None
    if channel is not None:
        channel.cancel(owed)
