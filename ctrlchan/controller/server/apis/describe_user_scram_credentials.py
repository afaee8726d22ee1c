"""DescribeUserScramCredentials (50): which users have which credentials, without the credentials."""

from __future__ import annotations

from concurrent.futures import Future

from ctrlchan.authorizer.acls import Operation
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.server.access import needs_cluster
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.apis.scram_credentials import Described, describe_credentials, description_of

__all__ = ["API"]


def _handle(core: ServerCore, request: Request) -> Future[Reply]:
    users, reply = description_of(request)

    def describe(controller: ControllerCore) -> Described:
        return describe_credentials(controller.nodes, users)

    return core.call(ControllerState.IDLE, "DescribeUserScramCredentials", describe, reply)


API: Api[ServerCore] = Api(
    key=50,
    name="DescribeUserScramCredentials",
    lowest=0,
    highest=0,
    flexible_from=0,
    handle=_handle,
    needs=needs_cluster(Operation.DESCRIBE),
)
