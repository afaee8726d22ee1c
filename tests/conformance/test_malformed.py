"""Malformed messages: one kind of error after the other, in every field that can have it.

Each is a valid message with one wrong field, so field and offset of the error are known. test_golden.py has
cut messages and bytes after the end.
"""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from ctrlchan._codec import decode_request, decode_response
from ctrlchan.errors import DecodeError, ProtocolError, UnsupportedVersionError
from ctrlchan.messages.json_form import decode_to_json, encode_from_json
from ctrlchan.messages.schema import MESSAGES, Field, Struct
from tests.conformance import reference
from tests.conformance.oracle import Oracle
from tests.conformance.reference import Raw, uvarint
from tests.conformance.strategies import ALL, BODIES, FLEXIBLE, Json, case_id, smallest

Wrong = Callable[[Field, bool], list[bytes]]

each_version = pytest.mark.parametrize(("name", "version"), ALL, ids=case_id)
each_body = pytest.mark.parametrize(("name", "version"), BODIES, ids=case_id)
each_flexible_version = pytest.mark.parametrize(("name", "version"), FLEXIBLE, ids=case_id)


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


def int16(value: int) -> bytes:
    return struct.pack(">h", value)


def malformed(name: str, version: int, wrong: Wrong) -> Iterator[tuple[str, int, bytes]]:
    """Yield (field, offset, whole message) for each field of the version and each of its ``wrong`` bytes."""
    flexible = version in MESSAGES[name].flexible
    whole = smallest(name, version)

    def go(struct_: Struct, here: Json) -> Iterator[tuple[str, int, bytes]]:
        for field in struct_.fields:
            if version not in field.versions or field.tag is not None:
                continue
            kept = here[field.name]
            for data in wrong(field, flexible):
                here[field.name] = raw = Raw(data)
                message = reference.encode(name, version, whole)
                yield field.name, raw.offset, message
            here[field.name] = kept
            if field.struct is not None:
                yield from go(field.struct, kept[0])

    return go(MESSAGES[name].root, whole)


def assert_refused_at(name: str, version: int, field: str, offset: int, message: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_to_json(name, version, message)
    error = caught.value
    assert (error.api, error.version, error.field, error.offset) == (name, version, field, offset), error


# ----------------------------------------------------------------------------------- counts and lengths


def wrong_counts(field: Field, flexible: bool) -> list[bytes]:
    if not field.is_array:
        return []
    if flexible:
        # 0 is null; the others are more than the rest could hold.
        return [uvarint(0), uvarint(5_000), uvarint(2**31), uvarint(2**32 - 1)]
    return [int32(-1), int32(-2), int32(-(2**31)), int32(5_000), int32(2**31 - 1)]


def wrong_lengths(field: Field, flexible: bool) -> list[bytes]:
    if field.kind != "string":
        return []
    if flexible and field.compact:
        lengths = [uvarint(5_000), uvarint(2**31), uvarint(2**32 - 1), uvarint(32_769) + b"n" * 32_768]
        return lengths if field.nullable else [*lengths, uvarint(0)]
    lengths = [int16(-2), int16(-(2**15)), int16(5_000), int16(2**15 - 1)]
    return lengths if field.nullable else [*lengths, int16(-1)]


def wrong_varints(field: Field, flexible: bool) -> list[bytes]:
    if flexible and (field.is_array or (field.kind == "string" and field.compact)):
        # 33 bits; six bytes.
        return [b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x00"]
    return []


@each_version
@pytest.mark.parametrize("wrong", [wrong_counts, wrong_lengths, wrong_varints])
def test_a_wrong_count_or_length(name: str, version: int, wrong: Wrong) -> None:
    for field, offset, message in malformed(name, version, wrong):
        assert_refused_at(name, version, field, offset, message)


@each_body
def test_a_hostile_count_costs_no_memory(name: str, version: int) -> None:
    for _, _, message in malformed(name, version, wrong_counts):
        assert peak_of_decoding(name, version, message) < 64 * 1024


@each_body
def test_memory_is_bounded_by_the_bytes_given(name: str, version: int) -> None:
    """The largest possible counts, followed by zeros: memory stays in proportion to the bytes.

    The smallest broker has 7 bytes on the wire and the smallest partition 4; a row of columns, or of the
    lists from which the brokers' columns are made, has up to 30 times as many.
    """
    size = 200_000

    def largest_counts(field: Field, flexible: bool) -> list[bytes]:
        if not field.is_array:
            return []
        counts = [size // least for least in (1, 4, 7, 10, 20, 36)]
        return [(uvarint(n + 1) if flexible else int32(n)) + bytes(size) for n in counts]

    for _, _, message in malformed(name, version, largest_counts):
        assert peak_of_decoding(name, version, message) < 32 * size


def peak_of_decoding(name: str, version: int, message: bytes) -> int:
    """Return the most bytes allocated while a body is decoded; NumPy reports its arrays to tracemalloc."""
    decode = decode_request if MESSAGES[name].kind == "request" else decode_response
    api_key = MESSAGES[name].api_key
    assert api_key is not None
    tracemalloc.start()
    try:
        decode(api_key, version, message)
    except DecodeError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak


# ------------------------------------------------------------------------------------------------- text

NOT_UTF8 = [
    b"\xff",
    b"\xc0\x80",  # overlong
    b"\xe0\x9f\xbf",  # overlong
    b"\xed\xa0\x80",  # a surrogate
    b"\xf0\x8f\xbf\xbf",  # overlong
    b"\xf4\x90\x80\x80",  # above U+10FFFF
    b"\xe2\x82",  # ends within a character
    b"\xc3",
    b"eight by\x80tes",
    b"\x80eight bytes",
]


@each_version
def test_text_that_is_not_utf8(name: str, version: int) -> None:
    for text in NOT_UTF8:
        compact = uvarint(len(text) + 1) + text
        classic = int16(len(text)) + text

        def bad_text(
            field: Field, flexible: bool, compact: bytes = compact, classic: bytes = classic
        ) -> list[bytes]:
            if field.kind != "string":
                return []
            return [compact if flexible and field.compact else classic]

        for field, offset, message in malformed(name, version, bad_text):
            prefix = 1 if version in MESSAGES[name].flexible and field != "clientId" else 2
            assert_refused_at(name, version, field, offset + prefix, message)


@each_version
def test_names_of_32767_bytes_and_one_more(name: str, version: int) -> None:
    def go(struct_: Struct, here: Json) -> None:
        for field in struct_.fields:
            if version not in field.versions:
                continue
            if field.kind == "string":
                kept = here[field.name]
                here[field.name] = "ü" * 16_383 + "n"
                data = encode_from_json(name, version, whole)
                assert decode_to_json(name, version, data) == (whole, 0)
                here[field.name] = "ü" * 16_384
                with pytest.raises(ProtocolError, match="32767") as caught:
                    encode_from_json(name, version, whole)
                assert caught.value.field == field.name
                here[field.name] = kept
            if field.struct is not None:
                go(field.struct, here[field.name][0])

    whole = smallest(name, version)
    go(MESSAGES[name].root, whole)


# ----------------------------------------------------------------------------------------- tagged fields


def at(place: str, tags: reference.Tags | Raw) -> Callable[[str], reference.Tags | Raw]:
    """Return a function that gives tagged fields to one kind of struct only."""
    return lambda struct_: tags if struct_ == place else ()


def structs_of(struct_: Struct, version: int) -> Iterator[str]:
    yield struct_.name
    for field in struct_.fields:
        if field.struct is not None and version in field.versions:
            yield from structs_of(field.struct, version)


@each_flexible_version
def test_unknown_tagged_fields_are_skipped_and_counted_in_every_place(name: str, version: int) -> None:
    value = smallest(name, version)
    plain = encode_from_json(name, version, value)
    places = list(structs_of(MESSAGES[name].root, version))
    for place in places:
        for tags in ([(1, b"")], [(5, b"\x01\x02"), (300, b"x" * 300)], [(2**32 - 1, b"\0")]):
            data = reference.encode(name, version, value, at(place, tags))
            assert decode_to_json(name, version, data) == (value, len(tags))
    everywhere = reference.encode(name, version, value, lambda at: [(9, b"nine")])
    assert decode_to_json(name, version, everywhere) == (value, len(places))
    assert encode_from_json(name, version, value) == plain


@each_flexible_version
def test_wrong_tagged_fields(name: str, version: int) -> None:
    tag_5 = uvarint(5) + uvarint(0)
    for place in structs_of(MESSAGES[name].root, version):
        for section, begin in [
            (uvarint(1) + uvarint(5) + uvarint(5_000), 1),
            (uvarint(1) + uvarint(5) + uvarint(2**32 - 1), 1),
            (uvarint(2) + tag_5 + tag_5, 3),
            (uvarint(2) + tag_5 + uvarint(4) + uvarint(0), 3),
            (b"\xff\xff\xff\xff\x1f", 0),
            (uvarint(1) + b"\xff\xff\xff\xff\x1f", 1),
        ]:
            raw = Raw(section)
            data = reference.encode(name, version, smallest(name, version), at(place, raw))
            assert_refused_at(name, version, "_taggedFields", raw.offset + begin, data)


@pytest.mark.parametrize("size", [0, 2, 8])
def test_the_known_tagged_field_has_one_byte(size: int) -> None:
    value = smallest("UpdateMetadataRequest", 8)
    raw = Raw(uvarint(1) + uvarint(0) + uvarint(size) + bytes(size))
    data = reference.encode("UpdateMetadataRequest", 8, value, at("UpdateMetadataRequest", raw))
    assert_refused_at("UpdateMetadataRequest", 8, "type", raw.offset + 1, data)


def test_tag_0_is_unknown_everywhere_else() -> None:
    value = smallest("UpdateMetadataRequest", 8)
    del value["type"]
    data = reference.encode("UpdateMetadataRequest", 8, value, lambda at: [(0, b"\2")])
    # Five structs; in the request itself tag 0 is the type.
    assert decode_to_json("UpdateMetadataRequest", 8, data) == (value | {"type": 2}, 4)


# ----------------------------------------------------------------------------------- what is not refused


@each_version
def test_any_byte_except_zero_is_true(name: str, version: int, oracle: Oracle) -> None:
    def other_truth(field: Field, flexible: bool) -> list[bytes]:
        return [b"\x02", b"\xff"] if field.kind == "bool" else []

    for _, _, message in malformed(name, version, other_truth):
        assert decode_to_json(name, version, message)[0] == oracle.read(name, version, message)[0]


@each_flexible_version
def test_a_varint_may_be_longer_than_necessary(name: str, version: int, oracle: Oracle) -> None:
    def padded(field: Field, flexible: bool) -> list[bytes]:
        if field.is_array:
            return [b"\x81\x00", b"\x81\x80\x80\x80\x00"]
        return [b"\x82\x80\x80\x80\x00n"] if field.kind == "string" and field.compact else []

    for _, _, message in malformed(name, version, padded):
        assert decode_to_json(name, version, message)[0] == oracle.read(name, version, message)[0]


# -------------------------------------------------------------------------------------- names, versions


@pytest.mark.parametrize("name", MESSAGES)
def test_a_version_that_does_not_exist(name: str) -> None:
    for version in (-1, MESSAGES[name].versions[-1] + 1, 32_767, 2**31, 2**70):
        with pytest.raises(UnsupportedVersionError, match="does not exist") as caught:
            decode_to_json(name, version, b"")
        assert caught.value.api == name
        with pytest.raises(UnsupportedVersionError, match="does not exist"):
            encode_from_json(name, version, {})


def test_a_message_that_does_not_exist() -> None:
    with pytest.raises(ProtocolError, match="no message of the name 'FetchRequest'"):
        decode_to_json("FetchRequest", 0, b"")
