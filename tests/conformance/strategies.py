"""Hypothesis strategies for messages in JSON form, drawn from the tables of ``ctrlchan.messages.schema``."""

from __future__ import annotations

import base64
import operator
from functools import partial
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from ctrlchan.messages.schema import MESSAGES, Field, Struct

Json = Any

# Without deadlines: the time of an example depends on the load of the machine, which also runs Java.
AS_LONG_AS_IT_TAKES = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

BODIES = [(name, version) for name, table in MESSAGES.items() if table.api_key for version in table.versions]
"""The 22 request and 22 response versions."""
HEADERS = [
    (name, version) for name, table in MESSAGES.items() if not table.api_key for version in table.versions
]
ALL = BODIES + HEADERS
FLEXIBLE = [(name, version) for name, version in ALL if version in MESSAGES[name].flexible]


def case_id(value: object) -> str:
    return f"v{value}" if isinstance(value, int) else str(value)


def _integers(bits: int) -> st.SearchStrategy[int]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return st.one_of(
        st.integers(-3, 300 if bits > 8 else high), st.integers(low, high), st.sampled_from([low, high])
    )


_NAMES = st.one_of(
    # Few names, so that flat messages have runs of one topic, and the same topic again later.
    st.sampled_from(["a", "b", "orders", "größe", "主题-1", "😀"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    # Lengths at which the varint of the length grows by a byte.
    st.sampled_from([126, 127, 128, 16_382, 16_383]).map(lambda n: "n" * n),
)
_NODES = st.one_of(
    st.lists(_integers(32), max_size=4),
    st.sampled_from([126, 127, 128]).map(lambda n: list(range(n))),
)
_KINDS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": _integers(8),
    "int16": _integers(16),
    "int32": _integers(32),
    "int64": _integers(64),
    "string": _NAMES,
    "uuid": st.one_of(st.just(bytes(16)), st.binary(min_size=16, max_size=16)).map(
        lambda data: base64.urlsafe_b64encode(data).decode().rstrip("=")
    ),
}


def messages(name: str, version: int) -> st.SearchStrategy[Json]:
    """Draw whole messages of this version, exactly as JsonConverter would write them."""
    return _struct(MESSAGES[name].root, version)


def _struct(struct: Struct, version: int) -> st.SearchStrategy[Json]:
    present = [field for field in struct.fields if version in field.versions]
    mandatory = {field.name: _field(field, version) for field in present if field.tag is None}
    # JsonConverter leaves a tagged field out when it has its default.
    optional = {
        field.name: _field(field, version).filter(partial(operator.ne, field.default))
        for field in present
        if field.tag is not None
    }
    return st.fixed_dictionaries(mandatory, optional=optional)


def _field(field: Field, version: int) -> st.SearchStrategy[Json]:
    element = _KINDS[field.kind] if field.struct is None else _struct(field.struct, version)
    if field.is_array:
        return _NODES if field.kind == "int32" else st.lists(element, max_size=4)
    if field.nullable is not None and version in field.nullable:
        return st.none() | element
    return element


def smallest(name: str, version: int) -> Json:
    """Return the message of this version with one element in every array and values that are not defaults."""
    return _smallest(MESSAGES[name].root, version)


def _smallest(struct: Struct, version: int) -> Json:
    return {field.name: _value(field, version) for field in struct.fields if version in field.versions}


def _value(field: Field, version: int) -> Json:
    if field.struct is not None:
        value: Json = _smallest(field.struct, version)
    else:
        value = {"bool": True, "string": "é-1", "uuid": "AAECAwQFBgcICQoLDA0ODw"}.get(field.kind, 7)
    return [value] if field.is_array else value
