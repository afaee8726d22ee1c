"""Messages as JSON, in the exact form of Kafka's generated ``*JsonConverter`` classes (3.9.1).

Converts a message, as wire bytes or columns, to a JSON value (dicts, lists, str, int, bool, None) and back.

The JSON has every field of the version under its camelCase name, topic ids as URL-safe base64 without
padding, and a tagged field only when it differs from its default. Reading is as strict as Kafka's: the
fields of the version must be present (except tagged fields), numbers are JSON integers in range (not
strings, not ``1.0``), a field that the version does not have must be ignorable or have its default, and
unknown names are skipped. There are two differences, where Kafka's reader changes the value silently: text
that is not Unicode (a lone surrogate) is refused instead of written as a question mark, and 128 to 256 do
not fit an int8 (Kafka subtracts 128).

Errors are EncodeError and UnsupportedVersionError; their ``field`` is the path to the value, such as
``topicStates[0].partitionStates[2].leader``.
"""

from __future__ import annotations

import base64
import re
from typing import Any, Final, cast

from ctrlchan._codec import (
    ControlRequestBody,
    ControlResponse,
    DecodeError,
    EncodeError,
    ProtocolError,
    UnsupportedVersionError,
    decode_request,
    decode_request_header,
    decode_response,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from ctrlchan.messages.schema import MESSAGES, Field, Message, Struct
from ctrlchan.messages.trees import Tree, message_of, tree_of

__all__ = ["Json", "decode_to_json", "encode_from_json", "find_message", "from_json", "name_of", "to_json"]

Json = Any
"""A value as ``json.loads`` returns it."""

_INTEGERS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
# 16 bytes are 22 characters; Java's decoder accepts the padding, too.
_UUID: Final = re.compile(r"([A-Za-z0-9_-]{22})(==)?")


def find_message(name: str, version: int) -> Message:
    """Return a message's table by its Kafka name.

    Raises UnsupportedVersionError, ProtocolError (no such name).
    """
    table = MESSAGES.get(name)
    if table is None:
        raise ProtocolError(f"no message of the name {name!r} (known: {', '.join(MESSAGES)})")
    if version not in table.versions:
        highest = table.versions[-1]
        raise UnsupportedVersionError(f"version {version} does not exist (0 to {highest})", api=name)
    return table


def decode_to_json(name: str, version: int, data: bytes) -> tuple[Json, int]:
    """Decode a whole message, body or header, that must fill ``data``.

    Returns its JSON and the number of unknown tagged fields, which the JSON does not contain.
    Raises DecodeError, UnsupportedVersionError, ProtocolError (no such name).
    """
    table = find_message(name, version)
    if table.api_key is None:
        return _decode_header(table, version, data)
    decode = decode_request if table.kind == "request" else decode_response
    message = decode(table.api_key, version, data)
    return to_json(message), message.unknown_tagged_fields


def encode_from_json(name: str, version: int, value: Json) -> bytes:
    """Return the wire bytes of a message, body or header, given in JSON form.

    Raises EncodeError, UnsupportedVersionError, ProtocolError (no such name).
    """
    table = find_message(name, version)
    if table.api_key is not None:
        return from_json(name, version, value).encode()
    tree = _Reader(table, version).struct(table.root, value, "")
    if name == "ResponseHeader":
        return encode_response_header(version, tree["correlationId"])
    client_id = tree["clientId"]
    return encode_request_header(
        version,
        tree["requestApiKey"],
        tree["requestApiVersion"],
        tree["correlationId"],
        None if client_id is None else client_id.encode(),
    )


def to_json(message: ControlRequestBody | ControlResponse) -> dict[str, Json]:
    """Return the JSON of a body in columns.

    Raises UnsupportedVersionError when its version cannot carry a value.
    """
    return _write(MESSAGES[name_of(message)], message.version, tree_of(message))


def name_of(message: ControlRequestBody | ControlResponse) -> str:
    """Return Kafka's name of a message, such as ``StopReplicaResponse``."""
    if not isinstance(message, ControlResponse):
        return type(message).__name__
    return next(
        name
        for name, table in MESSAGES.items()
        if table.kind == "response" and table.api_key == message.api_key
    )


def from_json(name: str, version: int, value: Json) -> ControlRequestBody | ControlResponse:
    """Return the columns of a body (not of a header) given in JSON form. Raises as ``encode_from_json``."""
    table = find_message(name, version)
    return message_of(name, version, _Reader(table, version).struct(table.root, value, ""))


def _decode_header(table: Message, version: int, data: bytes) -> tuple[Json, int]:
    tree: Tree
    if table.name == "RequestHeader":
        header = decode_request_header(data, version)
        size, unknown = header.size, header.unknown_tagged_fields
        tree = {
            "requestApiKey": header.api_key,
            "requestApiVersion": header.api_version,
            "correlationId": header.correlation_id,
            "clientId": None if header.client_id is None else header.client_id.decode(),
        }
    else:
        correlation_id, size, unknown = decode_response_header(data, version)
        tree = {"correlationId": correlation_id}
    if size != len(data):
        raise DecodeError("unread bytes after the message", api=table.name, version=version, offset=size)
    return _write(table, version, tree), unknown


# ------------------------------------------------------------------------------------------ tree to JSON


def _write(table: Message, version: int, tree: Tree) -> dict[str, Json]:
    return cast("dict[str, Json]", _write_struct(table, table.root, version, tree))


def _write_struct(table: Message, struct: Struct, version: int, tree: Tree) -> Json:
    out = {}
    for field in struct.fields:
        value = tree.get(field.name, field.default)
        if version not in field.versions:
            _refuse_unless_default(table, field, version, value, field.name)
        elif field.tag is None or value != field.default:
            if field.is_array:
                out[field.name] = [_write_value(table, field, version, element) for element in value]
            else:
                out[field.name] = _write_value(table, field, version, value)
    return out


def _write_value(table: Message, field: Field, version: int, value: Any) -> Json:
    if field.struct is not None:
        return _write_struct(table, field.struct, version, value)
    if field.kind == "uuid":
        return base64.urlsafe_b64encode(value)[:22].decode()
    return value


# ------------------------------------------------------------------------------------------ JSON to tree


class _Reader:
    """Reads a JSON value by one message's tables; its trees contain every field of the tables."""

    def __init__(self, table: Message, version: int) -> None:
        self.table = table
        self.version = version

    def struct(self, struct: Struct, value: Json, path: str) -> Tree:
        if self.version not in struct.versions:
            raise UnsupportedVersionError(
                f"version {self.version} has no {struct.name}",
                api=self.table.name,
                version=self.version,
                field=path,
            )
        if not isinstance(value, dict):
            raise self._error(f"expected a JSON object, got {_kind(value)}", path)
        tree = {}
        for field in struct.fields:
            where = f"{path}.{field.name}" if path else field.name
            if field.name in value:
                tree[field.name] = self.field(field, value[field.name], where)
                if self.version not in field.versions:
                    _refuse_unless_default(self.table, field, self.version, tree[field.name], where)
            elif self.version in field.versions and field.tag is None:
                raise self._error(f"the field is missing, and mandatory in version {self.version}", where)
            else:
                tree[field.name] = [] if field.is_array else field.default
        return tree

    def field(self, field: Field, value: Json, path: str) -> Any:
        if not field.is_array:
            return self.single(field, value, path)
        if not isinstance(value, list):
            raise self._error(f"expected a JSON array, got {_kind(value)}", path)
        return [self.single(field, element, f"{path}[{i}]") for i, element in enumerate(value)]

    def single(self, field: Field, value: Json, path: str) -> Any:
        if field.struct is not None:
            return self.struct(field.struct, value, path)
        if value is None and field.nullable is not None:
            return None
        match field.kind:
            case "bool":
                return self._typed(bool, "a boolean", value, path)
            case "string":
                return self._string(value, path)
            case "uuid":
                return self._uuid(value, path)
            case integer:
                return self._integer(_INTEGERS[integer], value, path)

    def _integer(self, bits: int, value: Json, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._error(f"expected an integer, got {_kind(value)}", path)
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise self._error(f"value {value} does not fit in a {bits}-bit signed integer", path)
        return value

    def _string(self, value: Json, path: str) -> str:
        text: str = self._typed(str, "a string", value, path)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise self._error("a lone surrogate is not text", path) from None
        return text

    def _uuid(self, value: Json, path: str) -> bytes:
        found = _UUID.fullmatch(self._typed(str, "a string", value, path))
        if found is None:
            raise self._error("expected 16 bytes as URL-safe base64 (22 characters)", path)
        return base64.urlsafe_b64decode(found[1] + "==")

    def _typed(self, kind: type, words: str, value: Json, path: str) -> Any:
        if not isinstance(value, kind):
            raise self._error(f"expected {words}, got {_kind(value)}", path)
        return value

    def _error(self, reason: str, path: str) -> EncodeError:
        return EncodeError(reason, api=self.table.name, version=self.version, field=path)


def _refuse_unless_default(table: Message, field: Field, version: int, value: Any, path: str) -> None:
    """Refuse a value that the version cannot carry, unless it is the default or ignorable (Kafka's rule)."""
    is_default = not value if field.is_array else value == field.default
    if not is_default and not field.ignorable:
        raise UnsupportedVersionError(
            "the version does not have this field, and its value is not the default",
            api=table.name,
            version=version,
            field=path,
        )


def _kind(value: Json) -> str:
    """Return the JSON name of a value's type."""
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}
    return "null" if value is None else kinds.get(type(value), "an object")
