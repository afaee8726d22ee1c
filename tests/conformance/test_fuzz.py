"""Arbitrary bytes are decoded or raise ProtocolError, never anything else.

The slow codec must read the same value from the same bytes, or refuse them for the same field at the same
offset. A decoded value must be the same after encoding and decoding it again.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ctrlchan._codec import decode_request_header
from ctrlchan.errors import DecodeError, ProtocolError
from ctrlchan.messages.json_form import decode_to_json, encode_from_json
from ctrlchan.messages.schema import MESSAGES
from tests.conformance import reference
from tests.conformance.strategies import ALL, AS_LONG_AS_IT_TAKES, Json, case_id, messages

each_version = pytest.mark.parametrize(("name", "version"), ALL, ids=case_id)

# Values of a hostile writer: ends of ranges, as int16, int32 and varint.
SPECIAL = [
    b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff", b"\x7f\xff", b"\x80\x00", b"\xff\xff", b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00", b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe", b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\x01", b"\x80\x80\x80\x80\x00", bytes(16),
]  # fmt: skip


@st.composite
def garbage(draw: st.DrawFn, name: str, version: int) -> bytes:
    """Draw a valid message with a few edits, each of which may move everything after it; or random bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    data = bytearray(reference.encode(name, version, draw(messages(name, version))))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        piece = draw(st.sampled_from(SPECIAL) | st.binary(min_size=1, max_size=8))
        match draw(st.sampled_from(["overwrite", "insert", "delete", "cut", "repeat", "flip"])):
            case "overwrite":
                data[at : at + len(piece)] = piece
            case "insert":
                data[at:at] = piece
            case "delete":
                del data[at : at + len(piece)]
            case "cut":
                del data[at:]
            case "repeat":
                data[at:at] = data[at : at + 64]
            case _:
                if at < len(data):
                    data[at] ^= 1 << draw(st.integers(0, 7))
    return bytes(data)


def slow_result(name: str, version: int, data: bytes) -> reference.Decoded | reference.Malformed:
    try:
        slow = reference.decode(name, version, data)
    except reference.Malformed as malformed:
        return malformed
    if slow.size == len(data):
        return slow
    return reference.Malformed("", slow.size, "unread bytes after a header")


def check(name: str, version: int, data: bytes) -> None:
    slow = slow_result(name, version, data)
    if isinstance(slow, reference.Malformed):
        with pytest.raises(DecodeError) as caught:
            decode_to_json(name, version, data)
        error = caught.value
        assert (error.field, error.offset) == (slow.field, slow.offset), f"{error}, not {slow}"
        assert (error.api, error.version) == (name, version)
        return
    value, unknown = decode_to_json(name, version, data)
    assert value == slow.value
    assert unknown == slow.unknown_tagged_fields
    again = encode_from_json(name, version, value)
    assert again == reference.encode(name, version, value)
    assert decode_to_json(name, version, again) == (value, 0)


@each_version
@given(data=st.data())
@settings(AS_LONG_AS_IT_TAKES, max_examples=50)
def test_bytes(name: str, version: int, data: st.DataObject) -> None:
    check(name, version, data.draw(garbage(name, version)))


# ------------------------------------------------------------------------------------------------- JSON

ANY_JSON: st.SearchStrategy[Json] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=30)
    | st.sampled_from([-1, 2**31, 2**63, "\ud800", "AAECAwQFBgcICQoLDA0ODw"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def json_garbage(draw: st.DrawFn, name: str, version: int) -> Json:
    """Draw a valid message of this or another version, with some of its values replaced or left out."""
    versions = MESSAGES[name].versions
    value = draw(messages(name, draw(st.just(version) | st.sampled_from(versions))))
    for _ in range(draw(st.integers(1, 3))):
        here: Any = value
        while isinstance(here, dict | list) and here:
            keys = sorted(here) if isinstance(here, dict) else range(len(here))
            key: Any = draw(st.sampled_from(keys))
            if draw(st.integers(0, 3)) == 0 or not isinstance(here[key], dict | list) or not here[key]:
                if draw(st.booleans()):
                    here[key] = draw(ANY_JSON)
                else:
                    del here[key]
                break
            here = here[key]
    return value


@each_version
@given(data=st.data())
@settings(AS_LONG_AS_IT_TAKES, max_examples=40)
def test_json(name: str, version: int, data: st.DataObject) -> None:
    value = data.draw(ANY_JSON | json_garbage(name, version))
    try:
        encoded = encode_from_json(name, version, value)
    except ProtocolError:
        return
    read, _ = decode_to_json(name, version, encoded)
    assert encode_from_json(name, version, read) == encoded


# --------------------------------------------------------------------------------------- request headers


@given(data=st.binary(max_size=40))
@example(struct.pack(">hhih", 6, 8, 1, -1) + b"\0")
@settings(AS_LONG_AS_IT_TAKES, max_examples=300)
def test_headers_of_any_api(data: bytes) -> None:
    """The header contains its own version; any bytes may follow it."""
    try:
        header = decode_request_header(data)
    except ProtocolError:
        return
    assert 10 <= header.size <= len(data)
    assert struct.unpack(">hhi", data[:8]) == (header.api_key, header.api_version, header.correlation_id)
