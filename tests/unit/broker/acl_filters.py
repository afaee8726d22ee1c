"""Filters of ACLs, as librdkafka takes them."""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)


def every_topic_acl() -> AclBindingFilter:
    """Return the filter that means all ACLs of topics."""
    nothing: Any = None  # Its types do not know that this stands for any name.
    return AclBindingFilter(
        ResourceType.TOPIC,
        nothing,
        ResourcePatternType.ANY,
        nothing,
        nothing,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
