"""AlterUserScramCredentials (51): sets and deletes credentials of users in ZooKeeper.

``KafkaApis.handleAlterUserScramCredentialsRequest`` of Kafka 3.9; KIP-554.
"""

from __future__ import annotations

from concurrent.futures import Future

from ctrlchan.authorizer.acls import Operation
from ctrlchan.controller.admin.scram import Deletion, Upsertion, alter_credentials
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.access import ALTER_CLUSTER, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages
from ctrlchan.server.result_fields import error_fields

__all__ = ["API"]


def _handle(core: ServerCore, request: Request) -> Reply | Future[Reply]:
    messages = ClientMessages("alter_user_scram_credentials", request.version)
    body = messages.decode(request)
    deletions = [Deletion(user=one.name, mechanism=one.mechanism) for one in body.deletions]
    upsertions = [
        Upsertion(
            user=one.name,
            mechanism=one.mechanism,
            iterations=one.iterations,
            salt=bytes(one.salt),
            salted_password=bytes(one.salted_password),
        )
        for one in body.upsertions
    ]

    def alter(controller: ControllerCore) -> dict[str, KafkaError | None]:
        return alter_credentials(controller, deletions, upsertions)

    def reply(altered: dict[str, KafkaError | None] | KafkaError) -> Reply:
        if isinstance(altered, KafkaError):
            users = [one.user for one in deletions] + [one.user for one in upsertions]
            altered = dict.fromkeys(users, altered)
        return Reply(
            messages.response(
                results=tuple(
                    messages.part("AlterUserScramCredentialsResult", user=user, **error_fields(error, ""))
                    for user, error in altered.items()
                )
            )
        )

    if not core.is_active:
        return reply(KafkaError(ErrorCode.NOT_CONTROLLER))
    if not request.access.allows_cluster(Operation.ALTER):
        return reply(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."))
    return core.call(ControllerState.TOPIC_CHANGE, "AlterUserScramCredentials", alter, reply)


API: Api[ServerCore] = Api(
    key=51,
    name="AlterUserScramCredentials",
    lowest=0,
    highest=0,
    flexible_from=0,
    handle=_handle,
    needs=asks(ALTER_CLUSTER),
)
