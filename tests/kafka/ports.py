"""A free port, for servers that cannot report the port that they take for 0."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free now; another process may take it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
