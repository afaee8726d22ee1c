"""Who may ask for a coordinator: what FindCoordinator (10) of a broker and of the controller have in common.

``KafkaApis.handleFindCoordinatorRequest`` of Kafka 3.9.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from ctrlchan.authorizer.acls import Operation
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.access import (
    CLUSTER_ACTION_CLUSTER,
    DESCRIBE_GROUP,
    DESCRIBE_TRANSACTIONAL_ID,
    Access,
    asks,
)

__all__ = ["NEEDS", "SHARES_SINCE", "CoordinatorType", "refusal_of"]


class CoordinatorType(IntEnum):
    """``FindCoordinatorRequest.CoordinatorType``."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


#: The first version that may ask for the coordinator of a share group.
SHARES_SINCE: Final = 6

NEEDS: Final = asks(DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID, CLUSTER_ACTION_CLUSTER)


def refusal_of(access: Access, version: int, key_type: int, key: str) -> KafkaError | None:
    """Return the error of who may not ask for the coordinator of a key."""
    if key_type == CoordinatorType.GROUP and not access.allows(*DESCRIBE_GROUP, key):
        return KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    if key_type == CoordinatorType.TRANSACTION and not access.allows(*DESCRIBE_TRANSACTIONAL_ID, key):
        return KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional Id authorization failed."
        )
    if (
        key_type == CoordinatorType.SHARE
        and version >= SHARES_SINCE
        and not access.allows_cluster(Operation.CLUSTER_ACTION)
    ):
        return KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    return None
