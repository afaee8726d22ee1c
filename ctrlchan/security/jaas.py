"""Reads JAAS: the value of ``sasl.jaas.config``, and the file of ``java.security.auth.login.config``.

::

    <login module> required|requisite|sufficient|optional <name>="<value>" ... ;      (sasl.jaas.config)
    <entry> { <login modules> };                                                      (the file)

Comments are Java's (``//`` and ``/* */``). Errors never repeat a value.
Source: ``JaasConfig`` and ``JaasContext`` of Kafka 3.9, ``sun.security.provider.ConfigFile`` of Java.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

from ctrlchan.errors import ConfigError

__all__ = ["LoginModule", "parse_jaas_config", "parse_jaas_file", "read_jaas_file"]

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""\s+|//[^\r\n]*|/\*.*?\*/"""  # between tokens
    r"""|(?P<mark>[;{}=])"""
    r"""|(?P<quoted>"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*')"""
    r"""|(?P<word>[^\s;{}="']+)""",
    re.DOTALL,
)
#: A value without quotation marks: up to white space or the semicolon.
_BARE_VALUE: Final = re.compile(r"""[^\s;"']+""")
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One login module. ``name``: its class. ``flag``: in small letters. ``options``: may be secret."""

    name: str
    flag: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def simple_name(self) -> str:
        """The name of its class without the package."""
        return self.name.rpartition(".")[2]


def parse_jaas_config(text: str) -> list[LoginModule]:
    """Return the login modules of a value of ``sasl.jaas.config``. Raises ConfigError."""
    tokens = _Tokens(text)
    modules = []
    while tokens.peek() is not None:
        modules.append(tokens.login_module())
    return modules


def read_jaas_file(path: str) -> dict[str, list[LoginModule]]:
    """Return the login modules of each entry of the file at ``path``. Raises ConfigError, naming the file."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as problem:
        raise ConfigError(f"{path}: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8") from None
    try:
        return parse_jaas_file(text)
    except ConfigError as problem:
        raise ConfigError(f"{path}: {problem}") from None


def parse_jaas_file(text: str) -> dict[str, list[LoginModule]]:
    """Return the login modules of each entry of a JAAS file. Raises ConfigError."""
    tokens = _Tokens(text)
    entries: dict[str, list[LoginModule]] = {}
    while tokens.peek() is not None:
        name = tokens.word("the name of an entry")
        if name in entries:
            tokens.refuse(f"there are two entries named {name}")
        tokens.mark("{", f"entry {name}")
        modules = entries[name] = []
        while tokens.peek() not in ("}", None):
            modules.append(tokens.login_module())
        tokens.mark("}", f"entry {name}")
        tokens.mark(";", f"entry {name}")
    return entries


class _Tokens:
    """The tokens of a text, from the first to the last."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0

    def peek(self) -> str | None:
        """Return the next token, which stays the next one, or None at the end."""
        match = self._match()
        return None if match is None else match[0]

    def login_module(self) -> LoginModule:
        name = self.word("a login module")
        flag = self.word(f"the flag of {name} ({', '.join(_FLAGS)})").lower()
        if flag not in _FLAGS:
            self.refuse(f"the flag of {name} is none of {', '.join(_FLAGS)}")
        options: dict[str, str] = {}
        while self.peek() not in (";", "}", None):
            option = self.word(f"the name of an option of {name}")
            self.mark("=", f"option {option} of {name}")
            options[option] = self._value(f"option {option} of {name}")
        self.mark(";", name)
        return LoginModule(name, flag, options)

    def word(self, what: str) -> str:
        """Take a word."""
        match = self._match()
        if match is None or match["mark"] is not None:
            self.refuse(f"{what} is missing")
        self._place = match.end()
        return match["word"] if match["word"] is not None else _unquoted(match["quoted"])

    def mark(self, mark: str, after: str) -> None:
        """Take this character."""
        match = self._match()
        if match is None or match["mark"] != mark:
            self.refuse(f"{mark!r} is missing after {after}")
        self._place = match.end()

    def refuse(self, reason: str) -> NoReturn:
        line = self._text.count("\n", 0, self._place) + 1
        raise ConfigError(f"JAAS: {reason}" if line == 1 else f"JAAS: line {line}: {reason}")

    def _value(self, what: str) -> str:
        """Take a value: what stands in quotation marks, or all up to white space or the semicolon."""
        match = self._match()
        if match is None or match[0] == ";":
            self.refuse(f"{what} has no value")
        if match["quoted"] is not None:
            self._place = match.end()
            return _unquoted(match["quoted"])
        bare = _BARE_VALUE.match(self._text, match.start())
        assert bare is not None
        self._place = bare.end()
        return bare[0]

    def _match(self) -> re.Match[str] | None:
        for match in self._matches():
            if match.lastgroup is not None:
                return match
            self._place = match.end()
        return None

    def _matches(self) -> Iterator[re.Match[str]]:
        while self._place < len(self._text):
            match = _TOKEN.match(self._text, self._place)
            if match is None:
                self.refuse("a quotation mark has no other one")
            yield match


def _unquoted(text: str) -> str:
    """Return what Java's StreamTokenizer makes of a text in quotation marks."""

    def plain(match: re.Match[str]) -> str:
        after = match[1]
        return chr(int(after, 8)) if after.isdigit() and after[0] < "8" else _ESCAPED.get(after, after)

    return _ESCAPE.sub(plain, text[1:-1])
