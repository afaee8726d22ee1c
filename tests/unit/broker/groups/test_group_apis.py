"""The APIs of groups in all versions, by kio's requests and responses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctrlchan.broker.handlers import init_producer_id
from ctrlchan.broker.handlers.table import GROUP_APIS
from ctrlchan.errors import DecodeError, ErrorCode, ZooKeeperError
from ctrlchan.protocol import LEADER_DURING_DELETE
from ctrlchan.server.api import Request
from tests.kafka.waiting import wait_until
from tests.unit.broker.groups.group_broker import (
    DEADLINE,
    GROUP,
    HIGHEST,
    TOPIC,
    GroupBroker,
    errors_of,
    group_broker,
    ms,
    part,
)
from tests.unit.broker.local_broker import Part
from tests.unit.server.contexts import LOCAL_CLIENT

#: As Kafka 3.9.1 announces them in ZooKeeper mode.
RANGES = {
    "JoinGroup": (11, 0, 9),
    "SyncGroup": (14, 0, 5),
    "Heartbeat": (12, 0, 4),
    "LeaveGroup": (13, 0, 5),
    "DescribeGroups": (15, 0, 5),
    "ListGroups": (16, 0, 5),
    "DeleteGroups": (42, 0, 2),
    "OffsetCommit": (8, 0, 9),
    "OffsetFetch": (9, 0, 9),
    "OffsetDelete": (47, 0, 0),
    "TxnOffsetCommit": (28, 0, 4),
    "FindCoordinator": (10, 0, 6),
    "ConsumerGroupHeartbeat": (68, 0, 0),
    "ConsumerGroupDescribe": (69, 0, 0),
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GroupBroker]:
    """A broker for tests that each use a group of their own, or refuse a request."""
    with group_broker(tmp_path_factory.mktemp("groups")) as broker:
        yield broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[GroupBroker]:
    with group_broker(tmp_path) as made:
        yield made


def fetch(broker: GroupBroker, version: int, group_id: str, partitions: list[int] | None) -> tuple[int, Any]:
    """OffsetFetch of one group: its error, and partition -> (offset, leader epoch, metadata, error)."""
    several = version >= 8
    topics: tuple[Any, ...] | None = None
    if partitions is not None:
        name = "OffsetFetchRequestTopics" if several else "OffsetFetchRequestTopic"
        topics = (part("OffsetFetch", version, name, name=TOPIC, partition_indexes=tuple(partitions)),)
    fields: dict[str, Any] = {"group_id": group_id, "topics": topics, "require_stable": True}
    if several:
        group = part("OffsetFetch", version, "OffsetFetchRequestGroup", **fields)
        response = broker.ask("OffsetFetch", version, groups=(group,), require_stable=True)
        [response] = response.groups
        assert response.group_id == group_id
    else:
        response = broker.ask("OffsetFetch", version, **fields)
    found = {
        one.partition_index: (
            one.committed_offset,
            getattr(one, "committed_leader_epoch", None),
            one.metadata,
            one.error_code.value,
        )
        for topic in response.topics
        for one in topic.partitions
    }
    return getattr(response, "error_code", ErrorCode.NONE).value, found


def test_the_versions_are_kafkas() -> None:
    assert {api.name: (api.key, api.lowest, api.highest) for api in GROUP_APIS} == RANGES


@pytest.mark.parametrize("step", range(10))
def test_the_life_of_a_group_in_every_version(shared: GroupBroker, step: int) -> None:
    """One member joins, syncs, commits, leaves: all APIs in the version `step`, or their highest."""
    group_id = f"group-{step}"

    def version(api: str) -> int:
        return min(step, HIGHEST[api])

    joined = shared.join(version("JoinGroup"), group_id=group_id)
    assert joined.error_code.value == 0
    assert (joined.generation_id, joined.protocol_name) == (1, "range")
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("a-client-")
    [member] = joined.members
    assert (member.member_id, member.metadata) == (joined.member_id, b"metadata")
    assert getattr(joined, "protocol_type", "consumer") == "consumer"

    synced = shared.send_sync(
        joined, version("SyncGroup"), {joined.member_id: b"assigned"}, group_id=group_id
    ).result(DEADLINE)
    assert (synced.error_code.value, synced.assignment) == (0, b"assigned")
    own = {"group_id": group_id, "generation_id": 1, "member_id": joined.member_id}
    assert shared.ask("Heartbeat", version("Heartbeat"), **own).error_code.value == 0

    errors = shared.commit({(TOPIC, 1): 42}, max(step, 1), joined, group_id=group_id)
    assert errors == {(TOPIC, 1): 0}
    if step:
        error, found = fetch(shared, step, group_id, [1, 0])
        epoch = None if step < 5 else 2 if step >= 6 else -1
        assert error == 0
        assert found == {
            1: (42, epoch, "note", 0),
            0: (-1, None if step < 5 else -1, "", 0),
        }

    described = shared.ask(
        "DescribeGroups",
        version("DescribeGroups"),
        groups=(group_id,),
        include_authorized_operations=True,
    ).groups
    [group] = described
    assert (group.error_code.value, group.group_id, group.group_state) == (0, group_id, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    assert getattr(group, "authorized_operations", 328) == 328
    [member] = group.members
    assert (member.client_id, member.client_host) == ("a-client", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (b"metadata", b"assigned")

    listed = shared.ask("ListGroups", version("ListGroups"), states_filter=("stable",), types_filter=())
    [mine] = [one for one in listed.groups if one.group_id == group_id]
    assert (mine.protocol_type, getattr(mine, "group_state", "Stable")) == ("consumer", "Stable")
    assert getattr(mine, "group_type", "classic") == "classic"

    deleting = {"groups_names": (group_id,)}
    [result] = shared.ask("DeleteGroups", version("DeleteGroups"), **deleting).results
    assert (result.group_id, result.error_code.value) == (group_id, ErrorCode.NON_EMPTY_GROUP)
    leave = version("LeaveGroup")
    members: tuple[Any, ...] = ()
    if leave >= 3:
        members = (
            part("LeaveGroup", leave, "MemberIdentity", member_id=joined.member_id, group_instance_id=None),
        )
    left = shared.ask("LeaveGroup", leave, group_id=group_id, member_id=joined.member_id, members=members)
    assert left.error_code.value == 0
    assert [one.error_code.value for one in getattr(left, "members", ())] == [0] * len(members)
    [result] = shared.ask("DeleteGroups", version("DeleteGroups"), **deleting).results
    assert result.error_code.value == 0
    [group] = shared.ask(
        "DescribeGroups", version("DescribeGroups"), groups=(group_id,), include_authorized_operations=False
    ).groups
    assert (group.group_state, getattr(group, "authorized_operations", -(2**31))) == ("Dead", -(2**31))


def test_two_members_are_answered_together(broker: GroupBroker) -> None:
    first = broker.stable()
    second_id = broker.send_join().result(DEADLINE).member_id
    second_join = broker.send_join(member_id=second_id, host="10.0.0.7")
    assert not second_join.done()
    own = {"group_id": GROUP, "generation_id": 1, "member_id": first.member_id}
    assert broker.ask("Heartbeat", 4, **own).error_code.value == ErrorCode.REBALANCE_IN_PROGRESS
    leader = broker.send_join(member_id=first.member_id).result(DEADLINE)
    follower = second_join.result(DEADLINE)
    assert (leader.generation_id, follower.generation_id) == (2, 2)
    assert {member.member_id for member in leader.members} == {first.member_id, second_id}
    assert follower.members == ()
    waiting = broker.send_sync(follower)
    assert not waiting.done()
    assignments = {first.member_id: b"a", second_id: b"b"}
    assert broker.send_sync(leader, assignments=assignments).result(DEADLINE).assignment == b"a"
    assert waiting.result(DEADLINE).assignment == b"b"
    [group] = broker.ask("DescribeGroups", 5, groups=(GROUP,), include_authorized_operations=False).groups
    assert {member.client_host for member in group.members} == {"/127.0.0.1", "/10.0.0.7"}


def test_a_static_member_returns_without_a_rebalance(broker: GroupBroker) -> None:
    first = broker.stable(group_instance_id="static")
    assert first.error_code.value == 0
    again = broker.join(group_instance_id="static")
    assert (again.generation_id, again.skip_assignment) == (1, True)
    assert again.member_id != first.member_id
    assert [member.group_instance_id for member in again.members] == ["static"]
    own = {"group_id": GROUP, "generation_id": 1, "group_instance_id": "static"}
    fenced = broker.ask("Heartbeat", 4, member_id=first.member_id, **own)
    assert fenced.error_code.value == ErrorCode.FENCED_INSTANCE_ID
    assert broker.ask("Heartbeat", 4, member_id=again.member_id, **own).error_code.value == 0
    identity = part(
        "LeaveGroup", 5, "MemberIdentity", member_id="", group_instance_id="static", reason="over"
    )
    left = broker.ask("LeaveGroup", 5, group_id=GROUP, members=(identity, identity))
    assert [one.error_code.value for one in left.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize(("version", "expected"), [(0, ""), (6, ""), (7, None), (9, None)])
def test_a_refused_join_has_no_protocol(shared: GroupBroker, version: int, expected: str | None) -> None:
    refused = shared.send_join(version, group_id="").result(DEADLINE)
    assert refused.error_code.value == ErrorCode.INVALID_GROUP_ID
    assert (refused.protocol_name, refused.generation_id, refused.leader) == (expected, -1, "")
    refused = shared.send_join(version, group_id="short", session_timeout=ms(0)).result(DEADLINE)
    assert refused.error_code.value == ErrorCode.INVALID_SESSION_TIMEOUT


def test_sync_needs_the_protocol_from_version_5_on(shared: GroupBroker) -> None:
    joined = shared.join(group_id="needs-protocol")
    missing: list[dict[str, Any]] = [{"protocol_type": None}, {"protocol_name": None}]
    for null in missing:
        refused = shared.send_sync(joined, group_id="needs-protocol", **null).result(DEADLINE)
        assert refused.error_code.value == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert (refused.protocol_type, refused.assignment) == (None, b"")


def test_leave_before_version_3_has_the_members_error(shared: GroupBroker) -> None:
    for version in range(3):
        left = shared.ask("LeaveGroup", version, group_id="nobody", member_id="me")
        assert left.error_code.value == ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_unknown_partitions_are_not_committed(shared: GroupBroker) -> None:
    errors = shared.commit({(TOPIC, 0): 1, (TOPIC, 2): 1, ("bar", 0): 1}, group_id="unknown")
    assert errors == {(TOPIC, 2): 3, ("bar", 0): 3, (TOPIC, 0): 0}
    assert shared.commit({("bar", 0): 1}, group_id="") == {("bar", 0): 3}


class Store:
    """Offsets in ZooKeeper; of the partitions of one group an error."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, str, int], int] = {}

    def get(self, group_id: str, topic: str, partition: int) -> int | None:
        self._check(group_id)
        return self.offsets.get((group_id, topic, partition))

    def set(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        self._check(group_id)
        self.offsets[group_id, topic, partition] = offset

    @staticmethod
    def _check(group_id: str) -> None:
        if group_id == "failing":
            raise ZooKeeperError("no answer")


def test_version_0_keeps_offsets_in_zookeeper(shared: GroupBroker) -> None:
    store: Any = Store()
    broker = GroupBroker(replace(shared.core, consumer_offsets=store), shared.offsets_partition)
    errors = broker.commit({(TOPIC, 0): 7, (TOPIC, 5): 1, ("bar", 0): 1}, 0)
    assert errors == {(TOPIC, 5): 3, ("bar", 0): 3, (TOPIC, 0): 0}
    assert store.offsets == {(GROUP, TOPIC, 0): 7}
    assert fetch(broker, 0, GROUP, [0, 1, 5]) == (
        0,
        {0: (7, None, "", 0), 1: (-1, None, "", 3), 5: (-1, None, "", 3)},
    )
    # The coordinator has none of them.
    assert fetch(broker, 1, "in zookeeper alone", [0])[1][0][0] == -1
    assert broker.commit({(TOPIC, 0): 7}, 0, group_id="failing") == {(TOPIC, 0): -1}
    assert fetch(broker, 0, "failing", [0]) == (0, {0: (-1, None, "", -1)})


def test_version_0_needs_zookeeper(shared: GroupBroker) -> None:
    errors = shared.commit({(TOPIC, 0): 1, ("bar", 0): 1}, 0)
    assert errors == {(TOPIC, 0): ErrorCode.UNSUPPORTED_VERSION, ("bar", 0): 3}
    assert fetch(shared, 0, GROUP, [0]) == (0, {0: (-1, None, "", ErrorCode.UNSUPPORTED_VERSION)})


@pytest.mark.parametrize("version", range(2, 10))
def test_all_offsets_are_fetched(shared: GroupBroker, version: int) -> None:
    assert shared.commit({(TOPIC, 0): 7, (TOPIC, 1): 8}, group_id="all") == {(TOPIC, 0): 0, (TOPIC, 1): 0}
    error, found = fetch(shared, version, "all", None)
    assert (error, {partition: row[0] for partition, row in found.items()}) == (0, {0: 7, 1: 8})
    assert fetch(shared, version, "nobody", None) == (0, {})


def test_offsets_of_several_groups_are_fetched_together(shared: GroupBroker) -> None:
    shared.commit({(TOPIC, 0): 7}, group_id="several")
    groups = tuple(
        part("OffsetFetch", 9, "OffsetFetchRequestGroup", group_id=group_id, topics=None)
        for group_id in ("several", "nobody")
    )
    several, nobody = shared.ask("OffsetFetch", 9, groups=groups, require_stable=False).groups
    assert (several.group_id, nobody.group_id) == ("several", "nobody")
    assert [topic.partitions[0].committed_offset for topic in several.topics] == [7]
    assert (nobody.topics, nobody.error_code.value) == ((), 0)


def test_offsets_are_deleted(shared: GroupBroker) -> None:
    shared.commit({(TOPIC, 0): 7, (TOPIC, 1): 8}, group_id="deleting")

    def delete(group_id: str, topic: str, *partitions: int) -> Any:
        parts = tuple(
            part("OffsetDelete", 0, "OffsetDeleteRequestPartition", partition_index=one) for one in partitions
        )
        topics = (part("OffsetDelete", 0, "OffsetDeleteRequestTopic", name=topic, partitions=parts),)
        return shared.ask("OffsetDelete", 0, group_id=group_id, topics=topics)

    deleted = delete("deleting", TOPIC, 0, 9)
    assert (deleted.error_code.value, errors_of(deleted)) == (0, [(TOPIC, 9, 3), (TOPIC, 0, 0)])
    assert fetch(shared, 9, "deleting", [0, 1])[1][0][0] == -1
    missing = delete("nobody", TOPIC, 0)
    assert (missing.error_code.value, missing.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, ())


def test_a_broker_that_is_not_the_coordinator(tmp_path: Path) -> None:
    with group_broker(tmp_path, leads=False) as broker:
        broker.local.update_metadata(Part(TOPIC, 0))
        refused = ErrorCode.NOT_COORDINATOR
        assert broker.send_join().result(DEADLINE).error_code.value == refused
        assert broker.commit({(TOPIC, 0): 1}) == {(TOPIC, 0): refused}
        for version in range(1, 10):
            error, found = fetch(broker, version, GROUP, [0])
            assert (error, found) == ((0, {0: (-1, None, "", refused)}) if version < 2 else (refused, {}))
        [group] = broker.ask("DescribeGroups", 5, groups=(GROUP,), include_authorized_operations=True).groups
        assert (group.error_code.value, group.group_state) == (refused, "")
        assert group.authorized_operations == -(2**31)
        [deleted] = broker.ask("DeleteGroups", 2, groups_names=(GROUP,)).results
        assert deleted.error_code.value == refused
        assert broker.ask("ListGroups", 5, states_filter=(), types_filter=()).groups == ()


def test_offsets_of_a_deleted_topic_are_removed(broker: GroupBroker) -> None:
    assert broker.commit({(TOPIC, 0): 7, (TOPIC, 1): 8}) == {(TOPIC, 0): 0, (TOPIC, 1): 0}
    broker.local.update_metadata(Part("new"), Part(TOPIC, 1, leader=LEADER_DURING_DELETE), topics=["other"])
    wait_until(
        lambda: fetch(broker, 9, GROUP, None)[1].keys() == {0}, timeout=DEADLINE, what="the offset's removal"
    )


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (10, 4, b"\0\0\0"),  # FindCoordinator without keys
        (9, 8, b"\2\2g\2\2t\0\0\0\0\0"),  # OffsetFetch: a topic without partitions
    ],
)
def test_an_array_that_cannot_be_null_is_refused(
    shared: GroupBroker, key: int, version: int, body: bytes
) -> None:
    [handle] = [api.handle for api in GROUP_APIS if api.key == key]
    with pytest.raises(DecodeError, match="is null"):
        handle(shared.core, Request(version, 1, None, memoryview(body), 0, LOCAL_CLIENT))


@pytest.mark.parametrize("api", [*GROUP_APIS, init_producer_id.API], ids=lambda api: api.name)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_other_bytes_are_answered_or_refused(shared: GroupBroker, api: Any, data: st.DataObject) -> None:
    """A handler gives a reply for any body, or raises DecodeError, which closes the connection."""
    version = data.draw(st.integers(api.lowest, api.highest))
    texts = st.sampled_from([b"", b"\0\0", b"\0\1g", b"\2g", b"\0\0\0\1", b"\xff\xff", b"\xff\xff\xff\xff"])
    body = b"".join(data.draw(st.lists(texts | st.binary(max_size=6), max_size=12)))
    with suppress(DecodeError):
        api.handle(shared.core, Request(version, 1, None, memoryview(body), 0, LOCAL_CLIENT))
