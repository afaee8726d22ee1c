"""Who may have a producer id: what InitProducerId (22) of a broker and of the controller have in common.

``KafkaApis.handleInitProducerIdRequest`` of Kafka 3.9.
"""

from __future__ import annotations

from typing import Final

from ctrlchan.authorizer.acls import Operation
from ctrlchan.errors import ErrorCode
from ctrlchan.server.access import IDEMPOTENT_WRITE_CLUSTER, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID, Access, asks

__all__ = ["NEEDS", "refusal_of"]

NEEDS: Final = asks(WRITE_TRANSACTIONAL_ID, IDEMPOTENT_WRITE_CLUSTER, WRITE_TOPIC)


def refusal_of(access: Access, transactional_id: str | None) -> ErrorCode | None:
    """Return the error of a producer that may have no id."""
    if transactional_id is not None:
        if not access.allows(*WRITE_TRANSACTIONAL_ID, transactional_id):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not access.allows_cluster(Operation.IDEMPOTENT_WRITE, logs=False) and not access.allows_any(
        *WRITE_TOPIC
    ):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return None
