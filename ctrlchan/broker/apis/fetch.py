"""Fetch (1) on a handler thread: what the processors leave to Python (``replication/_fetch.pyx``).

That is a body that cannot be decoded, and an isolation level that does not exist.
"""

from __future__ import annotations

from ctrlchan.broker.apis.api import Api, Reply, Request
from ctrlchan.broker.apis.client_messages import ClientMessages
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ProtocolError

__all__ = ["API"]


def _handle(_core: StoringCore, request: Request) -> Reply:
    ClientMessages("fetch", request.version).decode(request)
    raise ProtocolError("a Fetch request with an unknown isolation level, or a field that is not valid")


API = Api(key=1, name="Fetch", lowest=4, highest=17, flexible_from=12, handle=_handle, locks_core=False)
