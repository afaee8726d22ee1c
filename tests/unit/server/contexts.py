"""Contexts of requests that no server has received."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from ctrlchan.server.request_context import RequestContext
from ctrlchan.state import SecurityProtocol

__all__ = ["LOCAL_CLIENT", "SASL_CLIENT", "context"]


def context(listener: str = "PLAINTEXT", client_host: str = "127.0.0.1", **more: Any) -> RequestContext:
    """Return the context of a plaintext connection."""
    port, number = more.pop("client_port", 50_000), more.pop("connection_id", 1)
    return RequestContext(listener, SecurityProtocol.PLAINTEXT, client_host, port, number, **more)


LOCAL_CLIENT: Final = context()
#: One that has authenticated himself.
SASL_CLIENT: Final = replace(LOCAL_CLIENT, security_protocol=SecurityProtocol.SASL_PLAINTEXT)
