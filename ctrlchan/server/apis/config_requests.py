"""What a broker's and a controller's AlterConfigs and IncrementalAlterConfigs have in common.

``KafkaApis.handleIncrementalAlterConfigsRequest`` and ``ConfigAdminManager.preprocess`` of Kafka 3.9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from ctrlchan.authorizer.acls import CLUSTER_NAME
from ctrlchan.authorizer.acls import Operation as AclOperation
from ctrlchan.config.changes import (
    Change,
    ConfigStore,
    Operation,
    alter_broker,
    alter_topic,
    check_changes,
    replace_broker,
    replace_topic,
)
from ctrlchan.config.policies import NO_POLICIES, Policies
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.access import ALTER_CONFIGS_CLUSTER, ALTER_CONFIGS_TOPIC, Access, DecidedAccess
from ctrlchan.server.api import Reply
from ctrlchan.server.kio_messages import ClientMessages
from ctrlchan.server.log_levels import alter_levels
from ctrlchan.server.result_fields import error_fields

__all__ = ["change_configs", "decided_access", "reply_to"]

#: ``ConfigResource.Type``.
_TOPIC: Final = 2
_BROKER: Final = 4
_BROKER_LOGGER: Final = 8


class _Apply(Protocol):
    """Changes the configs of one resource of a kind. Raises KafkaError."""

    def __call__(
        self,
        store: ConfigStore,
        name: str,
        changes: Sequence[Change],
        policies: Policies = ...,
        /,
        *,
        validate_only: bool,
    ) -> None: ...


_REPLACE: Final[Mapping[int, _Apply]] = {_TOPIC: replace_topic, _BROKER: replace_broker}
_ALTER: Final[Mapping[int, _Apply]] = {_TOPIC: alter_topic, _BROKER: alter_broker}


def change_configs(
    store: ConfigStore, access: Access, messages: ClientMessages, body: Any, policies: Policies = NO_POLICIES
) -> list[KafkaError | None]:
    """Change the configs that a request of either API names; return the error of each resource."""
    counts = Counter((resource.resource_type, resource.resource_name) for resource in body.resources)
    by_type = _REPLACE if messages.api == "alter_configs" else _ALTER

    def error_of(resource: Any) -> KafkaError | None:
        kind, name = resource.resource_type, resource.resource_name
        try:
            if counts[kind, name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if kind not in by_type and not (kind == _BROKER_LOGGER and by_type is _ALTER):
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"AlterConfigs is only supported for topics and brokers, but resource type is {kind}",
                )
            changes = [
                Change(config.name, getattr(config, "config_operation", Operation.SET), config.value)
                for config in resource.configs
            ]
            if kind == _BROKER_LOGGER:
                check_changes(changes)
                _check_access(access, kind, name)
                alter_levels(store.id, name, changes, validate_only=body.validate_only)
                return None
            if kind == _BROKER and access.is_restricted:
                # Kafka looks at the configs of brokers before it authorizes.
                by_type[kind](store, name, changes, validate_only=True)
            _check_access(access, kind, name)
            by_type[kind](store, name, changes, policies, validate_only=body.validate_only)
        except KafkaError as error:
            return error
        return None

    return [error_of(resource) for resource in body.resources]


def decided_access(access: Access, body: Any) -> Access:
    """Return an access that knows what a request of either API needs, and asks nobody."""
    if not access.is_restricted:
        return access
    topics = [one.resource_name for one in body.resources if one.resource_type == _TOPIC]
    asked = [(*ALTER_CONFIGS_TOPIC, name) for name in topics]
    if any(one.resource_type in (_BROKER, _BROKER_LOGGER) for one in body.resources):
        asked.append((*ALTER_CONFIGS_CLUSTER, CLUSTER_NAME))
    return DecidedAccess(access, asked)


def _check_access(access: Access, kind: int, name: str) -> None:
    """Raise KafkaError unless the configs of a resource may be changed."""
    if kind == _TOPIC and not access.allows(*ALTER_CONFIGS_TOPIC, name):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if kind in (_BROKER, _BROKER_LOGGER) and not access.allows_cluster(AclOperation.ALTER_CONFIGS):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def reply_to(messages: ClientMessages, body: Any, errors: Sequence[KafkaError | None]) -> Reply:
    """Return the answer with the error of each resource."""
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
