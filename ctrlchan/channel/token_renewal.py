"""TokenRenewal: a thread that gives a channel new tokens of OAUTHBEARER before the old ones expire.

Senders have no clock for tokens and may not wait for an identity provider, so the channel's process asks it.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from time import time
from typing import Final

from ctrlchan.errors import ConfigError, CtrlchanError
from ctrlchan.security.failure import ConnectionFailed
from ctrlchan.security.settings import SaslSettings
from ctrlchan.security.tokens import TokenSource

__all__ = ["TokenRenewal"]

_LOG: Final = logging.getLogger("ctrlchan.channel")

#: Seconds between attempts when the identity provider gives no token.
_PAUSE: Final = 10.0


class TokenRenewal:
    """Renews the token of these settings. The constructor takes the first; raises ConfigError without one.

    ``use``: takes settings with a new token; while nobody else refers to its object, the thread ends.
    """

    def __init__(self, sasl: SaslSettings, use: weakref.WeakMethod[Callable[[SaslSettings], object]]) -> None:
        self._source = TokenSource(sasl)
        self._use = use
        self._stopped = threading.Event()
        try:
            #: The settings with the first token.
            self.first = self._source.current()
        except ConnectionFailed as failed:
            raise ConfigError(f"sasl: {failed.detail}") from None

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="channel-tokens", daemon=True).start()

    def stop(self) -> None:
        """End the thread, which may still ask the identity provider."""
        self._stopped.set()

    def _run(self) -> None:
        pause = 0.0
        while not self._stopped.wait(max(pause, self._source.replaced_from - time())):
            pause = 0.0
            try:
                sasl = self._source.current()
                if self._source.replaced_from <= time():
                    pause = _PAUSE  # the source has said why there is no new one
                    continue
                use = self._use()
                if use is None or self._stopped.is_set():
                    return
                use(sasl)
                del use
            except ConnectionFailed as failed:
                pause = _PAUSE
                _LOG.error("connections to brokers will be refused: %s", failed)
            except CtrlchanError as problem:
                pause = _PAUSE
                _LOG.error("the new token cannot be used: %s", problem)
