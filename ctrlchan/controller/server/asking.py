"""Asks a broker for what clients ask the controller for: brokers create topics, with their own settings."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Final
from weakref import WeakKeyDictionary

from ctrlchan.controller.server.core import ServerCore
from ctrlchan.controller.server.metadata import ControllerMetadata
from ctrlchan.errors import ConfigError, DecodeError
from ctrlchan.peers.connection import PeerConnection
from ctrlchan.peers.security import PeerSecurity
from ctrlchan.server.apis.lookups import Node

__all__ = ["ask_aside", "ask_one", "nodes_to_ask"]

_LOG: Final = logging.getLogger("ctrlchan.controller")

#: For the answer of a broker.
_SECONDS: Final = 5.0

_LOCK: Final = threading.Lock()
#: What threads ask brokers for.
_ASKED: Final[WeakKeyDictionary[ServerCore, set[str]]] = WeakKeyDictionary()


def ask_aside(core: ServerCore, what: str, ask: Callable[[], None]) -> None:
    """Call `ask` on a thread of its own, unless a thread asks for this already.

    A broker that does not answer keeps no client waiting, and no thread that handles requests.
    """
    with _LOCK:
        asked = _ASKED.setdefault(core, set())
        if what in asked:
            return
        asked.add(what)

    def run() -> None:
        try:
            ask()
        finally:
            with _LOCK:
                asked.discard(what)

    try:
        threading.Thread(target=run, name="topics-of-clients", daemon=True).start()
    except RuntimeError as error:
        with _LOCK:
            asked.discard(what)
        _LOG.warning("no broker is asked for %s: %s", what, error)


def nodes_to_ask(core: ServerCore, metadata: ControllerMetadata, listener: str) -> Sequence[Node]:
    """Return the brokers at the listener that the controller connects to, else at that of the client.

    The caller holds the lock of the state.
    """
    channel = core.config.channel
    return metadata.nodes(channel.listener_name or channel.broker_listener) or metadata.nodes(listener)


def ask_one(core: ServerCore, brokers: Iterable[Node], api_key: int, version: int, body: bytes) -> None:
    """Send a request, of a version that is not flexible, to brokers until one answers. Drop the answer."""
    credentials = core.config.channel.credentials
    try:
        security = PeerSecurity(credentials.tls, credentials.sasl)
    except ConfigError as error:
        _LOG.error("request %d to the brokers: %s", api_key, error)
        return
    for broker in brokers:
        try:
            connection = PeerConnection((broker.host, broker.port), b"controller", security=security)
            try:
                connection.exchange(api_key, version, False, body, monotonic() + _SECONDS)
            finally:
                connection.close()
        except (OSError, DecodeError) as error:
            _LOG.info("request %d to broker %d: %s", api_key, broker.id, error)
            continue
        return
