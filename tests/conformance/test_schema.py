"""The field tables against their authority: ``common/message/*.json`` inside the kafka-clients jar."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ctrlchan.messages.schema import MESSAGES, Field, Message, Struct, Versions
from tests.kafka.requirement import require_kafka

ZERO = {"bool": False, "string": "", "uuid": bytes(16)}


@pytest.fixture(scope="module")
def clients_jar() -> Path:
    return next(require_kafka().glob("kafka-clients-3.9.1.jar"))


def schema_of(jar: Path, name: str) -> dict[str, Any]:
    """Kafka's table of one message; its files are JSON with // comments."""
    with zipfile.ZipFile(jar) as files:
        text = files.read(f"common/message/{name}.json").decode()
    schema: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return schema


def camel_case(name: str) -> str:
    return name[0].lower() + name[1:]


def default_of(kind: str, told: object) -> Any:
    """What the generator makes of a field's ``default``, which may be a string, a number or missing."""
    if kind == "bool":
        return str(told).lower() == "true"
    if told is None:
        return ZERO.get(kind, 0)
    return int(str(told)) if kind.startswith("int") else told


def expected_field(told: dict[str, Any], shared: dict[str, Any]) -> Field:
    kind = told["type"]
    is_array = kind.startswith("[]")
    kind = kind.removeprefix("[]")
    struct = None
    if kind[0].isupper():
        fields = told.get("fields") or shared[kind]["fields"]
        versions = told["versions"] if "fields" in told else shared[kind]["versions"]
        struct = expected_struct(kind, versions, fields, shared)
        kind = "struct"
    assert set(told) <= {
        "name", "type", "versions", "nullableVersions", "default", "ignorable", "tag", "taggedVersions",
        "flexibleVersions", "mapKey", "fields", "about", "entityType",
    }  # fmt: skip
    assert told.get("taggedVersions", told["versions"]) == told["versions"]
    assert told.get("flexibleVersions", "none") == "none"
    return Field(
        name=camel_case(told["name"]),
        kind=kind,
        versions=Versions.parse(told["versions"]),
        is_array=is_array,
        struct=struct,
        nullable=Versions.parse(told["nullableVersions"]) if "nullableVersions" in told else None,
        default=() if is_array else default_of(kind, told.get("default")),
        ignorable=told.get("ignorable", False),
        tag=told.get("tag"),
        compact="flexibleVersions" not in told,
        map_key=told.get("mapKey", False),
    )


def expected_struct(name: str, versions: str, fields: list[Any], shared: dict[str, Any]) -> Struct:
    return Struct(name, Versions.parse(versions), tuple(expected_field(field, shared) for field in fields))


@pytest.mark.parametrize("name", MESSAGES)
def test_every_field_is_what_kafka_says(name: str, clients_jar: Path) -> None:
    told = schema_of(clients_jar, name)
    shared = {struct["name"]: struct for struct in told.get("commonStructs", ())}
    low, _, high = told["validVersions"].partition("-")
    assert MESSAGES[name] == Message(
        name=told["name"],
        api_key=told.get("apiKey"),
        kind=told["type"],
        versions=range(int(low), int(high) + 1),
        flexible=Versions.parse(told["flexibleVersions"]),
        root=expected_struct(name, told["validVersions"], told["fields"], shared),
    )


def test_there_are_22_versions_of_each_direction() -> None:
    for kind in ("request", "response"):
        assert sum(len(table.versions) for table in MESSAGES.values() if table.kind == kind) == 22
