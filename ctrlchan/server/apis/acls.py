"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31): the ACLs of the authorizer.

``kafka.server.AclApis`` of Kafka 3.9. Without an authorizer the answer is SECURITY_DISABLED: MirrorMaker
takes it for a cluster without ACLs; any other failure is an error in its log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from ctrlchan.authorizer.acls import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclBinding,
    AclFilter,
    EntryFilter,
    Operation,
    PatternType,
    Permission,
    ResourceFilter,
    ResourcePattern,
    ResourceType,
)
from ctrlchan.authorizer.interface import DeletedAcl
from ctrlchan.errors import DecodeError, ErrorCode, KafkaError
from ctrlchan.server.access import AuthorizedAccess, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.error_responses import error_response
from ctrlchan.server.kio_messages import ClientMessages, KioError
from ctrlchan.server.result_fields import error_fields

__all__ = ["APIS"]

_UNKNOWN: Final = 0
_LITERAL: Final = int(PatternType.LITERAL)
#: Fields of a filter or an ACL that Kafka does not take with the value UNKNOWN.
_KINDS: Final = (
    "resource_type",
    "resource_type_filter",
    "resource_pattern_type",
    "pattern_type_filter",
    "operation",
    "permission_type",
)
#: The members of each kind that only filters have: Kafka cannot make such an ACL, and fails as a whole.
_OF_FILTERS: Final = (
    ("resource_type", (ResourceType.ANY,)),
    ("resource_pattern_type", (PatternType.ANY, PatternType.MATCH)),
    ("operation", (Operation.ANY,)),
    ("permission_type", (Permission.ANY,)),
)

_Kinds: TypeAlias = tuple[ResourceType, PatternType, Operation, Permission]
#: Answers a decoded request with an authorizer.
_Answer = Callable[[ClientMessages, Any, AuthorizedAccess], bytes]


def _describe(messages: ClientMessages, body: Any, access: AuthorizedAccess) -> bytes:
    by_pattern: dict[ResourcePattern, list[AccessControlEntry]] = {}
    wanted = _filter(body)
    for pattern, entry in () if wanted is None else access.authorizer.acls(wanted):
        by_pattern.setdefault(pattern, []).append(entry)
    resources = tuple(
        messages.part(
            "DescribeAclsResource",
            resource_type=int(pattern.resource_type),
            resource_name=pattern.name,
            pattern_type=int(pattern.pattern_type),
            acls=tuple(messages.part("AclDescription", **_entry_fields(entry)) for entry in entries),
        )
        for pattern, entries in by_pattern.items()
    )
    return messages.response(error_code=KioError.none, error_message="", resources=resources)


def _create(messages: ClientMessages, body: Any, access: AuthorizedAccess) -> bytes:
    if any(
        getattr(one, field, _LITERAL) in members for one in body.creations for field, members in _OF_FILTERS
    ):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    asked = [_binding(one) for one in body.creations]
    valid = [one for one in asked if isinstance(one, AclBinding)]
    made = dict(zip(valid, access.authorizer.create_acls(access.requester, valid), strict=True))
    results = [made[one] if isinstance(one, AclBinding) else one for one in asked]
    return messages.response(
        results=tuple(
            messages.part("AclCreationResult", **(error_fields(error) if error else _NO_ERROR))
            for error in results
        )
    )


def _delete(messages: ClientMessages, body: Any, access: AuthorizedAccess) -> bytes:
    filters = [_filter(one) for one in body.filters]
    known = [one for one in filters if one is not None]
    found = iter(access.authorizer.delete_acls(access.requester, known))
    results: list[Sequence[DeletedAcl]] = [() if one is None else next(found) for one in filters]
    return messages.response(
        filter_results=tuple(
            messages.part(
                "DeleteAclsFilterResult",
                error_code=KioError.none,
                error_message=None,
                matching_acls=tuple(
                    messages.part(
                        "DeleteAclsMatchingAcl",
                        **error_fields(deleted.error),
                        resource_type=int(deleted.binding.pattern.resource_type),
                        resource_name=deleted.binding.pattern.name,
                        pattern_type=int(deleted.binding.pattern.pattern_type),
                        **_entry_fields(deleted.binding.entry),
                    )
                    for deleted in result
                ),
            )
            for result in results
        )
    )


#: Kafka's text of a success is empty where its authorizer says nothing.
_NO_ERROR: Final = {"error_code": KioError.none, "error_message": ""}


def _binding(asked: Any) -> AclBinding | KafkaError:
    """Return the binding of a creation, or why it is not given to the authorizer."""
    if asked.resource_type == ResourceType.CLUSTER and asked.resource_name != CLUSTER_NAME:
        return KafkaError(
            ErrorCode.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
        )
    if not asked.resource_name:
        return KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    pattern_type = getattr(asked, "resource_pattern_type", _LITERAL)
    kinds = _kinds(asked.resource_type, pattern_type, asked.operation, asked.permission_type)
    if kinds is None:
        return KafkaError(ErrorCode.INVALID_REQUEST, "Failed to create ACL")
    resource, pattern, operation, permission = kinds
    return AclBinding(
        ResourcePattern(resource, asked.resource_name, pattern),
        AccessControlEntry(asked.principal, asked.host, operation, permission),
    )


def _filter(asked: Any) -> AclFilter | None:
    """Return the filter of a request, or None if one of its kinds does not exist: it finds nothing."""
    # Version 0 knows literal names alone.
    pattern_type = getattr(asked, "pattern_type_filter", _LITERAL)
    kinds = _kinds(asked.resource_type_filter, pattern_type, asked.operation, asked.permission_type)
    if kinds is None:
        return None
    resource, pattern, operation, permission = kinds
    return AclFilter(
        ResourceFilter(resource, asked.resource_name_filter, pattern),
        EntryFilter(asked.principal_filter, asked.host_filter, operation, permission),
    )


def _kinds(resource: int, pattern: int, operation: int, permission: int) -> _Kinds | None:
    """Return the members with these numbers, or None if one of them does not exist."""
    try:
        return ResourceType(resource), PatternType(pattern), Operation(operation), Permission(permission)
    except ValueError:
        return None


def _entry_fields(entry: AccessControlEntry) -> dict[str, Any]:
    return {
        "principal": entry.principal,
        "host": entry.host,
        "operation": int(entry.operation),
        "permission_type": int(entry.permission),
    }


def _handler(
    operation: Operation, message: str, array: str | None, text: str, answer: _Answer
) -> Callable[[Any, Request], Reply]:
    """``operation``: that the client needs on the cluster. ``text``: without an authorizer.

    ``array``: the field with the request's filters or ACLs; None if the request itself is one filter.
    """

    def handle(_: Any, request: Request) -> Reply:
        messages = ClientMessages(message, request.version)
        body = messages.decode(request)
        for one in (body,) if array is None else getattr(body, array):
            if any(getattr(one, name, None) == _UNKNOWN for name in _KINDS):
                raise DecodeError("an unknown kind of ACL", api=message, version=request.version)
        error = KafkaError(KioError.security_disabled.value, text)
        # After the kinds: Kafka cannot read a request with an unknown one.
        if not request.access.allows_cluster(operation):
            error = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "The request is not authorized.")
        elif isinstance(request.access, AuthorizedAccess):
            try:
                return Reply(answer(messages, body, request.access))
            except KafkaError as refused:
                error = refused
        return Reply(
            error_response(messages, body, KioError(error.code), error.message or None), error_code=error.code
        )

    return handle


def _api(
    key: int, name: str, operation: Operation, message: str, array: str | None, text: str, answer: _Answer
) -> Api[Any]:
    # ZooKeeper is written.
    return Api(
        key=key,
        name=name,
        lowest=0,
        highest=3,
        flexible_from=2,
        handle=_handler(operation, message, array, text, answer),
        locks_core=False,
        needs=asks((operation, ResourceType.CLUSTER)),
    )


APIS: Final[tuple[Api[Any], ...]] = (
    _api(
        29,
        "DescribeAcls",
        Operation.DESCRIBE,
        "describe_acls",
        None,
        "No Authorizer is configured on the broker",
        _describe,
    ),
    _api(
        30,
        "CreateAcls",
        Operation.ALTER,
        "create_acls",
        "creations",
        "No Authorizer is configured.",
        _create,
    ),
    _api(
        31,
        "DeleteAcls",
        Operation.ALTER,
        "delete_acls",
        "filters",
        "No Authorizer is configured.",
        _delete,
    ),
)
