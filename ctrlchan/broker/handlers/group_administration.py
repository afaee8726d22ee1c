"""DescribeGroups (15), ListGroups (16), DeleteGroups (42).

``KafkaApis`` and ``GroupCoordinatorAdapter`` of Kafka 3.9.
"""

from __future__ import annotations

from typing import Any, Final

from ctrlchan.authorizer.acls import Operation, ResourceType
from ctrlchan.broker.coordinator.group.requests import GroupSummary
from ctrlchan.broker.handlers.group_access import coordinator_of
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode
from ctrlchan.server.access import DELETE_GROUP, DESCRIBE_CLUSTER, DESCRIBE_GROUP, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import NOT_ASKED, ClientMessages, KioError

__all__ = ["APIS"]
_DENIED: Final = GroupSummary(ErrorCode.GROUP_AUTHORIZATION_FAILED)


def _describe(core: StoringCore, request: Request) -> Reply:
    messages = ClientMessages("describe_groups", request.version)
    body = messages.decode(request)
    coordinator = coordinator_of(core)
    access, asks_operations = request.access, getattr(body, "include_authorized_operations", False)
    # Denied groups first, as Kafka.
    groups, allowed = [], []
    for group_id in body.groups:
        if access.allows(*DESCRIBE_GROUP, group_id):
            allowed.append(group_id)
        else:
            groups.append((group_id, _DENIED))
    groups += [(group_id, coordinator.describe(group_id)) for group_id in allowed]
    described = tuple(
        _described(
            messages,
            group_id,
            group,
            access.operations(ResourceType.GROUP, group_id)
            if asks_operations and not group.error
            else NOT_ASKED,
        )
        for group_id, group in groups
    )
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
        authorized_operations=operations,
    )


def _list(core: StoringCore, request: Request) -> Reply:
    messages = ClientMessages("list_groups", request.version)
    body = messages.decode(request)
    error, groups = coordinator_of(core).list_groups(
        getattr(body, "states_filter", None) or (), getattr(body, "types_filter", None) or ()
    )
    if not request.access.allows_cluster(Operation.DESCRIBE, logs=False):
        names = [group.group_id for group in groups]
        described = request.access.allowed(*DESCRIBE_GROUP, names, logs=False)
        groups = [group for group in groups if group.group_id in described]
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
    names = list(dict.fromkeys(body.groups_names))
    allowed = request.access.allowed(*DELETE_GROUP, names)
    results = dict(coordinator_of(core).delete([name for name in names if name in allowed]))
    results |= {name: ErrorCode.GROUP_AUTHORIZATION_FAILED for name in names if name not in allowed}
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
        needs=asks(DESCRIBE_GROUP),
    ),
    Api(
        key=16,
        name="ListGroups",
        lowest=0,
        highest=5,
        flexible_from=3,
        handle=_list,
        locks_core=False,
        needs=asks(DESCRIBE_CLUSTER, DESCRIBE_GROUP),
    ),
    Api(
        key=42,
        name="DeleteGroups",
        lowest=0,
        highest=2,
        flexible_from=2,
        handle=_delete,
        locks_core=False,
        needs=asks(DELETE_GROUP),
    ),
)
