"""Public keys by which tokens are signed: a JWKS (RFC 7517) in a file, or behind a URL.

``JwksFileVerificationKeyResolver`` and ``RefreshingHttpsJwks`` of Kafka 3.9. A file is read again when it has
changed, which Kafka does not.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any, Final, Protocol
from urllib.parse import urlsplit
from urllib.request import url2pathname, urlopen

from ctrlchan.errors import ConfigError
from ctrlchan.security.token_settings import SignedTokenSettings

__all__ = ["JwksEndpoint", "JwksFile", "Keys", "open_keys"]

_LOG: Final = logging.getLogger("ctrlchan.broker")

_MOST_BYTES: Final = 1 << 20
_TIMEOUT_SECONDS: Final = 10.0
#: An unknown key lets the file or the URL be looked at again once in so many seconds.
_PAUSE_SECONDS: Final = 10.0


class Keys(Protocol):
    """JWKs as JSON objects."""

    def current(self) -> list[Mapping[str, Any]]:
        """Return the keys. Does not wait."""

    def missed(self) -> None:
        """Look for newer keys soon: a token names one that is not known."""

    def close(self) -> None: ...


def open_keys(settings: SignedTokenSettings) -> Keys:
    """Return the keys that are there now, and later newer ones. Raises ConfigError, naming the URL."""
    url = urlsplit(settings.jwks_url)
    if url.scheme == "file":
        return JwksFile(url2pathname(url.path))
    if url.scheme in ("https", "http") and url.netloc:
        return JwksEndpoint(settings)
    raise ConfigError(f"{settings.jwks_url}: a URL begins with file:, https: or http:")


def _parsed(data: bytes) -> list[Mapping[str, Any]]:
    """Return the keys of a JWKS. Raises ValueError."""
    try:
        found = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    keys = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
        raise ValueError('it is not {"keys": [...]}')
    # A symmetric key would let everybody who can read the keys sign tokens.
    return [key for key in keys if key.get("kty") != "oct" and key.get("use", "sig") == "sig"]


class JwksFile:
    """Keys in a file."""

    def __init__(self, path: str, now: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._now = now
        self._lock = threading.Lock()
        self._looked = now()
        self._changed, self._keys = self._read()

    def current(self) -> list[Mapping[str, Any]]:
        return self._keys

    def missed(self) -> None:
        with self._lock:
            if self._now() - self._looked < _PAUSE_SECONDS:
                return
            self._looked = self._now()
            try:
                if os.stat(self._path).st_mtime_ns != self._changed:
                    self._changed, self._keys = self._read()
            except (OSError, ConfigError) as error:
                _LOG.warning("the keys of tokens stay as they were: %s", error)

    def close(self) -> None:
        """Do nothing: the file is not open."""

    def _read(self) -> tuple[int, list[Mapping[str, Any]]]:
        try:
            with open(self._path, "rb") as file:
                data = file.read(_MOST_BYTES + 1)
                changed = os.stat(file.fileno()).st_mtime_ns
            if len(data) > _MOST_BYTES:
                raise ValueError(f"it has more than {_MOST_BYTES:,} bytes")
            return changed, _parsed(data)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self._path}: {getattr(error, 'strerror', None) or error}") from None


class JwksEndpoint:
    """Keys behind a URL, asked for by a thread of its own."""

    def __init__(self, settings: SignedTokenSettings) -> None:
        self._settings = settings
        self._wanted = threading.Event()
        self._closed = False
        self._asked = time.monotonic()
        try:
            self._keys = self._fetch()
        except (OSError, ValueError) as error:
            raise ConfigError(f"{settings.jwks_url}: {error}") from None
        self._thread = threading.Thread(target=self._refresh, name="jwks", daemon=True)
        self._thread.start()

    def current(self) -> list[Mapping[str, Any]]:
        return self._keys

    def missed(self) -> None:
        if time.monotonic() - self._asked >= _PAUSE_SECONDS:
            self._wanted.set()

    def close(self) -> None:
        """End the thread; a request in progress ends by itself."""
        self._closed = True
        self._wanted.set()

    def _fetch(self) -> list[Mapping[str, Any]]:
        """Return the keys behind the URL. Raises OSError, ValueError."""
        try:
            with urlopen(self._settings.jwks_url, timeout=_TIMEOUT_SECONDS) as response:
                data = response.read(_MOST_BYTES + 1)
        except HTTPException as error:
            raise ValueError(f"an answer that is not HTTP: {error!r}") from None
        if len(data) > _MOST_BYTES:
            raise ValueError(f"more than {_MOST_BYTES:,} bytes")
        return _parsed(data)

    def _refresh(self) -> None:
        least, most = self._settings.retry_backoff_ms / 1000, self._settings.retry_backoff_max_ms / 1000
        regular = self._settings.refresh_ms / 1000
        wait, backoff = regular, least
        while True:
            self._wanted.wait(wait)
            if self._closed:
                return
            self._wanted.clear()
            self._asked = time.monotonic()
            try:
                self._keys = self._fetch()
                wait, backoff = regular, least
            except (OSError, ValueError) as error:
                _LOG.warning("the keys of tokens stay as they were: %s: %s", self._settings.jwks_url, error)
                wait, backoff = min(backoff, regular), min(2 * backoff, most)
