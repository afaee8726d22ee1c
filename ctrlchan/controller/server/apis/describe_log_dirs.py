"""DescribeLogDirs (35): one log directory without replicas.

AdminClient asks every node, and takes an answer without a directory for a refusal.
"""

from __future__ import annotations

from ctrlchan.authorizer.acls import Operation
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.server.access import needs_cluster
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API"]


def _handle(_: ServerCore, request: Request) -> Reply:
    messages = ClientMessages("describe_log_dirs", request.version)
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
    needs=needs_cluster(Operation.DESCRIBE),
)
