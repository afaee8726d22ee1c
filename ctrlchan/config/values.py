"""Values of Kafka's settings, parsed from text as Kafka parses them (``ConfigDef.parseType``, Kafka 3.9).

Each function takes the name and the text of one setting. It raises ConfigError with Kafka's message, which
names the setting, the value and what is allowed. Blanks around a value do not count. The range of a number
includes ``least`` and ``most``. Types and ranges of settings: ``ctrlchan.config.parsing``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ctrlchan.errors import ConfigError
from ctrlchan.text import shortened

__all__ = [
    "invalid_value",
    "parse_boolean",
    "parse_double",
    "parse_int",
    "parse_list",
    "parse_long",
    "parse_short",
    "parse_string",
]

_INTEGER: Final = re.compile(r"([+-]?)0*([0-9]+)")
#: As Java's ``Double.parseDouble`` reads a number in decimal digits.
_DOUBLE: Final = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_COMMA: Final = re.compile(r"\s*,\s*", re.ASCII)
#: What Java's ``String.trim`` removes: space, and the control characters before it.
_BLANKS: Final = "".join(map(chr, range(0x21)))


def parse_boolean(name: str, text: str) -> bool:
    """Return the value of a BOOLEAN: ``true`` or ``false``, in capitals or not."""
    word = text.strip(_BLANKS).lower()
    if word not in ("true", "false"):
        raise invalid_value(name, text, "Expected value to be either true or false")
    return word == "true"


def parse_short(name: str, text: str, least: int | None = None, most: int | None = None) -> int:
    """Return the value of a SHORT: a whole number of 16 bits."""
    return _parse_integer(name, text, "SHORT", 16, least, most)


def parse_int(name: str, text: str, least: int | None = None, most: int | None = None) -> int:
    """Return the value of an INT: a whole number of 32 bits."""
    return _parse_integer(name, text, "INT", 32, least, most)


def parse_long(name: str, text: str, least: int | None = None, most: int | None = None) -> int:
    """Return the value of a LONG: a whole number of 64 bits."""
    return _parse_integer(name, text, "LONG", 64, least, most)


def parse_double(name: str, text: str, least: float | None = None, most: float | None = None) -> float:
    """Return the value of a DOUBLE; NaN is in every range, as for Kafka."""
    word = text.strip(_BLANKS)
    if not _DOUBLE.fullmatch(word):
        raise invalid_value(name, text, "Not a number of type DOUBLE")
    value = float(word[:-1] if word[-1] in "fFdD" else word)
    _check_range(name, value, least, most)
    return value


def parse_string(name: str, text: str, choices: Sequence[str] | None = None) -> str:
    """Return the value of a STRING; ``choices``: all that it may be."""
    value = text.strip(_BLANKS)
    if choices is not None and value not in choices:
        raise invalid_value(name, value, f"String must be one of: {', '.join(choices)}")
    return value


def parse_list(name: str, text: str, choices: Sequence[str] | None = None) -> list[str]:
    """Return the parts of a LIST, which commas separate; ``choices``: all that a part may be."""
    whole = text.strip(_BLANKS)
    return [parse_string(name, part, choices) for part in _COMMA.split(whole)] if whole else []


def invalid_value(name: str, value: object, reason: str) -> ConfigError:
    """Return the error of a value that is not allowed. Source: ``ConfigException``."""
    shown = str(value).replace("inf", "Infinity") if isinstance(value, float) else str(value)
    return ConfigError(f"Invalid value {shortened(shown)} for configuration {name}: {reason}")


def _parse_integer(name: str, text: str, kind: str, bits: int, least: int | None, most: int | None) -> int:
    word = text.strip(_BLANKS)
    # Without zeros in front: Python refuses to read thousands of digits.
    match = _INTEGER.fullmatch(word)
    value = int(f"{match[1]}{match[2]}") if match and len(match[2]) < 20 else None
    if value is None or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise invalid_value(name, text, f"Not a number of type {kind}")
    _check_range(name, value, least, most)
    return value


def _check_range(name: str, value: float, least: float | None, most: float | None) -> None:
    if least is not None and value < least:
        raise invalid_value(name, value, f"Value must be at least {least}")
    if most is not None and value > most:
        raise invalid_value(name, value, f"Value must be no more than {most}")
