"""ListTransactions (66): none. AdminClient asks every node, and the controller coordinates none."""

from __future__ import annotations

from ctrlchan.controller.server.core import ServerCore
from ctrlchan.server.access import NOTHING
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API"]


def _handle(_: ServerCore, request: Request) -> Reply:
    messages = ClientMessages("list_transactions", request.version)
    return Reply(messages.response(error_code=KioError.none, unknown_state_filters=(), transaction_states=()))


API: Api[ServerCore] = Api(
    key=66, name="ListTransactions", lowest=0, highest=1, flexible_from=0, handle=_handle, needs=NOTHING
)
