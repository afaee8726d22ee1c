"""The records of ``__consumer_offsets`` are those of Kafka's own classes, byte for byte."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctrlchan.broker.coordinator.group.records import (
    CommittedOffset,
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    group_key,
    group_value,
    offset_key,
    offset_value,
    read_group_value,
    read_key,
    read_offset_value,
)
from ctrlchan.internal_topics import coordinator_partition
from tests.conformance.java_process import JavaProcess
from tests.kafka.requirement import require_kafka

_FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class _Kafka:
    """GroupRecords.java, which describes the lines."""

    def __init__(self) -> None:
        self.java = JavaProcess("GroupRecords", shows_errors=True)

    def ask(self, *words: object) -> str:
        kind, _, rest = self.java.ask(" ".join(map(str, words))).partition(" ")
        assert kind == "ok", rest
        return rest


@pytest.fixture(scope="module")
def kafka() -> Iterator[_Kafka]:
    require_kafka()
    running = _Kafka()
    yield running
    running.java.close()


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_NAMES = _TEXTS.filter(bool)
_INT32 = st.integers(-(2**31), 2**31 - 1)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_OFFSETS = st.builds(
    CommittedOffset, _INT64, _INT32, _TEXTS, _INT64, st.one_of(st.just(-1), st.integers(0, 2**63 - 1))
)
_MEMBERS = st.builds(
    MemberValue,
    _NAMES,
    st.none() | _NAMES,
    _TEXTS,
    _TEXTS,
    _INT32,
    _INT32,
    st.binary(max_size=9),
    st.binary(max_size=9),
)


def _hex(text: str) -> str:
    return text.encode().hex()


@_FEW
@given(_NAMES, _NAMES, _INT32)
def test_keys(kafka: _Kafka, group_id: str, topic: str, partition: int) -> None:
    written = offset_key(group_id, topic, partition)
    assert written.hex() == kafka.ask("key", _hex(group_id), _hex(topic), partition)
    assert read_key(written) == OffsetKey(group_id, topic, partition)
    written = group_key(group_id)
    assert written.hex() == kafka.ask("key", _hex(group_id))
    assert read_key(written) == GroupKey(group_id)
    name = {"group": group_id, "topic": topic, "partition": partition}
    old = bytes.fromhex(kafka.ask("message", "OffsetCommitKey", 0, json.dumps(name)))
    assert read_key(old) == OffsetKey(group_id, topic, partition)


@_FEW
@given(_OFFSETS)
def test_offsets(kafka: _Kafka, offset: CommittedOffset) -> None:
    written = offset_value(offset)
    assert written.hex() == kafka.ask("offset", written.hex())
    expires = offset.expire_timestamp != -1
    assert read_offset_value(written) == (offset._replace(leader_epoch=-1) if expires else offset)


@_FEW
@given(_OFFSETS, st.integers(0, 4))
def test_offsets_of_all_versions(kafka: _Kafka, offset: CommittedOffset, version: int) -> None:
    value: dict[str, Any] = {
        "offset": offset.offset,
        "metadata": offset.metadata,
        "commitTimestamp": offset.commit_timestamp,
    }
    if version >= 3:
        value["leaderEpoch"] = offset.leader_epoch
    if version == 1:
        value["expireTimestamp"] = offset.expire_timestamp
    data = bytes.fromhex(kafka.ask("message", "OffsetCommitValue", version, json.dumps(value)))
    assert read_offset_value(data) == offset._replace(
        leader_epoch=offset.leader_epoch if version >= 3 else -1,
        expire_timestamp=offset.expire_timestamp if version == 1 else -1,
    )


@_FEW
@given(_INT32, _NAMES, st.integers(0, 2**62), st.none() | _MEMBERS)
def test_groups(
    kafka: _Kafka, generation_id: int, protocol: str, timestamp: int, member: MemberValue | None
) -> None:
    members = () if member is None else (member,)
    leader = None if member is None else member.member_id
    name = None if member is None else protocol
    # Kafka reads the subscriptions of consumers, and fails at bytes that are none.
    group = GroupValue("connect", generation_id, name, leader, timestamp, members)
    written = group_value(group)
    assert written.hex() == kafka.ask("group", written.hex())
    assert read_group_value(written) == group


@_FEW
@given(st.lists(_MEMBERS, max_size=4), st.integers(0, 4), st.none() | _TEXTS)
def test_groups_of_all_versions(
    kafka: _Kafka, members: list[MemberValue], version: int, leader: str | None
) -> None:
    group = GroupValue("consumer", 7, "range", leader, 12, tuple(members))
    value: dict[str, Any] = {
        "protocolType": "consumer",
        "generation": 7,
        "protocol": "range",
        "leader": leader,
        "members": [_member_json(member, version) for member in members],
    }
    if version >= 2:
        value["currentStateTimestamp"] = 12
    data = bytes.fromhex(kafka.ask("message", "GroupMetadataValue", version, json.dumps(value)))
    assert read_group_value(data) == group._replace(
        state_timestamp=12 if version >= 2 else -1,
        members=tuple(
            member._replace(
                instance_id=member.instance_id if version >= 3 else None,
                rebalance_timeout=member.rebalance_timeout if version >= 1 else member.session_timeout,
            )
            for member in members
        ),
    )


def _member_json(member: MemberValue, version: int) -> dict[str, Any]:
    value: dict[str, Any] = {
        "memberId": member.member_id,
        "clientId": member.client_id,
        "clientHost": member.client_host,
        "sessionTimeout": member.session_timeout,
        "subscription": base64.b64encode(member.subscription).decode(),
        "assignment": base64.b64encode(member.assignment).decode(),
    }
    if version >= 1:
        value["rebalanceTimeout"] = member.rebalance_timeout
    if version >= 3:
        value["groupInstanceId"] = member.instance_id
    return value


@_FEW
@given(_TEXTS, st.integers(1, 1_000))
def test_groups_are_placed_as_kafka_places_them(kafka: _Kafka, group_id: str, partitions: int) -> None:
    assert coordinator_partition(group_id, partitions) == int(
        kafka.ask("partition", partitions, _hex(group_id))
    )
