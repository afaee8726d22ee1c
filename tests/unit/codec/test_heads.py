"""Tests of heads, headers and frame prefixes."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from ctrlchan._codec import (
    HIGHEST_VERSION,
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    decode_request_header,
    decode_response_header,
    encode_frame_prefix,
    encode_head,
    encode_request_header,
    encode_response_header,
    request_header_version,
    response_header_version,
)
from ctrlchan.errors import DecodeError, EncodeError, UnsupportedVersionError
from ctrlchan.messages.schema import MESSAGES

REQUESTS = [
    (table.api_key, version)
    for table in MESSAGES.values()
    for version in table.versions
    if table.kind == "request" and table.api_key is not None
]


def test_the_highest_versions() -> None:
    assert HIGHEST_VERSION == {LEADER_AND_ISR: 7, STOP_REPLICA: 4, UPDATE_METADATA: 8}


def test_flexible_versions_have_flexible_headers() -> None:
    for message in MESSAGES.values():
        if message.api_key is None:
            continue
        for version in message.versions:
            flexible = version in message.flexible
            assert request_header_version(message.api_key, version) == (2 if flexible else 1)
            assert response_header_version(message.api_key, version) == (1 if flexible else 0)


# The fields of each head, in order: their formats and their names.
HEADS = {
    (LEADER_AND_ISR, 0): (">ii", "controller controller_epoch"),
    (LEADER_AND_ISR, 1): (">ii", "controller controller_epoch"),
    (LEADER_AND_ISR, 2): (">iiq", "controller controller_epoch broker_epoch"),
    (LEADER_AND_ISR, 4): (">iiq", "controller controller_epoch broker_epoch"),
    (LEADER_AND_ISR, 5): (">iiqb", "controller controller_epoch broker_epoch type"),
    (LEADER_AND_ISR, 6): (">iiqb", "controller controller_epoch broker_epoch type"),
    (LEADER_AND_ISR, 7): (">i?iqb", "controller kraft controller_epoch broker_epoch type"),
    (STOP_REPLICA, 0): (">ii?", "controller controller_epoch delete"),
    (STOP_REPLICA, 1): (">iiq?", "controller controller_epoch broker_epoch delete"),
    (STOP_REPLICA, 2): (">iiq?", "controller controller_epoch broker_epoch delete"),
    (STOP_REPLICA, 3): (">iiq", "controller controller_epoch broker_epoch"),
    (STOP_REPLICA, 4): (">i?iq", "controller kraft controller_epoch broker_epoch"),
    (UPDATE_METADATA, 0): (">ii", "controller controller_epoch"),
    (UPDATE_METADATA, 4): (">ii", "controller controller_epoch"),
    (UPDATE_METADATA, 5): (">iiq", "controller controller_epoch broker_epoch"),
    (UPDATE_METADATA, 7): (">iiq", "controller controller_epoch broker_epoch"),
    (UPDATE_METADATA, 8): (">i?iq", "controller kraft controller_epoch broker_epoch"),
}


@pytest.mark.parametrize(("api_key", "version"), HEADS)
def test_head(api_key: int, version: int) -> None:
    layout, names = HEADS[api_key, version]
    values: dict[str, Any] = {
        "controller": -7,
        "kraft": True,
        "controller_epoch": 2**31 - 1,
        "broker_epoch": -(2**63),
        "type": -128,
        "delete": True,
    }
    present = names.split()
    head = encode_head(
        api_key,
        version,
        values["controller"],
        values["controller_epoch"],
        values["broker_epoch"],
        is_kraft_controller="kraft" in present,
        request_type=values["type"] if "type" in present else 0,
        delete_partitions="delete" in present,
    )
    assert head == struct.pack(layout, *(values[name] for name in present))


def test_only_the_broker_epoch_differs_between_brokers() -> None:
    one, other = (encode_head(UPDATE_METADATA, 8, 1, 7, epoch) for epoch in (1, 2))
    assert one[:-8] == other[:-8]
    assert encode_head(UPDATE_METADATA, 8, 1, 7) == one[:-8] + b"\xff" * 8


@pytest.mark.parametrize(
    ("api_key", "version", "values", "field"),
    [
        (UPDATE_METADATA, 7, {"is_kraft_controller": True}, "isKRaftController"),
        (LEADER_AND_ISR, 6, {"is_kraft_controller": True}, "isKRaftController"),
        (STOP_REPLICA, 3, {"is_kraft_controller": True}, "isKRaftController"),
        (LEADER_AND_ISR, 4, {"request_type": 1}, "type"),
        (UPDATE_METADATA, 8, {"request_type": 1}, "type"),
        (STOP_REPLICA, 3, {"delete_partitions": True}, "deletePartitions"),
        (LEADER_AND_ISR, 0, {"delete_partitions": True}, "deletePartitions"),
    ],
)
def test_values_that_the_version_cannot_carry(api_key: int, version: int, values: Any, field: str) -> None:
    with pytest.raises(UnsupportedVersionError) as caught:
        encode_head(api_key, version, 1, 1, **values)
    assert (caught.value.version, caught.value.field) == (version, field)


def test_an_ignorable_broker_epoch_is_dropped() -> None:
    assert encode_head(UPDATE_METADATA, 0, 1, 7, 99) == struct.pack(">ii", 1, 7)


@pytest.mark.parametrize(
    ("arguments", "values", "field"),
    [
        ((2**31, 0, 0), {}, "controllerId"),
        ((-(2**31) - 1, 0, 0), {}, "controllerId"),
        ((0, 2**31, 0), {}, "controllerEpoch"),
        ((0, 0, 2**63), {}, "brokerEpoch"),
        ((0, 0, 2**100), {}, "brokerEpoch"),
        ((0, 0, 0), {"request_type": 128}, "type"),
        ((0, 0, 0), {"request_type": 2**40}, "type"),
    ],
)
def test_values_out_of_range(arguments: tuple[int, int, int], values: Any, field: str) -> None:
    with pytest.raises(EncodeError, match="does not fit") as caught:
        encode_head(LEADER_AND_ISR, 7, *arguments, **values)
    assert (caught.value.api, caught.value.version, caught.value.field) == ("LeaderAndIsrRequest", 7, field)


@pytest.mark.parametrize(("api_key", "version"), [(6, 9), (6, -1), (4, 8), (5, 5), (3, 0), (18, 3), (-1, 0)])
def test_no_such_api_or_version(api_key: int, version: int) -> None:
    for ask in (request_header_version, response_header_version):
        with pytest.raises(UnsupportedVersionError):
            ask(api_key, version)
    with pytest.raises(UnsupportedVersionError):
        encode_head(api_key, version, 1, 1)
    with pytest.raises(UnsupportedVersionError):
        encode_frame_prefix(api_key, version, 0, None, b"", 0)


# ---------------------------------------------------------------------------------------- frame prefixes


@pytest.mark.parametrize(("api_key", "version"), REQUESTS)
@pytest.mark.parametrize("client_id", [b"1001", b"", None])
def test_frame_prefix(api_key: int, version: int, client_id: bytes | None) -> None:
    head = encode_head(api_key, version, 1001, 7)
    prefix = encode_frame_prefix(api_key, version, -5, client_id, head, 1_000)
    header = encode_request_header(request_header_version(api_key, version), api_key, version, -5, client_id)
    assert prefix == struct.pack(">i", len(header) + len(head) + 1_000) + header + head
    read = decode_request_header(prefix[4:])
    assert (read.api_key, read.api_version, read.correlation_id) == (api_key, version, -5)
    assert (read.client_id, read.size, read.unknown_tagged_fields) == (client_id, len(header), 0)


def test_a_frame_has_at_most_2_to_the_31_bytes() -> None:
    smallest = encode_frame_prefix(UPDATE_METADATA, 8, 0, None, b"", 0)
    most = 2**31 - 1 - (len(smallest) - 4)
    assert encode_frame_prefix(UPDATE_METADATA, 8, 0, None, b"", most)[:4] == b"\x7f\xff\xff\xff"
    for size in (most + 1, 2**62, -1):
        with pytest.raises(EncodeError):
            encode_frame_prefix(UPDATE_METADATA, 8, 0, None, b"", size)


def test_a_client_id_of_more_than_32767_bytes() -> None:
    with pytest.raises(EncodeError) as caught:
        encode_frame_prefix(UPDATE_METADATA, 8, 0, b"c" * 32_768, b"", 0)
    assert caught.value.field == "clientId"


# ---------------------------------------------------------------------------------------------- headers


def test_a_header_contains_its_own_version() -> None:
    flexible = encode_request_header(2, UPDATE_METADATA, 6, 3, b"c")
    assert decode_request_header(flexible + b"body").size == len(flexible) == 12
    classic = encode_request_header(1, UPDATE_METADATA, 5, 3, b"c")
    assert decode_request_header(classic + b"body").size == len(classic) == 11


def test_a_header_of_another_api_is_read_up_to_its_client_id() -> None:
    header = decode_request_header(struct.pack(">hhih", 18, 3, 9, 1) + b"c" + b"\x00...")
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (18, 3, 9, b"c")


def test_tagged_fields_of_headers_are_counted() -> None:
    data = encode_request_header(2, UPDATE_METADATA, 8, 3, None)[:-1] + b"\x01\x05\x02xx"
    assert decode_request_header(data).unknown_tagged_fields == 1
    assert decode_response_header(b"\0\0\0\x07\x01\x05\x02xx", 1) == (7, 9, 1)
    assert decode_response_header(b"\0\0\0\x07more", 0) == (7, 4, 0)


@pytest.mark.parametrize("value", [2**15, -(2**15) - 1])
def test_header_values_out_of_range(value: int) -> None:
    with pytest.raises(EncodeError, match="int16"):
        encode_request_header(1, value, 0, 0, None)
    with pytest.raises(EncodeError, match="int16"):
        encode_request_header(1, 0, value, 0, None)
    with pytest.raises(EncodeError, match="int32"):
        encode_request_header(1, 0, 0, value << 16, None)
    with pytest.raises(EncodeError, match="int32"):
        encode_response_header(1, value << 16)


@pytest.mark.parametrize("version", [-1, 3])
def test_header_versions_that_do_not_exist(version: int) -> None:
    for attempt in (
        lambda: encode_request_header(version, 6, 8, 0, None),
        lambda: decode_request_header(bytes(20), version),
        lambda: encode_response_header(version, 0),
        lambda: decode_response_header(bytes(20), version),
    ):
        with pytest.raises(UnsupportedVersionError):
            attempt()


def test_cut_headers() -> None:
    whole = encode_request_header(2, UPDATE_METADATA, 8, 3, b"client")
    for length in range(len(whole)):
        with pytest.raises(DecodeError) as caught:
            decode_request_header(whole[:length])
        assert caught.value.api == "RequestHeader"
