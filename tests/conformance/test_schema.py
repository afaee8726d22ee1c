"""Compares the field tables with ``common/message/*.json`` in the kafka-clients jar."""

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
    """Return Kafka's table of one message; its files are JSON with // comments."""
    with zipfile.ZipFile(jar) as files:
        text = files.read(f"common/message/{name}.json").decode()
    schema: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return schema


def camel_case(name: str) -> str:
    return name[0].lower() + name[1:]


def default_of(kind: str, schema: object) -> Any:
    """Return a field's default as Kafka's generator: ``default`` may be a string, a number or missing."""
    if kind == "bool":
        return str(schema).lower() == "true"
    if schema is None:
        return ZERO.get(kind, 0)
    return int(str(schema)) if kind.startswith("int") else schema


def expected_field(schema: dict[str, Any], shared: dict[str, Any]) -> Field:
    kind = schema["type"]
    is_array = kind.startswith("[]")
    kind = kind.removeprefix("[]")
    struct = None
    if kind[0].isupper():
        fields = schema.get("fields") or shared[kind]["fields"]
        versions = schema["versions"] if "fields" in schema else shared[kind]["versions"]
        struct = expected_struct(kind, versions, fields, shared)
        kind = "struct"
    assert set(schema) <= {
        "name", "type", "versions", "nullableVersions", "default", "ignorable", "tag", "taggedVersions",
        "flexibleVersions", "mapKey", "fields", "about", "entityType",
    }  # fmt: skip
    assert schema.get("taggedVersions", schema["versions"]) == schema["versions"]
    assert schema.get("flexibleVersions", "none") == "none"
    return Field(
        name=camel_case(schema["name"]),
        kind=kind,
        versions=Versions.parse(schema["versions"]),
        is_array=is_array,
        struct=struct,
        nullable=Versions.parse(schema["nullableVersions"]) if "nullableVersions" in schema else None,
        default=() if is_array else default_of(kind, schema.get("default")),
        ignorable=schema.get("ignorable", False),
        tag=schema.get("tag"),
        compact="flexibleVersions" not in schema,
        map_key=schema.get("mapKey", False),
    )


def expected_struct(name: str, versions: str, fields: list[Any], shared: dict[str, Any]) -> Struct:
    return Struct(name, Versions.parse(versions), tuple(expected_field(field, shared) for field in fields))


@pytest.mark.parametrize("name", MESSAGES)
def test_every_field_equals_kafkas(name: str, clients_jar: Path) -> None:
    schema = schema_of(clients_jar, name)
    shared = {struct["name"]: struct for struct in schema.get("commonStructs", ())}
    low, _, high = schema["validVersions"].partition("-")
    assert MESSAGES[name] == Message(
        name=schema["name"],
        api_key=schema.get("apiKey"),
        kind=schema["type"],
        versions=range(int(low), int(high) + 1),
        flexible=Versions.parse(schema["flexibleVersions"]),
        root=expected_struct(name, schema["validVersions"], schema["fields"], shared),
    )


def test_there_are_22_versions_of_each_direction() -> None:
    for kind in ("request", "response"):
        assert sum(len(table.versions) for table in MESSAGES.values() if table.kind == kind) == 22
