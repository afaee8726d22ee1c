"""DescribeUserScramCredentials (50): which users have which credentials, without the credentials.

``ZkAdminManager.describeUserScramCredentials`` of Kafka 3.9; KIP-554.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from typing import Any

from ctrlchan.authorizer.acls import Operation
from ctrlchan.controller.admin.scram import CredentialInfo, describe_credentials
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.access import needs_cluster
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages
from ctrlchan.server.result_fields import error_fields

__all__ = ["API"]


def _handle(core: ServerCore, request: Request) -> Future[Reply]:
    messages = ClientMessages("describe_user_scram_credentials", request.version)
    body = messages.decode(request)
    counts = None if not body.users else Counter(user.name for user in body.users)

    def describe(controller: ControllerCore) -> dict[str, list[CredentialInfo] | KafkaError]:
        return describe_credentials(controller, counts)

    def reply(found: dict[str, list[CredentialInfo] | KafkaError] | KafkaError) -> Reply:
        if isinstance(found, KafkaError):
            return Reply(messages.response(**error_fields(found), results=()), error_code=found.code)
        results: list[Any] = []
        for user in found if counts is None else counts:
            error = None
            credentials = found.get(user)
            if counts is not None and counts[user] > 1:
                error = KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}",
                )
            elif isinstance(credentials, KafkaError):
                error = credentials
            elif not credentials:
                error = KafkaError(
                    ErrorCode.RESOURCE_NOT_FOUND,
                    f"Attempt to describe a user credential that does not exist: {user}",
                )
            results.append(
                messages.part(
                    "DescribeUserScramCredentialsResult",
                    user=user,
                    credential_infos=tuple(
                        messages.part("CredentialInfo", mechanism=info.mechanism, iterations=info.iterations)
                        for info in (credentials if isinstance(credentials, list) and error is None else ())
                    ),
                    **error_fields(error),
                )
            )
        return Reply(messages.response(**error_fields(None), results=tuple(results)))

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
