"""Converts lines of JSON with a message each between hexadecimal wire bytes and Kafka's JSON form.

A line is an object such as ``{"api": "UpdateMetadataRequest", "version": 8, "hex": "..."}``. The result has
``json`` in place of ``hex``, or the reverse, or is ``{"error": "...", "line": 7}``. ``ctrlchan decode`` and
``ctrlchan encode`` use this between standard input and output.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

from ctrlchan._codec import (
    HIGHEST_VERSION,
    ControlRequestBody,
    ControlResponse,
    decode_request,
    decode_request_header,
    decode_response,
    decode_response_header,
    request_header_version,
    response_header_version,
)
from ctrlchan.errors import CtrlchanError
from ctrlchan.messages.json_form import decode_to_json, encode_from_json, find_message, name_of, to_json
from ctrlchan.messages.schema import MESSAGES

__all__ = ["Line", "convert", "convert_file", "decode_frame", "decode_message", "encode_message"]

Line = dict[str, Any]

# Key of a decoded line that counts its unknown tagged fields, which Kafka's JSON form does not contain.
UNKNOWN_TAGS = "unknown_tagged_fields"


class LineError(CtrlchanError):
    """A line without the required keys, or with wrong values."""


def convert_file(lines: Iterable[bytes], out: TextIO, command: str, *, frames: bool = False) -> bool:
    """Convert and write each line before the next is read; True when all could be converted.

    ``command``: ``decode`` or ``encode``.
    """
    work = encode_message if command == "encode" else decode_frame if frames else decode_message
    all_well = True
    for well, line in convert(lines, work):
        all_well = all_well and well
        out.write(json.dumps(line) + "\n")
        out.flush()
    return all_well


def convert(lines: Iterable[bytes], work: Callable[[Line], Line]) -> Iterator[tuple[bool, Line]]:
    """Convert each line of JSON that is not blank with ``work``, one at a time.

    Yields True and the new line, or False and ``{"error", "line"}`` (counted from 1) for a line that cannot
    be converted.
    """
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            yield True, work(_parse(text))
        except CtrlchanError as error:
            yield False, {"error": str(error), "line": number}


def _parse(text: bytes) -> Line:
    try:
        line = json.loads(text, parse_constant=_not_json)
    except (ValueError, RecursionError) as error:
        raise LineError(f"not JSON: {error}") from None
    if not isinstance(line, dict):
        raise LineError("not a JSON object")
    return line


def _not_json(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON value")


def decode_message(line: Line) -> Line:
    """Replace ``hex`` by ``json`` in a line; other keys stay. Raises CtrlchanError."""
    value, unknown = decode_to_json(_name(line), _version(line), _bytes(line))
    out = _replace(line, "hex", "json", value)
    return out | {UNKNOWN_TAGS: unknown} if unknown else out


def encode_message(line: Line) -> Line:
    """Replace ``json`` by ``hex`` in a line; other keys stay. Raises CtrlchanError."""
    data = encode_from_json(_name(line), _version(line), _wanted(line, "json"))
    line.pop(UNKNOWN_TAGS, None)
    return _replace(line, "json", "hex", data.hex())


def _replace(line: Line, old: str, new: str, value: Any) -> Line:
    """Return the line with one key and its value replaced; the order of the keys stays."""
    return {
        (new if key == old else key): (value if key == old else item)
        for key, item in line.items()
        if key != new
    }


def decode_frame(line: Line) -> Line:
    """Decode a line with ``direction`` and the ``hex`` of a whole frame.

    The result has ``api``, ``version``, ``header`` and ``json``. The frame of a response does not contain its
    api and version, so its line must have ``api`` (name or key) and ``version``. Other keys stay.
    Raises CtrlchanError.
    """
    kept = {key: item for key, item in line.items() if key != "hex"}
    match _wanted(line, "direction"):
        case "request":
            return kept | _decode_request_frame(_bytes(line))
        case "response":
            return kept | _decode_response_frame(_response_of(line), _version(line), _bytes(line))
        case other:
            raise LineError(f'"direction" must be "request" or "response", not {json.dumps(other)}')


def _decode_request_frame(data: bytes) -> Line:
    header = decode_request_header(data)
    if header.api_key not in HIGHEST_VERSION:
        raise LineError(
            f"a request of api key {header.api_key} (version {header.api_version}, correlation id"
            f" {header.correlation_id}) is none of the control requests 4, 5 and 6"
        )
    header_version = request_header_version(header.api_key, header.api_version)
    header_json, more_tags = decode_to_json("RequestHeader", header_version, data[: header.size])
    # With the whole frame, offsets in errors are offsets in the frame.
    body = decode_request(header.api_key, header.api_version, data, header.size)
    return _frame(body, header_json, body.unknown_tagged_fields + more_tags)


def _decode_response_frame(name: str, version: int, data: bytes) -> Line:
    api_key = find_message(name, version).api_key
    assert api_key is not None
    header_version = response_header_version(api_key, version)
    correlation_id, size, more_tags = decode_response_header(data, header_version)
    body = decode_response(api_key, version, data, size)
    return _frame(body, {"correlationId": correlation_id}, body.unknown_tagged_fields + more_tags)


def _frame(body: ControlRequestBody | ControlResponse, header: Line, unknown: int) -> Line:
    out = {"api": name_of(body), "version": body.version, "header": header, "json": to_json(body)}
    return out | {UNKNOWN_TAGS: unknown} if unknown else out


# --------------------------------------------------------------------------------- required keys of a line


def _wanted(line: Line, key: str) -> Any:
    if key not in line:
        raise LineError(f'the line has no "{key}"')
    return line[key]


def _name(line: Line) -> str:
    name = _wanted(line, "api")
    if not isinstance(name, str):
        raise LineError(f'"api" must be a name, not {json.dumps(name)}')
    return name


def _response_of(line: Line) -> str:
    """Return ``UpdateMetadataResponse`` for ``6``, ``"UpdateMetadata"`` or ``"UpdateMetadataResponse"``."""
    api = _wanted(line, "api")
    for name, table in MESSAGES.items():
        if table.kind == "response" and api in (table.api_key, name, name.removesuffix("Response")):
            return name
    raise LineError(
        f'"api" must be LeaderAndIsr (4), StopReplica (5) or UpdateMetadata (6), not {json.dumps(api)}'
    )


def _version(line: Line) -> int:
    version = _wanted(line, "version")
    if isinstance(version, bool) or not isinstance(version, int):
        raise LineError(f'"version" must be an integer, not {json.dumps(version)}')
    return version


def _bytes(line: Line) -> bytes:
    text = _wanted(line, "hex")
    try:
        return bytes.fromhex(text)
    except (TypeError, ValueError) as error:
        raise LineError(f'"hex" must be pairs of hexadecimal digits ({error})') from None
