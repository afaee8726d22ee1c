"""UpdateFeatures (57): changes finalized features.

``KafkaApis.handleUpdateFeatures`` of Kafka 3.9; KIP-584, KIP-778 (version 1). Kafka's
own answer in ZooKeeper mode names all features as successful; this one has the result of each feature.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from ctrlchan.authorizer.acls import Operation
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.handlers.features import FeatureUpdate, UpdateResult, UpgradeType, update
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.access import ALTER_CLUSTER, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages
from ctrlchan.server.result_fields import answer_fields

__all__ = ["API"]


def _handle(core: ServerCore, request: Request) -> Reply | Future[Reply]:
    messages = ClientMessages("update_features", request.version)
    body = messages.decode(request)
    updates = [FeatureUpdate(one.feature, one.max_version_level, _kind(one)) for one in body.feature_updates]
    validate_only = getattr(body, "validate_only", False)

    def change(controller: ControllerCore) -> UpdateResult:
        return update(controller, updates, validate_only=validate_only)

    def reply(result: UpdateResult | KafkaError) -> Reply:
        if isinstance(result, KafkaError):
            result = UpdateResult(result.code, result.message or None, {})
        return Reply(
            messages.response(
                **answer_fields((result.error, result.message)),
                results=tuple(
                    messages.part("UpdatableFeatureResult", feature=feature, **answer_fields(answer))
                    for feature, answer in result.features.items()
                ),
            ),
            error_code=result.error,
        )

    if not request.access.allows_cluster(Operation.ALTER):
        return reply(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    return core.call(ControllerState.UPDATE_FEATURES, "UpdateFeatures", change, reply)


API: Api[ServerCore] = Api(
    key=57,
    name="UpdateFeatures",
    lowest=0,
    highest=1,
    flexible_from=0,
    handle=_handle,
    needs=asks(ALTER_CLUSTER),
)


def _kind(asked: Any) -> UpgradeType:
    if hasattr(asked, "upgrade_type"):
        return UpgradeType.of(asked.upgrade_type)
    # As UpdateFeaturesRequest.FeatureUpdateItem reads version 0.
    return UpgradeType.SAFE_DOWNGRADE if asked.allow_downgrade else UpgradeType.UPGRADE
