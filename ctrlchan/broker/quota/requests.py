"""RequestQuotas: charges the requests that handler threads answer to the quotas of their clients.

``RequestHandlerHelper`` of Kafka 3.9: requests of controllers are exempt from the request quota.
"""

from __future__ import annotations

from typing import Final

from ctrlchan.broker.quota._client_quotas import ClientQuotas, QuotaType
from ctrlchan.broker.quota.callback import AskedQuotas, number_of
from ctrlchan.errors import ErrorCode
from ctrlchan.server.api import Reply, Request
from ctrlchan.server.request_context import RequestContext

__all__ = ["RequestQuotas"]

_PRODUCE: Final = 0
#: LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown, WriteTxnMarkers, AlterPartition: exempt for
#: those who may send them.
_EXEMPT: Final = frozenset({4, 5, 6, 7, 27, 56})
_NS: Final = 1_000_000_000


class RequestQuotas:
    """What ``RequestHandler`` asks about each answer. ``asked``: None without a class of the user's own."""

    def __init__(self, quotas: ClientQuotas, asked: AskedQuotas | None = None) -> None:
        self._quotas = quotas
        self._asked = asked

    def number_user(self, context: RequestContext) -> int:
        """Return the number of the user who sends the requests of a connection."""
        return number_of(self._quotas, self._asked, context.principal)

    def charge(self, api_key: int, request: Request, reply: Reply, seconds: float) -> int:
        """Charge a request whose answer is made. Return its throttle time in milliseconds.

        ``seconds``: for which it has kept a handler thread.
        """
        quotas = self._quotas
        if not quotas.are_enabled:
            return 0
        user = self.number_user(request.context)
        client_id, spent_ns = request.client_id or b"", int(seconds * _NS)
        if api_key == _PRODUCE:
            return quotas.charge_request(
                user,
                client_id,
                spent_ns,
                is_exempt=not reply.is_sent,
                quota_type=QuotaType.PRODUCE,
                size=len(request.frame) - request.offset,
            )
        is_exempt = api_key in _EXEMPT and reply.error_code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return quotas.charge_request(user, client_id, spent_ns, is_exempt=is_exempt)
