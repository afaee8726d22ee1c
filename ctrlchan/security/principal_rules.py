"""The rules that make a user's name of the name in a certificate (``ssl.principal.mapping.rules``).

::

    RULE:<pattern>/<replacement>/[LU], ..., DEFAULT

The first rule counts whose pattern matches the whole name; ``DEFAULT`` is the name itself. Patterns are
regular expressions of Java.
Source: ``org.apache.kafka.common.security.ssl.SslPrincipalMapper``.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ctrlchan.errors import ConfigError
from ctrlchan.security.java_patterns import Replacement, compiled

__all__ = ["DEFAULT_RULES", "PrincipalRules"]

_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)(.*?)|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*(?:{_RULE})\s*(?:,\s*|$)")


class _Rule(NamedTuple):
    """``pattern`` and ``replacement`` None: DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: Replacement | None
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None or self.replacement is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        found = self.pattern.sub(self.replacement, name)
        return found.lower() if self.case == "L" else found.upper() if self.case == "U" else found


class PrincipalRules:
    """The rules of a setting. Raises ConfigError for a text that cannot be rules."""

    def __init__(self, text: str) -> None:
        self.text: Final = text
        self._rules: Final = tuple(_parse(text.strip()))

    def user_of(self, name: str) -> str | None:
        """Return the user's name for that in a certificate, or None if no rule matches it."""
        return next((user for rule in self._rules if (user := rule.apply(name)) is not None), None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrincipalRules) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"PrincipalRules({self.text!r})"


def _parse(text: str) -> list[_Rule]:
    rules = []
    place = 0
    while place < len(text):
        match = _SPLITTER.match(text, place)
        if match is None or match.end() == place:
            raise ConfigError(f"{text[place:]!r} is neither DEFAULT nor RULE:pattern/replacement/[LU]")
        default, pattern, replacement, case, rest, other = match.groups()
        if rest or other:
            raise ConfigError(f"{rest or other!r} is neither DEFAULT nor RULE:pattern/replacement/[LU]")
        if default is not None:
            rules.append(_Rule(None, None, ""))
        elif pattern is not None:
            rules.append(_rule(pattern, replacement, case))
        place = match.end()
    return rules


def _rule(text: str, replacement: str, case: str) -> _Rule:
    pattern = compiled(text)
    return _Rule(pattern, Replacement(pattern, replacement), case)


DEFAULT_RULES: Final = PrincipalRules("DEFAULT")
