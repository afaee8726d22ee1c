"""JoinGroup (11), SyncGroup (14), Heartbeat (12), LeaveGroup (13).

``KafkaApis`` and ``GroupCoordinatorAdapter`` of Kafka 3.9.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import Final

from ctrlchan.broker.coordinator.group.requests import JoinResult, LeavingMember, SyncResult
from ctrlchan.broker.handlers._group_messages import decode_heartbeat, encode_heartbeat
from ctrlchan.broker.handlers._membership_messages import decode_join, decode_sync, encode_join, encode_sync
from ctrlchan.broker.handlers.group_access import coordinator_of, when_answered
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode, IllegalStateError
from ctrlchan.server.access import READ_GROUP, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["APIS"]

_LOG = logging.getLogger("ctrlchan.broker")

_PROTOCOL_IN_SYNC_SINCE: Final = 5
_SEVERAL_MEMBERS_SINCE: Final = 3


def _join(core: StoringCore, request: Request) -> Reply | Future[Reply]:
    client_id = (request.client_id or b"").decode(errors="replace")
    host = f"/{request.context.client_host}"
    join = decode_join(request.frame, request.offset, request.version, client_id, host)

    def reply(result: JoinResult) -> Reply:
        return Reply(encode_join(request.version, result), error_code=int(result.error))

    if not request.access.allows(*READ_GROUP, join.group_id):
        return reply(JoinResult(ErrorCode.GROUP_AUTHORIZATION_FAILED, ""))
    try:
        return when_answered(lambda answer: coordinator_of(core).join(join, answer), reply)
    except IllegalStateError:
        _LOG.exception("broker %d: JoinGroup of %s", core.id, join.group_id)
        return reply(JoinResult(ErrorCode.UNKNOWN_SERVER_ERROR, ""))


def _sync(core: StoringCore, request: Request) -> Reply | Future[Reply]:
    sync = decode_sync(request.frame, request.offset, request.version)

    def reply(result: SyncResult) -> Reply:
        return Reply(encode_sync(request.version, result), error_code=int(result.error))

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
