"""DescribeCluster (60): the brokers, this controller among them, as the controller knows them."""

from __future__ import annotations

from collections.abc import Callable

from ctrlchan.broker.apis import describe_cluster
from ctrlchan.broker.apis.api import Api, Reply, Request
from ctrlchan.controller.server.core import ServerCore

__all__ = ["API"]


def _handle(core: ServerCore, request: Request) -> Callable[[], Reply]:
    # On a thread: the event loop may hold the lock of the state for some time.
    return lambda: _reply(core, request)


def _reply(core: ServerCore, request: Request) -> Reply:
    cluster = core.cluster()
    with cluster.metadata.state.lock:
        reply = describe_cluster.API.handle(cluster, request)
    assert isinstance(reply, Reply)
    return reply


API: Api[ServerCore] = Api(
    key=describe_cluster.API.key,
    name=describe_cluster.API.name,
    lowest=describe_cluster.API.lowest,
    highest=describe_cluster.API.highest,
    flexible_from=describe_cluster.API.flexible_from,
    handle=_handle,
)
