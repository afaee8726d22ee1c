"""Compares bytes and JSON of every message and version with Kafka's own jar.

The slow reference codec is compared with the jar as well, so other tests may use it in place of the jar.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctrlchan.errors import EncodeError, ProtocolError
from ctrlchan.messages.json_form import decode_to_json, encode_from_json
from ctrlchan.messages.schema import MESSAGES, Field, Struct
from tests.conformance import reference
from tests.conformance.oracle import Oracle, OracleRefusal
from tests.conformance.strategies import ALL, AS_LONG_AS_IT_TAKES, FLEXIBLE, Json, case_id, messages, smallest


@pytest.mark.parametrize(("name", "version"), ALL, ids=case_id)
@given(data=st.data())
@settings(AS_LONG_AS_IT_TAKES, max_examples=60)
def test_bytes_and_json_are_kafkas(name: str, version: int, oracle: Oracle, data: st.DataObject) -> None:
    value = data.draw(messages(name, version))
    theirs = oracle.write(name, version, value)
    assert reference.encode(name, version, value) == theirs
    assert encode_from_json(name, version, value) == theirs
    assert oracle.read(name, version, theirs) == (value, 0)
    assert reference.decode(name, version, theirs) == reference.Decoded(value, 0, len(theirs))
    assert decode_to_json(name, version, theirs) == (value, 0)


def fields_of(struct: Struct, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Field]]:
    """Return every field under a struct, with the names of its path."""
    found = []
    for field in struct.fields:
        found.append(((*path, field.name), field))
        if field.struct is not None:
            found.extend(fields_of(field.struct, (*path, field.name)))
    return found


def at(value: Json, path: tuple[str, ...]) -> Json | None:
    """Return the object with the last name of a path, by way of the first element of arrays."""
    for name in path[:-1]:
        if name not in value:
            return None
        value = value[name][0]
    return value


def same_result(oracle: Oracle, name: str, version: int, value: Json) -> None:
    """Check that Kafka and we encode this JSON to the same bytes, or both refuse it."""
    try:
        theirs: bytes | None = oracle.write(name, version, value)
    except OracleRefusal:
        theirs = None
    try:
        ours: bytes | None = encode_from_json(name, version, value)
    except ProtocolError:
        ours = None
    assert ours == theirs, json.dumps(value)


OTHER_VALUES: list[Json] = [
    None, True, False, 0, 1, -1, 127, 128, -128, -129, 200, 255, 256, 32_767, 32_768, 2**31 - 1, 2**31,
    -(2**31) - 1, 2**63 - 1, 2**63, 1.0, 1.5, 1e300, "", "1", "0x10", "x" * 32_767, "x" * 32_768, "ü",
    "AAECAwQFBgcICQoLDA0ODw", "AAECAwQFBgcICQoLDA0ODw==", "AAECAwQFBgcICQoLDA0ODw=", "AAECAwQFBgcICQoLDA0O",
    "AAECAwQFBgcICQoLDA0OD-", "AAECAwQFBgcICQoLDA0OD+", "AAECAwQFBgcICQoLDA0OD_AA", [], [1], [None],
    ["1"], [[]], [{}], {}, {"id": 1},
]  # fmt: skip


@pytest.mark.parametrize(("name", "version"), ALL, ids=case_id)
def test_other_json_gets_the_same_result(name: str, version: int, oracle: Oracle) -> None:
    """Test each field of the schema, of this version or not: missing, or with a value of every kind."""
    for path, field in fields_of(MESSAGES[name].root):
        value = smallest(name, version)
        holder = at(value, path)
        if holder is None:
            continue
        if holder.pop(path[-1], None) is not None:
            same_result(oracle, name, version, value)
        for other in OTHER_VALUES:
            if field.kind == "int8" and isinstance(other, int) and 128 <= other <= 256:
                continue
            holder[path[-1]] = other
            same_result(oracle, name, version, value)


@pytest.mark.parametrize("value", [None, 1, "x", [], True, {}], ids=repr)
@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_is_a_json_object(name: str, value: Json, oracle: Oracle) -> None:
    same_result(oracle, name, MESSAGES[name].versions[-1], value)


def test_a_value_that_kafka_changes_silently_is_refused(oracle: Oracle) -> None:
    value = smallest("LeaderAndIsrRequest", 7)
    theirs = oracle.write("LeaderAndIsrRequest", 7, value | {"type": 130})
    assert theirs == oracle.write("LeaderAndIsrRequest", 7, value | {"type": 2})
    with pytest.raises(EncodeError, match="130 does not fit"):
        encode_from_json("LeaderAndIsrRequest", 7, value | {"type": 130})
    value = smallest("RequestHeader", 2)
    theirs = oracle.write("RequestHeader", 2, value | {"clientId": "\ud800"})
    assert theirs == oracle.write("RequestHeader", 2, value | {"clientId": "?"})
    with pytest.raises(EncodeError, match="surrogate"):
        encode_from_json("RequestHeader", 2, value | {"clientId": "\ud800"})


def test_unknown_names_are_skipped(oracle: Oracle) -> None:
    value = {"correlationId": 1, "whatever": [1, {"x": None}]}
    assert encode_from_json("ResponseHeader", 1, value) == oracle.write("ResponseHeader", 1, value)


@pytest.mark.parametrize(("name", "version"), FLEXIBLE, ids=case_id)
def test_unknown_tagged_fields_are_read_as_kafka_reads_them(name: str, version: int, oracle: Oracle) -> None:
    value = smallest(name, version)
    data = reference.encode(name, version, value, lambda struct: [(3, b""), (200, b"\xff" * 200)])
    assert oracle.read(name, version, data) == (value, 0)
    assert decode_to_json(name, version, data)[0] == value
