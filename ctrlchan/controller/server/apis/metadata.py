"""Metadata (3): the cluster as the controller knows it.

Topics are never created by a client that asks for them here; brokers create theirs themselves. A controller
that is not the active one knows no brokers and no topics: clients ask another broker then.
"""

from __future__ import annotations

from collections.abc import Callable

from ctrlchan.broker.apis import metadata
from ctrlchan.broker.apis.api import Api, Reply, Request
from ctrlchan.controller.server.core import ServerCore

__all__ = ["API"]


def _handle(core: ServerCore, request: Request) -> Callable[[], Reply]:
    # On a thread: the event loop may hold the lock of the state for some time.
    return lambda: _reply(core, request)


def _reply(core: ServerCore, request: Request) -> Reply:
    cluster = core.cluster()
    with cluster.metadata.state.lock:
        reply = metadata.API.handle(cluster, request)
    assert callable(reply)
    return reply()


API: Api[ServerCore] = Api(
    key=metadata.API.key,
    name=metadata.API.name,
    lowest=metadata.API.lowest,
    highest=metadata.API.highest,
    flexible_from=metadata.API.flexible_from,
    handle=_handle,
)
