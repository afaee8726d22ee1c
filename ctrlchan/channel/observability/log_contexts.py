"""The loggers of a channel, with Kafka's contexts, and what Kafka's client says of lost connections.

Source: ``kafka.controller.ControllerChannelManager``, ``org.apache.kafka.clients.NetworkClient`` (Kafka 3.9).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from ctrlchan.log_context import ContextLogger
from ctrlchan.security.failure import Failure

__all__ = ["LOST_CONNECTIONS", "client_log", "manager_log", "sender_log"]

_LOG: Final = logging.getLogger("ctrlchan.channel")

_DISCONNECTED: Final = (logging.INFO, "Node %d disconnected.")
_NOT_AUTHENTICATED: Final = (
    logging.ERROR,
    "Connection to node %d (%s) failed authentication due to: %s",
)

#: What the client says besides, by failure: level, and message with the first of broker id, address, problem.
LOST_CONNECTIONS: Final[Mapping[Failure, tuple[int, str]]] = {
    Failure.NONE: _DISCONNECTED,
    Failure.CLOSED: _DISCONNECTED,
    Failure.IO: _DISCONNECTED,
    Failure.RESOLVE: (logging.WARNING, "Error connecting to node %d (%s): %s"),
    Failure.CONNECT: (
        logging.WARNING,
        "Connection to node %d (%s) could not be established. Node may not be available.",
    ),
    Failure.CONNECT_TIMEOUT: (
        logging.INFO,
        "Disconnecting from node %d due to socket connection setup timeout.",
    ),
    Failure.REQUEST_TIMEOUT: (logging.INFO, "Disconnecting from node %d due to request timeout."),
    Failure.TLS: _NOT_AUTHENTICATED,
    Failure.CERTIFICATE: _NOT_AUTHENTICATED,
    Failure.MECHANISM: _NOT_AUTHENTICATED,
    Failure.AUTHENTICATION: _NOT_AUTHENTICATED,
    Failure.HANDSHAKE: (
        logging.WARNING,
        "Connection to node %d (%s) terminated during authentication: %s",
    ),
}


def sender_log(controller_id: int) -> ContextLogger:
    """Return the logger of what Kafka's threads say that send requests."""
    return ContextLogger(_LOG, f"[RequestSendThread controllerId={controller_id}] ")


def manager_log(controller_id: int) -> ContextLogger:
    """Return the logger of what Kafka's owner of these threads says."""
    return ContextLogger(_LOG, f"[Channel manager on controller {controller_id}]: ")


def client_log(controller_id: int, broker_id: int) -> ContextLogger:
    """Return the logger of what Kafka's client says of the connection to a broker."""
    return ContextLogger(_LOG, f"[Controller id={controller_id}, targetBrokerId={broker_id}] ")
