"""ListenerStores: the key store and the trust store of one TLS listener, and which ones may take their place.

Source: ``SslFactory`` of Kafka 3.9, server mode.
"""

from __future__ import annotations

import dataclasses
import logging
import ssl
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from ctrlchan.config import table
from ctrlchan.errors import ConfigError
from ctrlchan.security.alternative_names import alternative_names, shown_name
from ctrlchan.security.der import MalformedName
from ctrlchan.security.distinguished_names import is_same_name, java_name
from ctrlchan.security.listener_security import ClientAuth, ListenerSecurity
from ctrlchan.security.stores import file_states
from ctrlchan.security.tls_context import context_of, server_context_of
from ctrlchan.security.trial_handshake import why_no_handshake
from ctrlchan.server.tls_contexts import ListenerContext, log_expiry, read_listener_stores, tls_context_of

if TYPE_CHECKING:
    from ctrlchan.security.settings import TlsSettings

__all__ = ["ListenerStores"]

logger = logging.getLogger("ctrlchan.broker")

_VERIFY_MODES: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


class _Sides(NamedTuple):
    """Contexts of Python's ssl with the same stores, for trial handshakes."""

    client: ssl.SSLContext
    server: ssl.SSLContext


class _Read(NamedTuple):
    """Stores that can be used. ``states``: of their files. ``sides``: of an inter-broker listener alone."""

    settings: TlsSettings
    states: tuple[object, ...]
    context: ListenerContext
    sides: _Sides | None


class ListenerStores:
    """The stores that new connections of a listener have. Any thread may call the methods.

    ``is_inter_broker``: brokers connect to each other there, with these stores on both sides, so the key
    store must be one that the trust store trusts. Reads the files; raises ConfigError.
    """

    def __init__(self, name: str, security: ListenerSecurity, *, is_inter_broker: bool = False) -> None:
        assert security.tls is not None
        self.name: Final = name
        self.refresh_ms: Final = security.stores_refresh_ms
        self._security = security
        self._tls = security.tls
        self._is_inter_broker = is_inter_broker
        #: Held while stores take the place of others.
        self._lock = threading.Lock()
        self._problem: str | None = None
        self._used = self._read(self._tls)
        sides = self._used.sides
        if sides is not None and (reason := why_no_handshake(*sides)) is not None:
            raise ConfigError(
                f"listener {name}: brokers cannot connect to each other: its key store "
                f"({table.SSL_KEYSTORE_LOCATION}) is not trusted by its trust store "
                f"({table.SSL_TRUSTSTORE_LOCATION}): {reason}"
            )
        log_expiry(name, self._used.context)

    @property
    def context(self) -> ListenerContext:
        """The context with these stores."""
        return self._used.context

    def check(self, tls: TlsSettings) -> None:
        """Raise ConfigError for stores that cannot take the place of the present ones."""
        self._read_checked(tls)

    def replace(self, tls: TlsSettings, use: Callable[[ListenerContext], object]) -> None:
        """Call ``use`` with the context of other stores, whose files are read now.

        Raises ConfigError for stores that cannot be used: the ones before stay.
        """
        with self._lock:
            self._take(self._read_checked(tls), use)

    def reread(self, use: Callable[[ListenerContext], object]) -> None:
        """Call ``use`` with the context of files that have changed. One that is gone has not, as in Kafka.

        Raises ConfigError for files that cannot be used: what they had before stays in use.
        """
        with self._lock:
            states = file_states(self._used.settings)
            if states != self._used.states and None not in states:
                self._take(self._checked(self._read(self._used.settings)), use)

    def refresh(self, use: Callable[[ListenerContext], object]) -> None:
        """Call ``use`` with the context of files that have changed. Those that cannot be used are logged."""
        with self._lock:
            if file_states(self._used.settings) == self._used.states:
                self._problem = None
                return
            try:
                read = self._checked(self._read(self._used.settings))
            except ConfigError as error:
                # Half of a file, or one file of two. The next refresh tries again.
                if str(error) != self._problem:
                    self._problem = str(error)
                    logger.warning("the stores before stay in use: %s", error)
                return
            logger.info("listener %s: changed files of its stores are used", self.name)
            self._take(read, use)

    def _take(self, read: _Read, use: Callable[[ListenerContext], object]) -> None:
        log_expiry(self.name, read.context)
        use(read.context)
        self._used, self._problem = read, None

    def _read_checked(self, tls: TlsSettings) -> _Read:
        # What is no store stays as it was at the start.
        return self._checked(self._read(self._tls.with_stores_of(tls)))

    def _read(self, settings: TlsSettings) -> _Read:
        """Return the stores of the settings as they are now. Raises ConfigError."""
        security = dataclasses.replace(self._security, tls=settings)
        # Before the files are read: what changes meanwhile is a change.
        states = file_states(settings)
        stores = read_listener_stores(self.name, security, trusts=self._is_inter_broker)
        context = tls_context_of(self.name, security, stores)
        sides = None
        if self._is_inter_broker:
            try:
                sides = _Sides(
                    context_of(dataclasses.replace(settings, verify_host_name=False), stores),
                    server_context_of(settings, _VERIFY_MODES[security.client_auth], stores),
                )
            except (OSError, ValueError) as problem:
                raise ConfigError(f"listener {self.name}: {problem}") from None
        return _Read(settings, states, context, sides)

    def _checked(self, new: _Read) -> _Read:
        """Return stores that may take the place of the present ones. Raises ConfigError."""
        old = self._used
        if new.settings.has_trust_store and not old.settings.has_trust_store:
            raise ConfigError(
                f"listener {self.name}: Cannot add SSL truststore to an existing listener for which no "
                "truststore was configured."
            )
        try:
            self._check_names(old.context, new.context)
        except MalformedName as problem:
            raise ConfigError(f"listener {self.name}: a name in its certificate: {problem}") from None
        if old.sides is not None and new.sides is not None:
            self._check_sides(old.sides, new.sides)
        return new

    def _check_sides(self, old: _Sides, new: _Sides) -> None:
        """Raise ConfigError unless brokers with new stores and brokers with old ones trust each other."""
        for client, server, which in ((new, old, "old"), (old, new, "new")):
            reason = why_no_handshake(client.client, server.server)
            if reason is not None:
                raise ConfigError(
                    f"listener {self.name}: brokers with the present stores and brokers with the new ones "
                    f"cannot connect to each other (the server has the {which} ones): {reason}"
                )

    def _check_names(self, old: ListenerContext, new: ListenerContext) -> None:
        """Raise ConfigError for a certificate of another name, or without a host that the old one names.

        Kafka compares all entries of the key store; here the certificate in use counts.
        """
        if not self._security.allows_dn_changes and not is_same_name(old.subject, new.subject):
            raise ConfigError(
                f"listener {self.name}: Keystore DistinguishedName does not match: existing={{DN="
                f"{java_name(old.subject)}}}, new={{DN={java_name(new.subject)}}} "
                f"({table.SSL_ALLOW_DN_CHANGES} is false)"
            )
        before, after = (alternative_names(one.alternative_names) for one in (old, new))
        if not self._security.allows_san_changes and not before <= after:
            raise ConfigError(
                f"listener {self.name}: Keystore SubjectAltNames do not match: existing={{SAN="
                f"{_shown(before)}}}, new={{SAN={_shown(after)}}} ({table.SSL_ALLOW_SAN_CHANGES} is false)"
            )


def _shown(names: Iterable[tuple[int, bytes]]) -> str:
    return f"[{', '.join(sorted(map(shown_name, names)))}]"
