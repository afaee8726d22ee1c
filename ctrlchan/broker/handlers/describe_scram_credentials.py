"""DescribeUserScramCredentials (50): any broker reads the users in ZooKeeper, as Kafka does in this mode."""

from __future__ import annotations

from typing import Final

from ctrlchan.authorizer.acls import Operation
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode, KafkaError, ZooKeeperError
from ctrlchan.server.access import needs_cluster
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.apis.scram_credentials import describe_credentials, description_of

__all__ = ["API"]


def _handle(core: StoringCore, request: Request) -> Reply:
    users, reply = description_of(request)
    # The API is announced only where there is a ZooKeeper.
    assert core.config_store is not None
    try:
        return reply(describe_credentials(core.config_store, users))
    except ZooKeeperError as error:
        return reply(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))


API: Final[Api[StoringCore]] = Api(
    key=50,
    name="DescribeUserScramCredentials",
    lowest=0,
    highest=0,
    flexible_from=0,
    handle=_handle,
    locks_core=False,
    needs=needs_cluster(Operation.DESCRIBE),
)
