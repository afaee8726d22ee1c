"""Serves an API of the embedded broker from the cluster as the controller knows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from ctrlchan.controller.server.core import ServerCore
from ctrlchan.server.api import Api, Reply, Request

__all__ = ["cluster_api"]


def cluster_api(api: Api[Any]) -> Api[ServerCore]:
    """Return the API with a handler that answers from ``ServerCore.cluster``, under the lock of its state."""

    def reply(core: ServerCore, request: Request) -> Reply:
        cluster = core.cluster()
        with cluster.metadata.state.lock:
            answer = api.handle(cluster, request)
        if callable(answer):
            answer = answer()
        assert isinstance(answer, Reply)
        return answer

    def handle(core: ServerCore, request: Request) -> Callable[[], Reply]:
        # On a thread: the event loop may hold the lock of the state for some time.
        return lambda: reply(core, request)

    return cast("Api[ServerCore]", replace(api, handle=handle))
