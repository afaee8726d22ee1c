"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31): there is no authorizer, and the answer says so.

``kafka.server.AclApis`` of Kafka 3.9 without an authorizer. MirrorMaker takes SECURITY_DISABLED for a cluster
without ACLs; any other failure is an error in its log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ctrlchan.errors import DecodeError
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.error_responses import error_response
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["APIS"]

_UNKNOWN: Final = 0
#: Fields of a filter or an ACL that Kafka does not take with the value UNKNOWN.
_KINDS: Final = (
    "resource_type",
    "resource_type_filter",
    "resource_pattern_type",
    "pattern_type_filter",
    "operation",
    "permission_type",
)


def _handler(message: str, array: str | None, text: str) -> Callable[[Any, Request], Reply]:
    """``array``: the field with the request's filters or ACLs; None if the request itself is one filter."""

    def handle(_: Any, request: Request) -> Reply:
        messages = ClientMessages(message, request.version)
        body = messages.decode(request)
        for one in (body,) if array is None else getattr(body, array):
            if any(getattr(one, name, None) == _UNKNOWN for name in _KINDS):
                raise DecodeError("an unknown kind of ACL", api=message, version=request.version)
        error = KioError.security_disabled
        return Reply(error_response(messages, body, error, text), error_code=error.value)

    return handle


def _api(key: int, name: str, handle: Callable[[Any, Request], Reply]) -> Api[Any]:
    return Api(key=key, name=name, lowest=0, highest=3, flexible_from=2, handle=handle, locks_core=False)


APIS: Final[tuple[Api[Any], ...]] = (
    _api(29, "DescribeAcls", _handler("describe_acls", None, "No Authorizer is configured on the broker")),
    _api(30, "CreateAcls", _handler("create_acls", "creations", "No Authorizer is configured.")),
    _api(31, "DeleteAcls", _handler("delete_acls", "filters", "No Authorizer is configured.")),
)
