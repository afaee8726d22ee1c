"""AlterConfigs (33) and IncrementalAlterConfigs (44): changes configs of topics and brokers.

Clients send them to any node, and may take the controller for one. The configs of brokers are the dynamic
ones: those of the controller's own id, as kafka-reassign-partitions sets and deletes for every node, or those
of all brokers.
``KafkaApis.handleIncrementalAlterConfigsRequest`` and ``ConfigAdminManager.preprocess`` of Kafka 3.9 without
an authorizer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from ctrlchan.broker.apis.api import Api, Reply, Request
from ctrlchan.broker.apis.client_messages import ClientMessages
from ctrlchan.controller.admin.configs import (
    Change,
    Operation,
    alter_broker,
    alter_topic,
    replace_broker,
    replace_topic,
)
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.server.apis.results import error_fields
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.controller.term.events import ControllerState
from ctrlchan.errors import ErrorCode, KafkaError

__all__ = ["ALTER", "INCREMENTAL_ALTER"]

#: ``ConfigResource.Type``.
_TOPIC: Final = 2
_BROKER: Final = 4


class _Apply(Protocol):
    """Changes the configs of one resource of a kind. Raises KafkaError."""

    def __call__(
        self, core: ControllerCore, name: str, changes: Sequence[Change], /, *, validate_only: bool
    ) -> None: ...


async def _alter(core: ServerCore, request: Request) -> Reply:
    return await _handle("alter_configs", core, request, {_TOPIC: replace_topic, _BROKER: replace_broker})


async def _incremental_alter(core: ServerCore, request: Request) -> Reply:
    by_type: dict[int, _Apply] = {_TOPIC: alter_topic, _BROKER: alter_broker}
    return await _handle("incremental_alter_configs", core, request, by_type)


ALTER: Api[ServerCore] = Api(key=33, name="AlterConfigs", lowest=0, highest=2, flexible_from=2, handle=_alter)
INCREMENTAL_ALTER: Api[ServerCore] = Api(
    key=44, name="IncrementalAlterConfigs", lowest=0, highest=1, flexible_from=1, handle=_incremental_alter
)


async def _handle(api: str, core: ServerCore, request: Request, by_type: Mapping[int, _Apply]) -> Reply:
    messages = ClientMessages(api, request.version)
    body = messages.decode(request)
    counts = Counter((resource.resource_type, resource.resource_name) for resource in body.resources)

    def change(controller: ControllerCore) -> list[KafkaError | None]:
        return [_error_of(controller, resource) for resource in body.resources]

    def _error_of(controller: ControllerCore, resource: Any) -> KafkaError | None:
        kind, name = resource.resource_type, resource.resource_name
        try:
            if counts[kind, name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if kind not in by_type:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"AlterConfigs is only supported for topics and brokers, but resource type is {kind}",
                )
            changes = [
                Change(config.name, getattr(config, "config_operation", Operation.SET), config.value)
                for config in resource.configs
            ]
            by_type[kind](controller, name, changes, validate_only=body.validate_only)
        except KafkaError as error:
            return error
        return None

    errors = await core.call(ControllerState.TOPIC_CHANGE, "AlterConfigs", change)
    if isinstance(errors, KafkaError):
        errors = [errors] * len(body.resources)
    return Reply(
        messages.response(
            responses=tuple(
                messages.part(
                    "AlterConfigsResourceResponse",
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    **error_fields(error),
                )
                for resource, error in zip(body.resources, errors, strict=True)
            )
        )
    )
