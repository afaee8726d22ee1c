"""Serves an API of the embedded broker from the cluster as the controller knows it."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any, cast

from ctrlchan.controller.server.core import ServerCore
from ctrlchan.server.api import Api, Reply, Request

__all__ = ["cluster_api"]


def cluster_api(api: Api[Any]) -> Api[ServerCore]:
    """Return the API with a handler that answers from ``ServerCore.cluster``."""

    def handle(core: ServerCore, request: Request) -> Reply | Future[Reply]:
        return api.handle(core.cluster(), request)

    return cast("Api[ServerCore]", replace(api, handle=handle))
