"""JoinGroup (11), SyncGroup (14), Heartbeat (12), LeaveGroup (13).

``KafkaApis`` and ``GroupCoordinatorAdapter`` of Kafka 3.9.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import Final

from ctrlchan.broker.coordinator.group.requests import (
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from ctrlchan.broker.handlers._group_messages import decode_heartbeat, encode_heartbeat
from ctrlchan.broker.handlers.group_access import coordinator_of, milliseconds, when_answered
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode, IllegalStateError
from ctrlchan.server.access import READ_GROUP, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["APIS"]

_LOG = logging.getLogger("ctrlchan.broker")

_REBALANCE_TIMEOUT_SINCE: Final = 1
_MEMBER_ID_REQUIRED_SINCE: Final = 4
_NULL_PROTOCOL_SINCE: Final = 7
_SKIP_ASSIGNMENT_SINCE: Final = 9
_PROTOCOL_IN_SYNC_SINCE: Final = 5
_SEVERAL_MEMBERS_SINCE: Final = 3


def _join(core: StoringCore, request: Request) -> Reply | Future[Reply]:
    messages = ClientMessages("join_group", request.version)
    body = messages.decode(request)
    instance_id = getattr(body, "group_instance_id", None)
    session = milliseconds(body.session_timeout)
    join = JoinRequest(
        body.group_id,
        body.member_id,
        (request.client_id or b"").decode(errors="replace"),
        f"/{request.context.client_host}",
        session,
        milliseconds(body.rebalance_timeout) if request.version >= _REBALANCE_TIMEOUT_SINCE else session,
        body.protocol_type,
        tuple((protocol.name, protocol.metadata) for protocol in body.protocols),
        instance_id,
        requires_member_id=request.version >= _MEMBER_ID_REQUIRED_SINCE and instance_id is None,
        can_skip_assignment=request.version >= _SKIP_ASSIGNMENT_SINCE,
        reason=getattr(body, "reason", None),
    )

    def reply(result: JoinResult) -> Reply:
        # Older versions have no null, and the newer ones no empty name.
        protocol = result.protocol_name or (None if request.version >= _NULL_PROTOCOL_SINCE else "")
        body = messages.response(
            error_code=KioError(result.error),
            generation_id=result.generation_id,
            protocol_type=result.protocol_type,
            protocol_name=protocol,
            leader=result.leader_id,
            skip_assignment=result.skip_assignment,
            member_id=result.member_id,
            members=tuple(
                messages.part(
                    "JoinGroupResponseMember",
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    metadata=member.metadata,
                )
                for member in result.members
            ),
        )
        return Reply(body, error_code=int(result.error))

    if not request.access.allows(*READ_GROUP, join.group_id):
        return reply(JoinResult(ErrorCode.GROUP_AUTHORIZATION_FAILED, ""))
    try:
        return when_answered(lambda answer: coordinator_of(core).join(join, answer), reply)
    except IllegalStateError:
        _LOG.exception("broker %d: JoinGroup of %s", core.id, join.group_id)
        return reply(JoinResult(ErrorCode.UNKNOWN_SERVER_ERROR, ""))


def _sync(core: StoringCore, request: Request) -> Reply | Future[Reply]:
    messages = ClientMessages("sync_group", request.version)
    body = messages.decode(request)
    sync = SyncRequest(
        body.group_id,
        body.generation_id,
        body.member_id,
        getattr(body, "group_instance_id", None),
        getattr(body, "protocol_type", None),
        getattr(body, "protocol_name", None),
        {each.member_id: each.assignment for each in body.assignments},
    )

    def reply(result: SyncResult) -> Reply:
        body = messages.response(
            error_code=KioError(result.error),
            protocol_type=result.protocol_type,
            protocol_name=result.protocol_name,
            assignment=result.assignment,
        )
        return Reply(body, error_code=int(result.error))

    if request.version >= _PROTOCOL_IN_SYNC_SINCE and None in (sync.protocol_type, sync.protocol_name):
        return reply(SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    if not request.access.allows(*READ_GROUP, sync.group_id):
        return reply(SyncResult(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    return when_answered(lambda answer: coordinator_of(core).sync(sync, answer), reply)


def _heartbeat(core: StoringCore, request: Request) -> Reply:
    heartbeat = decode_heartbeat(request.frame, request.offset, request.version)
    error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if request.access.allows(*READ_GROUP, heartbeat.group_id):
        error = coordinator_of(core).heartbeat(heartbeat)
    return Reply(encode_heartbeat(request.version, error), error_code=int(error))


def _leave(core: StoringCore, request: Request) -> Reply:
    messages = ClientMessages("leave_group", request.version)
    body = messages.decode(request)
    if not request.access.allows(*READ_GROUP, body.group_id):
        refused = KioError.group_authorization_failed
        return Reply(messages.response(error_code=refused, members=()), error_code=refused.value)
    several = request.version >= _SEVERAL_MEMBERS_SINCE
    leaving = [
        LeavingMember(member.member_id, member.group_instance_id, getattr(member, "reason", None))
        for member in (body.members if several else ())
    ]
    result = coordinator_of(core).leave(
        body.group_id, leaving if several else [LeavingMember(body.member_id)]
    )
    error = result.error
    if not several and not error:
        error = result.members[0].error
    members = tuple(
        messages.part(
            "MemberResponse",
            member_id=left.member_id,
            group_instance_id=left.instance_id,
            error_code=KioError(left.error),
        )
        for left in (result.members if several else ())
    )
    return Reply(messages.response(error_code=KioError(error), members=members), error_code=int(error))


APIS: Final = (
    Api(
        key=11,
        name="JoinGroup",
        lowest=0,
        highest=9,
        flexible_from=6,
        handle=_join,
        locks_core=False,
        needs=asks(READ_GROUP),
    ),
    Api(
        key=14,
        name="SyncGroup",
        lowest=0,
        highest=5,
        flexible_from=4,
        handle=_sync,
        locks_core=False,
        needs=asks(READ_GROUP),
    ),
    Api(
        key=12,
        name="Heartbeat",
        lowest=0,
        highest=4,
        flexible_from=4,
        handle=_heartbeat,
        locks_core=False,
        needs=asks(READ_GROUP),
    ),
    Api(
        key=13,
        name="LeaveGroup",
        lowest=0,
        highest=5,
        flexible_from=4,
        handle=_leave,
        locks_core=False,
        needs=asks(READ_GROUP),
    ),
)
