"""DescribeGroups (15), ListGroups (16), DeleteGroups (42).

``KafkaApis`` and ``GroupCoordinatorAdapter`` of Kafka 3.9, without an authorizer.
"""

from __future__ import annotations

from typing import Any, Final

from ctrlchan.broker.coordinator.group.requests import GroupSummary
from ctrlchan.broker.handlers.group_access import coordinator_of
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import NOT_ASKED, ClientMessages, KioError

__all__ = ["APIS"]

#: ``AclEntry.supportedOperations(GROUP)`` as a bit field: READ 3, DELETE 6, DESCRIBE 8. Without an authorizer
#: everything is allowed.
_GROUP_OPERATIONS: Final = sum(1 << operation for operation in (3, 6, 8))


def _describe(core: StoringCore, request: Request) -> Reply:
    messages = ClientMessages("describe_groups", request.version)
    body = messages.decode(request)
    coordinator = coordinator_of(core)
    operations = _GROUP_OPERATIONS if getattr(body, "include_authorized_operations", False) else NOT_ASKED
    groups = [(group_id, coordinator.describe(group_id)) for group_id in body.groups]
    described = tuple(_described(messages, group_id, group, operations) for group_id, group in groups)
    return Reply(
        messages.response(groups=described),
        partition_errors=sum(1 for _, group in groups if group.error),
        rows=len(groups),
    )


def _described(messages: ClientMessages, group_id: str, group: GroupSummary, operations: int) -> Any:
    return messages.part(
        "DescribedGroup",
        error_code=KioError(group.error),
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=tuple(
            messages.part(
                "DescribedGroupMember",
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ),
        authorized_operations=NOT_ASKED if group.error else operations,
    )


def _list(core: StoringCore, request: Request) -> Reply:
    messages = ClientMessages("list_groups", request.version)
    body = messages.decode(request)
    error, groups = coordinator_of(core).list_groups(
        getattr(body, "states_filter", None) or (), getattr(body, "types_filter", None) or ()
    )
    listed = tuple(
        messages.part(
            "ListedGroup",
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            group_state=group.state,
            group_type=group.group_type,
        )
        for group in groups
    )
    return Reply(
        messages.response(error_code=KioError(error), groups=listed), error_code=int(error), rows=len(groups)
    )


def _delete(core: StoringCore, request: Request) -> Reply:
    messages = ClientMessages("delete_groups", request.version)
    body = messages.decode(request)
    results = coordinator_of(core).delete(body.groups_names)
    deleted = tuple(
        messages.part("DeletableGroupResult", group_id=group_id, error_code=KioError(error))
        for group_id, error in results.items()
    )
    return Reply(
        messages.response(results=deleted),
        partition_errors=sum(1 for error in results.values() if error),
        rows=len(results),
    )


APIS: Final = (
    Api(
        key=15,
        name="DescribeGroups",
        lowest=0,
        highest=5,
        flexible_from=5,
        handle=_describe,
        locks_core=False,
    ),
    Api(key=16, name="ListGroups", lowest=0, highest=5, flexible_from=3, handle=_list, locks_core=False),
    Api(key=42, name="DeleteGroups", lowest=0, highest=2, flexible_from=2, handle=_delete, locks_core=False),
)
