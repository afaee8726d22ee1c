"""AlterConfigs (33) and IncrementalAlterConfigs (44): changes the configs of topics.

Clients send them to any node, and may take the controller for one. Configs of brokers are refused: a broker
checks and applies its own. The controller itself has none that could be changed, but they can be deleted:
kafka-reassign-partitions deletes the throttles of every node.
``KafkaApis.handleIncrementalAlterConfigsRequest`` of Kafka 3.9 without an authorizer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ctrlchan.broker.apis.api import Api, Reply, Request
from ctrlchan.broker.apis.client_messages import ClientMessages
from ctrlchan.controller.admin.configs import Change, Operation, alter_topic, replace_topic
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.server.apis.results import error_fields
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.controller.term.events import ControllerState
from ctrlchan.errors import ErrorCode, KafkaError

__all__ = ["ALTER", "INCREMENTAL_ALTER"]

#: ``ConfigResource.Type``.
_TOPIC: Final = 2
_BROKER: Final = 4


async def _alter(core: ServerCore, request: Request) -> Reply:
    def apply(controller: ControllerCore, resource: Any, validate_only: bool) -> None:
        configs = [(config.name, config.value) for config in resource.configs]
        replace_topic(controller, resource.resource_name, configs, validate_only=validate_only)

    return await _handle("alter_configs", core, request, apply)


async def _incremental_alter(core: ServerCore, request: Request) -> Reply:
    def apply(controller: ControllerCore, resource: Any, validate_only: bool) -> None:
        changes = [Change(config.name, config.config_operation, config.value) for config in resource.configs]
        alter_topic(controller, resource.resource_name, changes, validate_only=validate_only)

    return await _handle("incremental_alter_configs", core, request, apply)


ALTER: Api[ServerCore] = Api(key=33, name="AlterConfigs", lowest=0, highest=2, flexible_from=2, handle=_alter)
INCREMENTAL_ALTER: Api[ServerCore] = Api(
    key=44, name="IncrementalAlterConfigs", lowest=0, highest=1, flexible_from=1, handle=_incremental_alter
)


async def _handle(
    api: str, core: ServerCore, request: Request, apply: Callable[[ControllerCore, Any, bool], None]
) -> Reply:
    messages = ClientMessages(api, request.version)
    body = messages.decode(request)

    def change(controller: ControllerCore) -> list[KafkaError | None]:
        return [_error_of(controller, resource) for resource in body.resources]

    def _error_of(controller: ControllerCore, resource: Any) -> KafkaError | None:
        try:
            if resource.resource_type == _TOPIC:
                apply(controller, resource, body.validate_only)
            elif not _deletes_configs_of(core.id, resource):
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"A controller alters the configs of topics only, not of resource type "
                    f"{resource.resource_type} {resource.resource_name!r}: ask a broker.",
                )
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


def _deletes_configs_of(broker_id: int, resource: Any) -> bool:
    """Return whether the resource is this broker, and nothing is set for it."""
    if resource.resource_type != _BROKER or resource.resource_name != str(broker_id):
        return False
    return all(getattr(config, "config_operation", None) == Operation.DELETE for config in resource.configs)
