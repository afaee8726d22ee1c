"""Reads the parameters of a request of the page, each within its bounds. Errors name the parameter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl

from ctrlchan.page.problems import PageError
from ctrlchan.text import quoted, why_unsendable
from ctrlchan.topic_names import why_invalid

__all__ = ["Parameters", "parameters_of_body", "parameters_of_query"]

MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
_MAX_FIELDS: Final = 20
_MAX_HEADERS: Final = 100


class Parameters:
    """Named values of a query (texts) or of a JSON body. Every method raises PageError."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text; without a default it must be given."""
        value = self._values.get(name)
        if value is None:
            if default is None:
                raise _wrong(f"{name} is missing")
            return default
        if not isinstance(value, str):
            raise _wrong(f"{name} is not a text")
        if reason := why_unsendable(value):
            raise _wrong(f"{name} {reason}")
        return value

    def topic(self, name: str = "topic") -> str:
        """Return the name of a topic as Kafka allows it."""
        topic = self.text(name)
        if reason := why_invalid(topic):
            raise _wrong(reason)
        return topic

    def number(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """Return a whole number in these bounds; without a default it must be given."""
        number = self.optional_number(name, low, high)
        if number is None:
            if default is None:
                raise _wrong(f"{name} is missing")
            return default
        return number

    def optional_number(self, name: str, low: int, high: int) -> int | None:
        """Return a whole number in these bounds, None when it is not given."""
        value = self._values.get(name)
        if value is None or value == "":
            return None
        number: int | None = None
        if isinstance(value, int) and not isinstance(value, bool):
            number = value
        elif isinstance(value, str) and len(value) <= 20 and value.removeprefix("-").isdecimal():
            number = int(value)
        if number is None or not low <= number <= high:
            shown = quoted(value) if isinstance(value, str) else "it"
            raise _wrong(f"{name}: {shown} is not a whole number from {low} to {high}")
        return number

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return one of these texts; the first one when none is given."""
        value = self.text(name, choices[0])
        if value not in choices:
            raise _wrong(f"{name} is {quoted(value)}, not one of {', '.join(choices)}")
        return value

    def positions(self, name: str) -> dict[int, int]:
        """Return offsets by partition, written as ``0:15,3:7``."""
        found = {}
        for one in filter(None, self.text(name, "").split(",")):
            partition, _, offset = one.partition(":")
            pair = Parameters({"partition": partition, "offset": offset})
            found[pair.number("partition", 0, MAX_INT32)] = pair.number("offset", 0, MAX_INT64)
        return found

    def data(self, name: str) -> bytes | None:
        """Return bytes that are given as ``{"text": …}`` or ``{"hex": …}``; None for null."""
        value = self._values.get(name)
        if value is None:
            return None
        if isinstance(value, dict) and len(value) == 1:
            [(kind, content)] = value.items()
            if kind == "text" and isinstance(content, str):
                try:
                    return content.encode()
                except UnicodeEncodeError:
                    raise _wrong(f"{name} has half of a surrogate pair, which is no character") from None
            if kind == "hex" and isinstance(content, str):
                try:
                    return bytes.fromhex(content)
                except ValueError:
                    raise _wrong(
                        f"{name} is no hex: it needs pairs of the digits 0 to 9 and a to f, such as 00 ff"
                    ) from None
        raise _wrong(f'{name} is neither null nor {{"text": …}} nor {{"hex": …}}')

    def headers(self, name: str = "headers") -> list[tuple[str, bytes | None]]:
        """Return the headers of a message: a list of objects with ``name`` and ``value``."""
        value = self._values.get(name) or []
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise _wrong(f"{name} is not a list of objects")
        if len(value) > _MAX_HEADERS:
            raise _wrong(f"{name}: {len(value)} are more than {_MAX_HEADERS}")
        return [(Parameters(one).text("name"), Parameters(one).data("value")) for one in value]

    def configs(self, name: str = "configs") -> dict[str, str]:
        """Return the configs of a topic: an object of texts."""
        value = self._values.get(name) or {}
        if not isinstance(value, dict):
            raise _wrong(f"{name} is not an object")
        given = Parameters(value)
        return {key: given.text(key) for key in value}


def parameters_of_query(query: str) -> Parameters:
    """Return the parameters of a URL. Raises PageError."""
    try:
        pairs = parse_qsl(
            query,
            keep_blank_values=True,
            strict_parsing=bool(query),
            errors="strict",
            max_num_fields=_MAX_FIELDS,
        )
    except ValueError:
        raise _wrong("the query of the URL is not one") from None
    if len({name for name, _ in pairs}) != len(pairs):
        raise _wrong("a parameter is given twice")
    return Parameters(dict(pairs))


def parameters_of_body(body: bytes) -> Parameters:
    """Return the parameters of a JSON object. Raises PageError."""
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        raise _wrong("the body is not JSON") from None
    if not isinstance(values, dict):
        raise _wrong("the body is not a JSON object")
    return Parameters(values)


def _wrong(text: str) -> PageError:
    return PageError(HTTPStatus.BAD_REQUEST, text)
