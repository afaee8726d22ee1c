"""DelegationTokens: the delegation tokens of a cluster, as one broker or controller knows and changes them.

``DelegationTokenManagerZk`` and ``DelegationTokenCache`` of Kafka 3.9. Kafka derives the SCRAM credentials of
each token when it hears of the token; here they are derived when somebody logs in with it.
"""

from __future__ import annotations

import logging
import secrets
import threading
from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha256
from time import monotonic
from typing import Final, TypeVar

from ctrlchan.errors import ErrorCode, KafkaError, ZooKeeperError
from ctrlchan.server.delegation_tokens.settings import DelegationTokenSettings
from ctrlchan.server.delegation_tokens.token import Token, hmac_of
from ctrlchan.server.delegation_tokens.token_nodes import TokenNodes
from ctrlchan.server.request_context import Principal
from ctrlchan.server.security.sasl_server import wall_clock_ms
from ctrlchan.server.security.scram_credentials import ScramCredential, credential_of_password
from ctrlchan.server.security.token_logins import TokenLogin
from ctrlchan.text import printable
from ctrlchan.topic_names import id_to_text, new_id
from ctrlchan.zookeeper.session import ZooKeeperSession

__all__ = ["DelegationTokens"]

T = TypeVar("T")
R = TypeVar("R")

_LOG: Final = logging.getLogger("ctrlchan.broker")

_MAX_INT64: Final = 2**63 - 1
_SALT_SIZE: Final = 20  # bytes
#: Of so many tokens and mechanisms the credentials are kept.
_CREDENTIALS: Final = 4_096
_RETRY_SECONDS: Final = 0.5
#: How long ``stop`` waits for the thread, which may wait for ZooKeeper.
_STOP_SECONDS: Final = 1.0
#: Of a wait of a thread, in seconds: Python's clock takes no more.
_MOST_SECONDS: Final = 3_600.0


class DelegationTokens:
    """Reads all tokens at ``start``, and follows their changes until ``stop``. All methods are thread-safe.

    ``session``: of the broker or controller, which has started. ``name``: for logs. ``removes_expired``:
    whether expired tokens are removed now: the active controller does. ``now_ms``: milliseconds since 1970.
    """

    def __init__(
        self,
        settings: DelegationTokenSettings,
        session: ZooKeeperSession,
        name: str,
        *,
        removes_expired: Callable[[], bool] = lambda: False,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._settings = settings
        self._nodes = TokenNodes(session)
        self._name = name
        self._removes_expired = removes_expired
        self._now_ms = now_ms
        #: Held while a node is written or the tokens are changed. Readers take no lock.
        self._changing = threading.Lock()
        self._tokens: dict[str, Token] = {}
        # By a hash: the time of a look-up says nothing of an HMAC.
        self._ids: dict[bytes, str] = {}
        self._credential_of = lru_cache(_CREDENTIALS)(self._derive)
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._reads_all = False
        self._next_check = monotonic()
        self._thread = threading.Thread(target=self._follow, name=f"{name}-tokens", daemon=True)

    def __repr__(self) -> str:
        return f"<DelegationTokens of {self._name}: {len(self._tokens)}>"

    # -- life

    def start(self) -> None:
        """Read all tokens, and follow their changes from now on. Raises ZooKeeperError."""
        self._nodes.create_parents()
        self._read_all()
        self._thread.start()

    def read_again(self) -> None:
        """Read all tokens again: the session is a new one."""
        self._reads_all = True
        self._wake.set()

    def check_now(self) -> None:
        """Look for expired tokens now: this has become the active controller."""
        self._next_check = monotonic()
        self._wake.set()

    def stop(self) -> None:
        """End the thread. One that waits for ZooKeeper ends with the session."""
        self._stopped.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)

    # -- what there is

    @property
    def count(self) -> int:
        """The number of all tokens."""
        return len(self._tokens)

    def all(self) -> list[Token]:
        """Return all tokens, expired ones that nobody has removed yet among them."""
        return list(self._tokens.values())

    def hmac(self, token: Token) -> bytes:
        """Return the HMAC of a token."""
        return hmac_of(self._settings.secret_key, token.token_id)

    def login(self, token_id: str) -> TokenLogin | None:
        """Return whose token this is, or None if there is none."""
        token = self._tokens.get(token_id)
        return None if token is None else TokenLogin(token.owner.name, token.expires_ms)

    def credential(self, mechanism: str, token_id: str) -> ScramCredential:
        """Return the SCRAM credential of a token; the first time it takes milliseconds.

        The password is the HMAC as Base64.
        """
        return self._credential_of(mechanism, token_id)

    def _derive(self, mechanism: str, token_id: str) -> ScramCredential:
        password = b64encode(hmac_of(self._settings.secret_key, token_id)).decode()
        return credential_of_password(mechanism, password, secrets.token_bytes(_SALT_SIZE))

    # -- what users change

    def create(
        self, owner: Principal, requester: Principal, renewers: Sequence[Principal], max_lifetime_ms: int
    ) -> Token:
        """Make a token. ``max_lifetime_ms``: 0 or less stands for the longest time.

        Raises KafkaError.
        """
        settings = self._settings
        with self._changing:
            now = self._now_ms()
            longest = settings.max_lifetime_ms
            lifetime = longest if max_lifetime_ms <= 0 else min(max_lifetime_ms, longest)
            max_ms = min(now + lifetime, _MAX_INT64)
            expires = min(max_ms, now + settings.expiry_time_ms)
            token = Token(id_to_text(new_id()), owner, requester, tuple(renewers), now, expires, max_ms)
            self._write(self._nodes.create, token)
            self._put(token)
        self._log("has made token %s of %s", token)
        return token

    def renew(self, principal: Principal, hmac: bytes, period_ms: int) -> int:
        """Let a token live for so long from now on; return when it expires. Less than 0: the usual time.

        Raises KafkaError.
        """
        with self._changing:
            token = self._token_of(principal, hmac)
            now = self._now_ms()
            self._refuse_expired(token, now)
            period = self._settings.expiry_time_ms if period_ms < 0 else period_ms
            expires = self._replace(token, now + period)
        self._log("has renewed token %s of %s", token)
        return expires

    def expire(self, principal: Principal, hmac: bytes, period_ms: int) -> int:
        """Let a token end so long from now; return when. Less than 0: it is removed, though it has expired.

        Raises KafkaError.
        """
        with self._changing:
            token = self._token_of(principal, hmac)
            now = self._now_ms()
            if period_ms < 0:
                self._write(self._nodes.delete, token.token_id)
                self._remove(token.token_id)
                expires = now
            else:
                self._refuse_expired(token, now)
                expires = self._replace(token, now + period_ms)
        self._log("has ended token %s of %s" if period_ms < 0 else "has changed token %s of %s", token)
        return expires

    def _token_of(self, principal: Principal, hmac: bytes) -> Token:
        """Return the token with an HMAC, which somebody may change. Raises KafkaError."""
        token = self._tokens.get(self._ids.get(sha256(hmac).digest(), ""))
        if token is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        if not token.may_be_renewed_by(principal):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return token

    def _refuse_expired(self, token: Token, now: int) -> None:
        if token.has_expired(now):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)

    def _replace(self, token: Token, expires_ms: int) -> int:
        """Write when a token expires; return the time, which is not above the token's limit."""
        later = token._replace(expires_ms=min(token.max_ms, expires_ms))
        if not self._write(self._nodes.replace, later):
            self._remove(token.token_id)
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        self._put(later)
        return later.expires_ms

    def _write(self, write: Callable[[T], R], argument: T) -> R:
        """Change a node. Raises KafkaError."""
        try:
            return write(argument)
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
        except ZooKeeperError as error:
            _LOG.error("%s: a delegation token is not changed: %s", self._name, error)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error

    def _log(self, message: str, token: Token) -> None:
        _LOG.info(f"%s: {message}", self._name, token.token_id, printable(str(token.owner)))

    # -- what others change

    def _put(self, token: Token) -> None:
        """Take a token. Requires ``_changing``."""
        self._tokens[token.token_id] = token
        self._ids[sha256(self.hmac(token)).digest()] = token.token_id

    def _remove(self, token_id: str) -> None:
        """Forget a token. Requires ``_changing``."""
        self._tokens.pop(token_id, None)
        self._ids.pop(sha256(hmac_of(self._settings.secret_key, token_id)).digest(), None)

    def _notified(self, _path: str) -> None:
        self._wake.set()

    def _follow(self) -> None:
        """Take the changes that notifications name; everything after a new session or an error."""
        while True:
            self._wake.wait(min(max(0.0, self._next_check - monotonic()), _MOST_SECONDS))
            self._wake.clear()
            if self._stopped.is_set():
                return
            try:
                if self._reads_all:
                    self._reads_all = False
                    self._read_all()
                else:
                    self._read_changes()
                self._remove_expired()
            except ZooKeeperError as error:
                if self._stopped.is_set():
                    return
                _LOG.warning("%s: the delegation tokens cannot be read: %s", self._name, error)
                self._reads_all = True
                self._stopped.wait(_RETRY_SECONDS)
                self._wake.set()

    def _read_all(self) -> None:
        # The watch is set before anything is read: what changes later is a change.
        self._nodes.watch(self._notified)
        with self._changing:
            found = {one.token_id: one for one in self._nodes.read(self._nodes.ids()) if one is not None}
            for token_id in self._tokens.keys() - found.keys():
                self._remove(token_id)
            for token in found.values():
                self._put(token)
        _LOG.info("%s: there are %d delegation tokens", self._name, len(found))

    def _read_changes(self) -> None:
        ids = self._nodes.read_changes(self._notified)
        # Read and taken under the lock: an older state of a node must not come after a newer one.
        with self._changing:
            for token_id, token in zip(ids, self._nodes.read(ids), strict=True):
                if token is None:
                    self._remove(token_id)
                else:
                    self._put(token)

    def _remove_expired(self) -> None:
        """Remove what has expired, once in each interval. Source: ``expireTokens``."""
        if monotonic() < self._next_check:
            return
        if self._removes_expired():
            now = self._now_ms()
            for token in self.all():
                if token.has_expired(now):
                    with self._changing:
                        self._nodes.delete(token.token_id)
                        self._remove(token.token_id)
                    self._log("has removed token %s of %s, which has expired", token)
        self._next_check = monotonic() + self._settings.expiry_check_interval_ms / 1000
