"""JoinGroup and SyncGroup in all versions: read and written as by kio."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioError
from kio.static.primitive import i32Timedelta

from ctrlchan.broker.coordinator.group.requests import (
    JoinedMember,
    JoinRequest,
    JoinResult,
    SyncRequest,
    SyncResult,
)
from ctrlchan.broker.handlers._membership_messages import decode_join, decode_sync, encode_join, encode_sync
from ctrlchan.broker.handlers.group_access import milliseconds
from ctrlchan.errors import DecodeError, ErrorCode
from ctrlchan.server.kio_messages import ClientMessages, only_known_fields
from tests.unit.broker.by_kio import check_changed_bytes, check_read_as_by_kio, encoded, part
from tests.unit.broker.local_broker import NO_TIME

JOIN, SYNC = 11, 14
HEADER = b"header"

_EACH_VERSION = pytest.mark.parametrize(
    ("key", "version"),
    [*((JOIN, version) for version in range(10)), *((SYNC, version) for version in range(6))],
)
_FEW = settings(max_examples=12)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
_SOME = st.none() | _TEXTS
_BLOBS = st.binary(max_size=9) | st.integers(120, 300).map(bytes)
_INT32 = st.integers(-(2**31), 2**31 - 1)
_TIMES = _INT32.map(lambda number: i32Timedelta.parse(timedelta(milliseconds=number)))
_ERRORS = st.sampled_from([ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_SERVER_ERROR])


def request_of(data: st.DataObject, key: int, version: int) -> bytes:
    """A request of kio with random fields."""
    schema: Any = load_request_schema(key, version)
    fields: dict[str, Any] = {
        "group_id": data.draw(_TEXTS),
        "session_timeout": data.draw(_TIMES),
        "rebalance_timeout": data.draw(_TIMES),
        "generation_id": data.draw(_INT32),
        "member_id": data.draw(_TEXTS),
        "group_instance_id": data.draw(_SOME),
        "reason": data.draw(_SOME),
    }
    pairs = data.draw(st.lists(st.tuples(_TEXTS, _BLOBS), max_size=3))
    if key == JOIN:
        fields["protocol_type"] = data.draw(_TEXTS)
        fields["protocols"] = tuple(
            part(schema, "JoinGroupRequestProtocol", name=name, metadata=blob) for name, blob in pairs
        )
    else:
        fields["protocol_type"], fields["protocol_name"] = data.draw(_SOME), data.draw(_SOME)
        fields["assignments"] = tuple(
            part(schema, "SyncGroupRequestAssignment", member_id=name, assignment=blob)
            for name, blob in pairs
        )
    return encoded(schema(**only_known_fields(schema, fields)))


def read_by_kio(key: int, version: int, body: bytes) -> JoinRequest | SyncRequest:
    messages = ClientMessages("join_group" if key == JOIN else "sync_group", version)
    request: Any = messages.decode_body(memoryview(HEADER + body), len(HEADER))
    instance_id = getattr(request, "group_instance_id", None)
    if key == SYNC:
        return SyncRequest(
            request.group_id,
            request.generation_id,
            request.member_id,
            instance_id,
            getattr(request, "protocol_type", None),
            getattr(request, "protocol_name", None),
            {each.member_id: each.assignment for each in request.assignments},
        )
    session = milliseconds(request.session_timeout)
    return JoinRequest(
        request.group_id,
        request.member_id,
        "client",
        "/host",
        session,
        milliseconds(request.rebalance_timeout) if version >= 1 else session,
        request.protocol_type,
        tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        instance_id,
        requires_member_id=version >= 4 and instance_id is None,
        can_skip_assignment=version >= 9,
        reason=getattr(request, "reason", None),
    )


def read(key: int, version: int, body: bytes) -> JoinRequest | SyncRequest:
    frame = memoryview(HEADER + body)
    if key == JOIN:
        return decode_join(frame, len(HEADER), version, "client", "/host")
    return decode_sync(frame, len(HEADER), version)


@_EACH_VERSION
@_FEW
@given(data=st.data())
def test_requests_are_read_as_by_kio(key: int, version: int, data: st.DataObject) -> None:
    body = request_of(data, key, version)
    check_read_as_by_kio(body, partial(read, key, version), partial(read_by_kio, key, version))


@_EACH_VERSION
@_FEW
@given(data=st.data())
def test_changed_bytes_are_read_as_by_kio(key: int, version: int, data: st.DataObject) -> None:
    body = request_of(data, key, version)
    check_changed_bytes(data, body, partial(read, key, version), partial(read_by_kio, key, version))


@pytest.mark.parametrize("version", range(10))
@_FEW
@given(data=st.data())
def test_join_responses_are_those_of_kio(version: int, data: st.DataObject) -> None:
    result = JoinResult(
        data.draw(_ERRORS),
        data.draw(_TEXTS),
        data.draw(_INT32),
        data.draw(_SOME),
        data.draw(_SOME),
        data.draw(_TEXTS),
        data.draw(st.booleans()) if version >= 9 else False,
        tuple(data.draw(st.lists(st.builds(JoinedMember, _TEXTS, _SOME, _BLOBS), max_size=3))),
    )
    schema: Any = load_response_schema(JOIN, version)
    members = tuple(
        part(
            schema,
            "JoinGroupResponseMember",
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata,
        )
        for member in result.members
    )
    fields = {
        "throttle_time": NO_TIME,
        "error_code": KioError(result.error),
        "generation_id": result.generation_id,
        "protocol_type": result.protocol_type,
        # Older versions have no null, and newer ones no empty name.
        "protocol_name": result.protocol_name or (None if version >= 7 else ""),
        "leader": result.leader_id,
        "skip_assignment": result.skip_assignment,
        "member_id": result.member_id,
        "members": members,
    }
    assert encode_join(version, result) == encoded(schema(**only_known_fields(schema, fields)))


@pytest.mark.parametrize("version", range(6))
@_FEW
@given(result=st.builds(SyncResult, _ERRORS, _SOME, _SOME, _BLOBS))
def test_sync_responses_are_those_of_kio(version: int, result: SyncResult) -> None:
    schema: Any = load_response_schema(SYNC, version)
    fields = {
        "throttle_time": NO_TIME,
        "error_code": KioError(result.error),
        "protocol_type": result.protocol_type,
        "protocol_name": result.protocol_name,
        "assignment": result.assignment,
    }
    assert encode_sync(version, result) == encoded(schema(**only_known_fields(schema, fields)))


def test_ten_thousand_members() -> None:
    """The leader hears of all, and assigns to all."""
    members = tuple(JoinedMember(f"member-{number}", None, bytes(number % 500)) for number in range(10_000))
    body = encode_join(
        9, JoinResult(ErrorCode.NONE, "member-0", 1, "consumer", "range", "member-0", False, members)
    )
    schema: Any = load_response_schema(JOIN, 9)
    parts = tuple(
        part(schema, "JoinGroupResponseMember", member_id=one[0], metadata=one[2]) for one in members
    )
    assert body == encoded(
        schema(
            throttle_time=NO_TIME,
            error_code=KioError(0),
            generation_id=1,
            protocol_type="consumer",
            protocol_name="range",
            leader="member-0",
            member_id="member-0",
            members=parts,
        )
    )


@pytest.mark.parametrize(
    ("key", "version", "body", "reason"),
    [
        (JOIN, 0, b"\xff\xff" + b"\0" * 20, "the group id is null"),
        (JOIN, 0, b"\0\1g\0\0\0\0\xff\xff", "the member id is null"),
        (JOIN, 0, b"\0\1g\0\0\0\0\0\0\xff\xff", "the protocol type is null"),
        (JOIN, 0, b"\0\1g\0\0\0\0\0\0\0\0\xff\xff\xff\xff", "the list of protocols is null"),
        (JOIN, 0, b"\0\1g\0\0\0\0\0\0\0\0\x7f\0\0\0", "an array of 2130706432 elements in 0 bytes"),
        (JOIN, 0, b"\0\1g\0\0\0\0\0\0\0\0\0\0\0\1\xff\xff", "the name of a protocol is null"),
        (
            JOIN,
            0,
            b"\0\1g\0\0\0\0\0\0\0\0\0\0\0\1\0\1r\xff\xff\xff\xff",
            "the metadata of a protocol is null",
        ),
        (JOIN, 0, b"\0\1\xff" + b"\0" * 20, "utf-8"),
        (SYNC, 0, b"\0\1g\0\0\0\0\0\0\xff\xff\xff\xff", "the list of assignments is null"),
        (SYNC, 0, b"\0\1g\0\0\0\0\0\0\0\0\0\1\0\1m\xff\xff\xff\xff", "an assignment is null"),
        (SYNC, 4, b"\2g\0\0\0\0\0\0\2\0", "the member id is null"),
    ],
)
def test_refused_requests_have_a_reason(key: int, version: int, body: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        read(key, version, body)


@pytest.mark.parametrize(
    ("encode", "version", "result"),
    [
        (encode_join, 0, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, "x" * 32_768)),
        (encode_join, 9, JoinResult(ErrorCode.NONE, "m", members=(JoinedMember("é" * 16_384, None, b""),))),
        (encode_sync, 5, SyncResult(ErrorCode.NONE, "x" * 32_768)),
    ],
)
def test_texts_that_have_no_place_in_a_message(encode: Any, version: int, result: Any) -> None:
    with pytest.raises(ValueError, match="a string of 32768 bytes"):
        encode(version, result)
