"""ListGroups (16): none. AdminClient asks every node for its groups, and the controller coordinates none."""

from __future__ import annotations

from ctrlchan.controller.server.core import ServerCore
from ctrlchan.server.access import NOTHING
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API"]


def _handle(_: ServerCore, request: Request) -> Reply:
    return Reply(ClientMessages("list_groups", request.version).response(error_code=KioError.none, groups=()))


API: Api[ServerCore] = Api(
    key=16, name="ListGroups", lowest=0, highest=5, flexible_from=3, handle=_handle, needs=NOTHING
)
