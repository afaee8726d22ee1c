"""Tests of ``decode`` and ``encode`` with lines of JSON that contain a message each."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ctrlchan._codec import encode_frame_prefix, encode_response_header, response_header_version
from ctrlchan.errors import CtrlchanError
from ctrlchan.messages.json_lines import convert, decode_frame, decode_message, encode_message
from ctrlchan.messages.schema import MESSAGES
from tests.conformance.golden import GOLDEN, Golden

each_golden = pytest.mark.parametrize("golden", GOLDEN, ids=str)
BODIES = [golden for golden in GOLDEN if MESSAGES[golden.name].api_key is not None]


@each_golden
def test_hex_to_json_and_back(golden: Golden) -> None:
    line = {"api": golden.name, "version": golden.version, "hex": golden.data.hex()}
    read = {"api": golden.name, "version": golden.version, "json": golden.json}
    assert decode_message(dict(line)) == read
    assert encode_message(dict(read)) == line


def test_other_keys_stay_where_they_are() -> None:
    line = {
        "at": 1.5,
        "api": "ResponseHeader",
        "hex": "00 00 00 07",
        "version": 0,
        "json": "old",
        "who": None,
    }
    read = decode_message(line)
    assert list(read.items()) == [
        ("at", 1.5), ("api", "ResponseHeader"), ("json", {"correlationId": 7}), ("version", 0), ("who", None),
    ]  # fmt: skip
    assert list(encode_message(read)) == ["at", "api", "hex", "version", "who"]


def test_unknown_tagged_fields_are_counted_and_dropped() -> None:
    read = decode_message({"api": "UpdateMetadataResponse", "version": 8, "hex": "0000 02 0701aa 0800"})
    assert read["unknown_tagged_fields"] == 2
    assert encode_message(read) == {"api": "UpdateMetadataResponse", "version": 8, "hex": "000000"}


# ---------------------------------------------------------------------------------------------- frames


def frame_of(golden: Golden) -> bytes:
    """Return the message with a header in front, as it follows the 4-byte size on a connection."""
    api_key = MESSAGES[golden.name].api_key
    assert api_key is not None
    if MESSAGES[golden.name].kind == "request":
        return encode_frame_prefix(api_key, golden.version, 33, b"1001", golden.data, 0)[4:]
    return encode_response_header(response_header_version(api_key, golden.version), 33) + golden.data


@pytest.mark.parametrize("golden", BODIES, ids=str)
def test_frames(golden: Golden) -> None:
    table = MESSAGES[golden.name]
    line = {"direction": table.kind, "hex": frame_of(golden).hex(), "from": "a capture"}
    header: dict[str, Any] = {"correlationId": 33}
    ways: list[dict[str, Any]] = [line]
    if table.kind == "request":
        header |= {"requestApiKey": table.api_key, "requestApiVersion": golden.version, "clientId": "1001"}
    else:
        apis = [table.api_key, golden.name, golden.name.removesuffix("Response")]
        ways = [line | {"api": api, "version": golden.version} for api in apis]
    for way in ways:
        assert decode_frame(way) == {
            "direction": table.kind,
            "from": "a capture",
            "api": golden.name,
            "version": golden.version,
            "header": header,
            "json": golden.json,
        }


def test_tagged_fields_of_header_and_body_are_counted_together() -> None:
    line = {"direction": "response", "api": 6, "version": 8, "hex": "00000021 010501ff 0000 01 0900"}
    assert decode_frame(line)["unknown_tagged_fields"] == 2
    line = {"direction": "response", "api": 6, "version": 8, "hex": "00000021 00 0000 00"}
    assert "unknown_tagged_fields" not in decode_frame(line)


def test_an_offset_counts_from_the_start_of_the_frame() -> None:
    golden = next(golden for golden in BODIES if str(golden) == "LeaderAndIsrRequest-v7")
    frame = frame_of(golden)
    with pytest.raises(CtrlchanError, match=f"byte {len(frame) - 1}: the data ends"):
        decode_frame({"direction": "request", "hex": frame[:-1].hex()})


def test_frames_of_other_apis_are_named() -> None:
    api_versions = "0012 0003 00000005 0003 612d62 00 0a6c6962 0431 00"
    with pytest.raises(CtrlchanError, match=r"api key 18 \(version 3, correlation id 5\)"):
        decode_frame({"direction": "request", "hex": api_versions})


# ----------------------------------------------------------------------------------------- lines as text


def lines(*texts: str | bytes) -> list[bytes]:
    return [text if isinstance(text, bytes) else text.encode() for text in texts]


def test_a_line_that_cannot_be_read_becomes_an_error_line() -> None:
    good = '{"api": "ResponseHeader", "version": 0, "hex": "00000007"}'
    out = list(convert(lines(good, "", "no", "  \n", good.replace("07", "0"), good), decode_message))
    assert [well for well, _ in out] == [True, False, False, True]
    assert [line.get("line") for _, line in out] == [None, 3, 5, None]


DECODE = '{"api": "ResponseHeader", "version": 0, "hex": "00000007"}'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("9" * 5_000, "not JSON"),
        (b"\xff\xfe\xff", "not JSON"),
        ("NaN", "NaN is not a JSON value"),
        ("[]", "not a JSON object"),
        ("null", "not a JSON object"),
        ("{}", 'no "api"'),
        (DECODE.replace("hex", "xeh"), 'no "hex"'),
        (DECODE.replace("version", "noisrev"), 'no "version"'),
        (DECODE.replace('"ResponseHeader"', "6"), '"api" must be a name, not 6'),
        (DECODE.replace("ResponseHeader", "Fetch"), "no message of the name 'Fetch'"),
        (DECODE.replace("0,", "2,"), "version 2 does not exist"),
        (DECODE.replace("0,", "-1,"), "version -1 does not exist"),
        (DECODE.replace("0,", "1e3,"), '"version" must be an integer, not 1000.0'),
        (DECODE.replace("0,", "true,"), '"version" must be an integer, not true'),
        (DECODE.replace("0,", "9" * 30 + ","), "does not exist"),
        (DECODE.replace("00000007", "0000000"), '"hex" must be pairs of hexadecimal digits'),
        (DECODE.replace("00000007", "0g"), '"hex" must be pairs of hexadecimal digits'),
        (DECODE.replace('"00000007"', "7"), '"hex" must be pairs of hexadecimal digits'),
        (
            DECODE.replace("00000007", "000007"),
            "field correlationId, byte 0: the data ends",
        ),
        (DECODE.replace("00000007", "0000000700"), "ResponseHeader v0, byte 4: unread bytes"),
    ],
)
def test_a_wrong_line_gives_its_reason(text: str | bytes, why: str) -> None:
    [(well, line)] = convert(lines(text), decode_message)
    assert not well
    assert line["line"] == 1
    assert why in line["error"]


FRAME = '{"direction": "response", "api": 6, "version": 8, "hex": "00000021000000 00"}'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (FRAME.replace("direction", "d"), 'no "direction"'),
        (FRAME.replace('"response"', '"up"'), '"direction" must be "request" or "response", not "up"'),
        (FRAME.replace('"response"', "[1]"), '"direction" must be "request" or "response", not [1]'),
        (FRAME.replace('"api"', '"ipa"'), 'no "api"'),
        (
            FRAME.replace(" 6,", " 3,"),
            "StopReplica (5) or UpdateMetadata (6), not 3",
        ),
        (FRAME.replace(" 6,", " [6],"), "not [6]"),
        (FRAME.replace(" 8,", " 9,"), "version 9 does not exist"),
        (FRAME.replace(" 8,", "9" * 30 + ","), "does not exist"),
        (
            '{"direction": "request", "hex": "00000021 00000005 0000"}',
            "api key 0 (version 33,",
        ),
        ('{"direction": "request", "hex": "00060009 00000001 0000 00"}', "version 9 does not exist"),
        ('{"direction": "request", "hex": "0006ffff000000010000"}', "version -1 does not exist"),
        (
            '{"direction": "request", "hex": "0006"}',
            "requestApiVersion, byte 2: the data ends",
        ),
    ],
)
def test_a_wrong_frame_gives_its_reason(text: str, why: str) -> None:
    assert next(iter(convert(lines(FRAME), decode_frame)))[0]
    [(well, line)] = convert(lines(text), decode_frame)
    assert not well
    assert why in line["error"]


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
LINES = st.fixed_dictionaries(
    {},
    optional={
        "api": st.sampled_from(list(MESSAGES)) | st.sampled_from([4, 5, 6, "UpdateMetadata"]) | ANY,
        "version": st.integers(-1, 9) | ANY,
        "hex": st.binary(max_size=60).map(bytes.hex) | ANY,
        "json": ANY,
        "direction": st.sampled_from(["request", "response"]) | ANY,
        "other": ANY,
    },
)


@pytest.mark.parametrize("work", [decode_message, encode_message, decode_frame])
@given(text=st.binary(max_size=60) | LINES.map(lambda line: json.dumps(line).encode()))
@example(text=b'{"api": "UpdateMetadataResponse", "version": 8, "json": {"errorCode": 1e400}}')
@settings(max_examples=300, deadline=None)
def test_any_line_gives_a_line_of_json(work: Any, text: bytes) -> None:
    for well, line in convert([text], work):
        assert well or set(line) == {"error", "line"}
        assert "\n" not in json.dumps(line)
