"""The settings of a channel that its sender processes need."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ConnectionSettings"]


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Times in nanoseconds, sizes in bytes; the names are those of ``ChannelConfig``."""

    connection_setup_timeout: int
    connection_setup_timeout_max: int
    socket_timeout: int
    request_timeout: int
    retry_backoff: int
    max_response_bytes: int
