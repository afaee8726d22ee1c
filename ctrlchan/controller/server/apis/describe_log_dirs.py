"""DescribeLogDirs (35): one log directory without replicas.

AdminClient asks every node, and takes an answer without a directory for a refusal.
"""

from __future__ import annotations

from ctrlchan.authorizer.acls import Operation
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.server.access import DESCRIBE_CLUSTER, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API"]


def _handle(_: ServerCore, request: Request) -> Reply:
    messages = ClientMessages("describe_log_dirs", request.version)
    messages.decode(request)
    if not request.access.allows_cluster(Operation.DESCRIBE):
        error = KioError.cluster_authorization_failed
        return Reply(messages.response(error_code=error, results=()), error_code=error.value)
    directory = messages.part(
        "DescribeLogDirsResult", error_code=KioError.none, log_dir="(controller)", topics=()
    )
    return Reply(messages.response(error_code=KioError.none, results=(directory,)))


API: Api[ServerCore] = Api(
    key=35,
    name="DescribeLogDirs",
    lowest=0,
    highest=4,
    flexible_from=2,
    handle=_handle,
    needs=asks(DESCRIBE_CLUSTER),
)
