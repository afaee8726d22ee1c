"""DescribeClientQuotas (48) and AlterClientQuotas (49) of the controller, which applies no quotas itself."""

from __future__ import annotations

from concurrent.futures import Future

from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.apis.client_quotas import Alterations, alter_api, describe, describe_api

__all__ = ["ALTER", "DESCRIBE"]


def _describe(core: ServerCore, request: Request) -> Reply:
    return describe(request, core.read_quotas)


def _alter(core: ServerCore, request: Request) -> Future[Reply]:
    changes = Alterations(request)
    return core.call(
        ControllerState.TOPIC_CHANGE,
        "AlterClientQuotas",
        lambda controller: changes.apply(controller.nodes),
        changes.reply,
    )


DESCRIBE: Api[ServerCore] = describe_api(_describe)
ALTER: Api[ServerCore] = alter_api(_alter)
