"""FindCoordinator and the requests of consumer groups."""

from __future__ import annotations

import struct
from typing import Any, Final

from tests.acceptance.same_answers.recorder import Broker
from tests.acceptance.same_answers.topics import create_topic

__all__ = [
    "committed_offsets",
    "coordinators",
    "group_administration",
    "members",
    "new_protocol",
    "ready",
    "static_members",
]

_SESSION: Final = {"SessionTimeoutMs": 30_000, "RebalanceTimeoutMs": 30_000}
#: Subscribes to the topic "committed". Kafka answers no JoinGroup whose subscription is not valid.
_METADATA: Final = struct.pack(">hih9si", 0, 1, 9, b"committed", -1)
_CONSUMER: Final = {"ProtocolType": "consumer", "Protocols": [{"Name": "range", "Metadata": _METADATA}]}
_MEMBER_ID_REQUIRED: Final = 79
#: A member that joins first, and gets its id from an error.
_MEMBER_ID_REQUIRED_FROM: Final = 4
_SEVERAL_LEAVE_FROM: Final = 3


def ready(broker: Broker) -> None:
    """Wait until the broker is the coordinator of all groups, and has loaded them, if groups are compared."""
    if "DescribeGroups" not in broker.versions:
        return
    broker.wait(lambda answer: answer["ErrorCode"] == 0, "FindCoordinator", 3, Key="any", KeyType=0)
    broker.wait(lambda answer: answer["Groups"][0]["ErrorCode"] == 0, "DescribeGroups", 5, Groups=["any"])


def coordinators(broker: Broker) -> None:
    """Who is the coordinator of a group."""
    ready(broker)
    for version in broker.versions["FindCoordinator"]:
        for key in ("group", "", "ü"):
            for kind in (0, 2, 3, -1):
                broker.ask("FindCoordinator", version, Key=key, KeyType=kind, CoordinatorKeys=[key])
        broker.ask("FindCoordinator", version, Key="", CoordinatorKeys=[])
        broker.ask("FindCoordinator", version, Key="a", CoordinatorKeys=["a", "b", "a"])


def _join(broker: Broker, version: int, group: str, member: str = "", **fields: Any) -> dict[str, Any]:
    """Join; a second time with the id that the coordinator gave."""
    request = {"GroupId": group, "MemberId": member, **_SESSION, **_CONSUMER, **fields}
    answer: dict[str, Any] = broker.ask("JoinGroup", version, **request)
    if answer["ErrorCode"] == _MEMBER_ID_REQUIRED:
        answer = broker.ask("JoinGroup", version, **request | {"MemberId": answer["MemberId"]})
    return answer


def _sync(broker: Broker, version: int, group: str, joined: Any, **fields: Any) -> None:
    request = {
        "GroupId": group,
        "GenerationId": joined["GenerationId"],
        "MemberId": joined["MemberId"],
        "ProtocolType": "consumer",
        "ProtocolName": "range",
        "Assignments": [{"MemberId": joined["MemberId"], "Assignment": b"partitions"}],
    }
    broker.ask("SyncGroup", version, **request | fields)


def members(broker: Broker) -> None:
    """The life of a member: join, sync, heartbeat, leave, with each version of each request."""
    fields: dict[str, Any]
    ready(broker)
    for version in broker.versions["JoinGroup"]:
        group = f"members-{version}"
        sync = min(version, broker.versions["SyncGroup"][-1])
        heartbeat = min(version, broker.versions["Heartbeat"][-1])
        leave = min(version, broker.versions["LeaveGroup"][-1])
        for fields in (
            {"GroupId": ""},
            {"SessionTimeoutMs": 1},
            {"SessionTimeoutMs": 10**8},
            {"MemberId": "nobody"},
            {"ProtocolType": ""},
            {"Protocols": []},
            {"ProtocolType": "", "Protocols": []},
        ):
            request: dict[str, Any] = {"GroupId": group, "MemberId": "", **_SESSION, **_CONSUMER}
            broker.ask("JoinGroup", version, **request | fields)
        joined = _join(broker, version, group)
        _heartbeat(broker, heartbeat, group, joined)
        _sync(broker, sync, group, joined, GenerationId=joined["GenerationId"] + 1)
        _sync(broker, sync, group, joined, MemberId="nobody")
        _sync(broker, sync, group, joined, ProtocolName="another")
        _sync(broker, sync, group, joined, ProtocolType="another")
        _sync(broker, sync, group, joined, ProtocolName=None)
        _sync(broker, sync, group, joined)
        _sync(broker, sync, group, joined)
        _heartbeat(broker, heartbeat, group, joined)
        for fields in (
            {"GroupId": ""},
            {"GroupId": "no such group"},
            {"MemberId": "nobody"},
            {"GenerationId": joined["GenerationId"] + 1},
            {"GroupInstanceId": "nobody"},
        ):
            _heartbeat(broker, heartbeat, group, joined, **fields)
            if "GroupInstanceId" not in fields:
                _sync(broker, sync, group, joined, **fields)
        _join(broker, version, group, joined["MemberId"])
        _sync(broker, sync, group, joined, GenerationId=joined["GenerationId"] + 1)
        _join(broker, version, group, "", ProtocolType="connect")
        _join(broker, version, group, "", Protocols=[{"Name": "other", "Metadata": _METADATA}])
        for fields in ({"GroupId": ""}, {"GroupId": "no such group"}, {"MemberId": "nobody"}, {}, {}):
            one = {"GroupId": group, "MemberId": joined["MemberId"]} | fields
            each = [{"MemberId": one["MemberId"], "GroupInstanceId": None}]
            broker.ask("LeaveGroup", leave, **one, Members=each)
        broker.ask("JoinGroup", version, **request | {"MemberId": joined["MemberId"]})
        _two_members(broker, version, f"two-{version}", sync, heartbeat, leave)


def _heartbeat(broker: Broker, version: int, group: str, joined: Any, **fields: Any) -> None:
    request = {"GroupId": group, "GenerationId": joined["GenerationId"], "MemberId": joined["MemberId"]}
    broker.ask("Heartbeat", version, **request | fields)


def _two_members(broker: Broker, version: int, group: str, sync: int, heartbeat: int, leave: int) -> None:
    """A second member joins: the first one hears of it, joins again, and leads."""
    first = _join(broker, version, group)
    _sync(broker, sync, group, first)
    second = {"GroupId": group, "MemberId": "", **_SESSION, **_CONSUMER}
    two = ({"Name": "sticky", "Metadata": _METADATA}, {"Name": "range", "Metadata": _METADATA})
    second["Protocols"] = list(two)
    if version >= _MEMBER_ID_REQUIRED_FROM:
        second["MemberId"] = broker.ask("JoinGroup", version, **second)["MemberId"]
    waiting = broker.connect()
    broker.send(waiting, "JoinGroup", version, **second)
    request = {"GroupId": group, "GenerationId": first["GenerationId"], "MemberId": first["MemberId"]}
    broker.wait(lambda answer: answer["ErrorCode"] == 27, "Heartbeat", 3, **request)
    _heartbeat(broker, heartbeat, group, first)
    _sync(broker, sync, group, first)
    first = _join(broker, version, group, first["MemberId"])
    joined = broker.receive(waiting, "JoinGroup", version, **second)
    broker.send(
        waiting,
        "SyncGroup",
        sync,
        GroupId=group,
        GenerationId=joined["GenerationId"],
        MemberId=joined["MemberId"],
        ProtocolType="consumer",
        ProtocolName="range",
    )
    _heartbeat(broker, heartbeat, group, first)
    shares = [
        {"MemberId": one["MemberId"], "Assignment": name} for one, name in ((first, b"one"), (joined, b"two"))
    ]
    _sync(broker, sync, group, first, Assignments=shares)
    broker.receive(waiting, "SyncGroup", sync)
    for described in broker.versions["DescribeGroups"]:
        broker.ask("DescribeGroups", described, Groups=[group], IncludeAuthorizedOperations=True)
    both = [{"MemberId": one["MemberId"]} for one in (first, joined)]
    if leave >= _SEVERAL_LEAVE_FROM:
        broker.ask("LeaveGroup", leave, GroupId=group, Members=[*both, {"MemberId": "nobody"}])
    else:
        for one in both:
            broker.ask("LeaveGroup", leave, GroupId=group, **one)
    waiting.close()
    broker.ask("DescribeGroups", 5, Groups=[group])


def static_members(broker: Broker) -> None:
    """Members with an instance id (KIP-345)."""
    ready(broker)
    for version in broker.versions["JoinGroup"]:
        if version < 5:
            continue
        group = f"static-{version}"
        sync = min(version, broker.versions["SyncGroup"][-1])
        static = {"GroupInstanceId": "instance"}
        first = _join(broker, version, group, **static)
        _sync(broker, sync, group, first, **static)
        for heartbeat in broker.versions["Heartbeat"][3:]:
            _heartbeat(broker, heartbeat, group, first, **static)
            _heartbeat(broker, heartbeat, group, first, GroupInstanceId="unknown")
            _heartbeat(broker, heartbeat, group, first, MemberId="other", **static)
        again = _join(broker, version, group, **static)
        _sync(broker, sync, group, again, **static)
        _sync(broker, sync, group, first, **static)
        _heartbeat(broker, 4, group, first, **static)
        _join(broker, version, group, first["MemberId"], **static)
        _join(broker, version, group, "nobody", **static)
        commit = {"GroupId": group, "GenerationIdOrMemberEpoch": again["GenerationId"], "Topics": []}
        for member in (first, again):
            broker.ask("OffsetCommit", 9, **commit, MemberId=member["MemberId"], **static)
        for described in broker.versions["DescribeGroups"]:
            broker.ask("DescribeGroups", described, Groups=[group])
        for leave in broker.versions["LeaveGroup"][_SEVERAL_LEAVE_FROM:]:
            for one in (
                {"MemberId": first["MemberId"], **static},
                {"MemberId": "", "GroupInstanceId": "unknown"},
                {"MemberId": "", **static},
                {"MemberId": "", **static},
            ):
                broker.ask("LeaveGroup", leave, GroupId=group, Members=[one | {"Reason": "it ends"}])


def committed_offsets(broker: Broker) -> None:
    """OffsetCommit, OffsetFetch, OffsetDelete."""
    fields: dict[str, Any]
    ready(broker)
    create_topic(broker, "committed", 3)
    for version in broker.versions["OffsetCommit"][1:]:
        group = f"commits-{version}"
        for fields in (
            {"GroupId": ""},
            {"GenerationIdOrMemberEpoch": 5},
            {"MemberId": "nobody"},
            {"MemberId": "nobody", "GenerationIdOrMemberEpoch": 5},
            {"GroupInstanceId": "nobody"},
            {"Topics": []},
            {},
        ):
            broker.ask("OffsetCommit", version, **_commit(group) | fields)
        joined = _join(broker, 5, group)
        generation = joined["GenerationId"]
        member = {"GenerationIdOrMemberEpoch": generation, "MemberId": joined["MemberId"]}
        broker.ask("OffsetCommit", version, **_commit(group) | member)
        _sync(broker, 4, group, joined)
        for fields in ({}, {"GenerationIdOrMemberEpoch": generation + 1}, {"MemberId": "nobody"}):
            broker.ask("OffsetCommit", version, **_commit(group) | member | fields)
        broker.ask("OffsetCommit", version, **_commit(group))
        for fetch in broker.versions["OffsetFetch"][1:]:
            _fetch(broker, fetch, group)
        broker.ask("OffsetDelete", 0, GroupId=group, Topics=_topics("committed", 0, 1, 9))
        broker.ask("LeaveGroup", 2, GroupId=group, MemberId=joined["MemberId"])
        for name, partitions in (("committed", (0, 1, 9)), ("unknown", (0,)), ("committed", ())):
            broker.ask("OffsetDelete", 0, GroupId=group, Topics=_topics(name, *partitions))
        _fetch(broker, 7, group)
    for group in ("", "no such group"):
        broker.ask("OffsetDelete", 0, GroupId=group, Topics=_topics("committed", 0))
        for fetch in broker.versions["OffsetFetch"][1:]:
            _fetch(broker, fetch, group)
    for fetch in broker.versions["OffsetFetch"]:
        if fetch >= 8:
            groups = [{"GroupId": f"commits-{number}", "Topics": None} for number in (1, 2, 1, 77)]
            broker.ask("OffsetFetch", fetch, Groups=groups)


def _commit(group: str) -> dict[str, Any]:
    def one(index: int, offset: int, metadata: str | None = "text") -> dict[str, Any]:
        return {"PartitionIndex": index, "CommittedOffset": offset, "CommittedMetadata": metadata}

    return {
        "GroupId": group,
        "GenerationIdOrMemberEpoch": -1,
        "Topics": [
            {
                "Name": "committed",
                "Partitions": [
                    one(0, 7),
                    one(1, 8, None) | {"CommittedLeaderEpoch": 3},
                    one(2, 9, "x" * 5000),
                    one(5, 1),
                ],
            },
            {"Name": "unknown", "Partitions": [one(0, 1)]},
        ],
    }


def _topics(name: str, *partitions: int) -> list[dict[str, Any]]:
    return [{"Name": name, "Partitions": [{"PartitionIndex": index} for index in partitions]}]


def _fetch(broker: Broker, version: int, group: str) -> None:
    for topics in (
        [{"Name": "committed", "PartitionIndexes": [0, 1, 2, 9]}],
        [{"Name": "unknown", "PartitionIndexes": [0]}, {"Name": "committed", "PartitionIndexes": [1]}],
        [],
        None,
    ):
        if topics is not None or version >= 2:
            groups = [{"GroupId": group, "Topics": topics}]
            for stable in (False, True):
                broker.ask(
                    "OffsetFetch", version, GroupId=group, Topics=topics, Groups=groups, RequireStable=stable
                )


def group_administration(broker: Broker) -> None:
    """DescribeGroups, ListGroups, DeleteGroups."""
    ready(broker)
    create_topic(broker, "administered")
    for version in broker.versions["DescribeGroups"]:
        broker.ask("DescribeGroups", version, Groups=["", "no such group", "no such group"])
        broker.ask("DescribeGroups", version, Groups=[])
    for version in broker.versions["DeleteGroups"]:
        group, other = f"deleted-{version}", f"also-deleted-{version}"
        joined = _join(broker, 5, group)
        _sync(broker, 4, group, joined)
        offset = {"PartitionIndex": 0, "CommittedOffset": 1, "CommittedMetadata": ""}
        simple = {"GroupId": other, "GenerationIdOrMemberEpoch": -1}
        broker.ask("OffsetCommit", 8, **simple, Topics=[{"Name": "administered", "Partitions": [offset]}])
        for listed in broker.versions["ListGroups"]:
            for states in ([], ["Stable"], ["stable", "Empty"], ["Unknown"], ["Dead"]):
                for types in ([], ["classic"], ["Consumer"], ["unknown"], ["share"]):
                    broker.ask("ListGroups", listed, StatesFilter=states, TypesFilter=types)
        for described in broker.versions["DescribeGroups"]:
            for asks in (False, True):
                broker.ask(
                    "DescribeGroups", described, Groups=[group, other], IncludeAuthorizedOperations=asks
                )
        broker.ask("DeleteGroups", version, GroupsNames=[group, other, "no such group", ""])
        broker.ask("DeleteGroups", version, GroupsNames=[])
        broker.ask("LeaveGroup", 2, GroupId=group, MemberId=joined["MemberId"])
        broker.ask("DescribeGroups", 5, Groups=[group])
        broker.ask("DeleteGroups", version, GroupsNames=[group, group])
        broker.ask("DescribeGroups", 5, Groups=[group])


def new_protocol(broker: Broker) -> None:
    """KIP-848, which is not switched on."""
    joining = {"MemberId": "m", "MemberEpoch": 0, "RebalanceTimeoutMs": 1000, "SubscribedTopicNames": ["t"]}
    for group in ("group", ""):
        broker.ask_in_all("ConsumerGroupHeartbeat", GroupId=group, **joining)
    for groups in ([], ["group"], ["a", "b", "a"]):
        for asks in (False, True):
            broker.ask_in_all("ConsumerGroupDescribe", GroupIds=groups, IncludeAuthorizedOperations=asks)
