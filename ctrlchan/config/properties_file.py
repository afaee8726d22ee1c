"""A file of Kafka's settings, ``server.properties``: its syntax, and which listeners it names.

The syntax is that of ``java.util.Properties``. Kafka's config providers (``${file:...}``) are not resolved.
Errors are ConfigErrors with file, line and key; they repeat no secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from os import PathLike, fspath
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from ctrlchan.config import table
from ctrlchan.config.setting import Setting
from ctrlchan.errors import ConfigError
from ctrlchan.protocol import SECURITY_PROTOCOLS

__all__ = ["Entry", "PropertiesFile", "read_properties"]

_T = TypeVar("_T")


class Entry(NamedTuple):
    """A value and the line of its key; 0 where it comes from a mapping."""

    value: str
    line: int


def read_properties(text: str) -> dict[str, Entry]:
    """Return the keys and values of a properties file. The last value of a key counts."""
    found: dict[str, Entry] = {}
    logical, begun = "", 0
    for number, line in enumerate(_LINE_END.split(text), 1):
        line = line.lstrip(" \t\f")
        if not logical:
            if not line or line[0] in "#!":
                continue
            begun = number
        logical += line
        if (len(logical) - len(logical.rstrip("\\"))) % 2:
            logical = logical[:-1]
            continue
        key, value = _split(logical)
        found[key] = Entry(value, begun)
        logical = ""
    if logical:
        key, value = _split(logical)
        found[key] = Entry(value, begun)
    return found


_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_KEY: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _split(logical: str) -> tuple[str, str]:
    match = _KEY.fullmatch(logical)
    assert match is not None
    return _unescaped(match[1]), _unescaped(match[2])


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        after = match[1]
        return chr(int(after[1:], 16)) if len(after) > 1 else _ESCAPED.get(after, after)

    return _ESCAPE.sub(plain, text) if "\\" in text else text


class PropertiesFile:
    """The entries of a file. ``name`` is the file's, for errors."""

    def __init__(self, name: str, entries: Mapping[str, Entry]) -> None:
        self.name = name
        self.entries = entries

    @classmethod
    def read(cls, source: str | PathLike[str] | Mapping[str, str]) -> PropertiesFile:
        """Return the entries of a file or a mapping. Raises ConfigError if the file cannot be read."""
        if isinstance(source, Mapping):
            return cls("properties", {key: Entry(value, 0) for key, value in source.items()})
        name = fspath(source)
        try:
            # As java.util.Properties reads it; other characters are written as \\uXXXX there.
            with open(name, encoding="latin-1", newline="") as file:
                text = file.read()
        except OSError as problem:
            raise ConfigError(f"{name}: {problem.strerror}") from None
        return cls(name, read_properties(text))

    def value(self, key: str, *, empty: bool = False) -> str | None:
        """Return the value of a key, or None if it is not set. An empty value is None unless ``empty``."""
        entry = self.entries.get(key)
        if entry is None:
            return None
        value = entry.value.strip()
        if value.startswith("${") or "=${" in value or '"${' in value:
            self.refuse(key, "a config provider's ${...} is not resolved here: give the value itself")
        return value if value or empty else None

    def parse(self, key: str, parse: Callable[[str, str], _T]) -> _T | None:
        """Return what ``parse`` makes of the key and its value, or None if the key is not set.

        Raises ConfigError with the file, the line and the message of the ConfigError that ``parse`` raises.
        """
        text = self.value(key)
        if text is None:
            return None
        try:
            return parse(key, text)
        except ConfigError as refused:
            raise ConfigError(f"{self._where(key)}: {refused}") from None

    def read_setting(self, setting: Setting[_T]) -> _T | None:
        """Return the value of a setting, or None if it is not set. Raises ConfigError with file and line."""
        return self.parse(setting.name, lambda _, text: setting.parse(text))

    def arguments(
        self, wanted: Mapping[Setting[Any], tuple[str, Callable[[Any], Any] | None]]
    ) -> dict[str, Any]:
        """Return the values of the settings that are set, under the names of arguments.

        ``wanted``: by setting, the argument, and what makes its value of the setting's. Raises ConfigError.
        """
        found = {}
        for setting, (argument, convert) in wanted.items():
            value = self.parse(setting.name, partial(_parse, setting, convert))
            if value is not None:
                found[argument] = value
        return found

    def refuse(self, key: str, reason: str) -> NoReturn:
        """Raise ConfigError with the file, the line and the key."""
        raise ConfigError(f"{self._where(key)}: {key}: {reason}") from None

    def _where(self, key: str) -> str:
        entry = self.entries.get(key)
        return f"{self.name}:{entry.line}" if entry is not None and entry.line else self.name

    def security_protocols(self) -> dict[str, str]:
        """Return the security protocol of each listener name (``listener.security.protocol.map``)."""
        key = table.LISTENER_SECURITY_PROTOCOL_MAP.name
        text = self.value(key)
        if text is None:
            return {name: name for name in SECURITY_PROTOCOLS}
        found = {}
        for pair in text.split(","):
            listener, _, protocol = (part.strip() for part in pair.strip().rpartition(":"))
            if not listener or protocol.upper() not in SECURITY_PROTOCOLS:
                self.refuse(key, f"{pair!r} is not LISTENER:PROTOCOL")
            found[listener] = protocol.upper()
        return found

    def inter_broker_listener(self) -> str:
        """Return the name of the listener that brokers use among themselves."""
        key = table.SECURITY_INTER_BROKER_PROTOCOL.name
        protocol = self.value(key)
        name = self.value(table.INTER_BROKER_LISTENER_NAME.name)
        if name is None:
            if protocol is not None and protocol not in SECURITY_PROTOCOLS:
                self.refuse(key, f"{protocol!r} is not {', '.join(SECURITY_PROTOCOLS)}")
            return protocol or "PLAINTEXT"
        if protocol is not None:
            self.refuse(key, f"only one of it and {table.INTER_BROKER_LISTENER_NAME} can be set")
        return name


def _parse(setting: Setting[Any], convert: Callable[[Any], Any] | None, _name: str, text: str) -> Any:
    value = setting.parse(text)
    return value if convert is None else convert(value)
