"""The rules that make a user's name of the name in a certificate (``ssl.principal.mapping.rules``).

::

    RULE:<pattern>/<replacement>/[LU], ..., DEFAULT

The first rule counts whose pattern matches the whole name; ``DEFAULT`` is the name itself. Patterns are
regular expressions. Java's and Python's are the same but for rare forms; one that Python does not have is an
error.
Source: ``org.apache.kafka.common.security.ssl.SslPrincipalMapper``.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ctrlchan.errors import ConfigError

__all__ = ["DEFAULT_RULES", "PrincipalRules"]

_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)(.*?)|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*(?:{_RULE})\s*(?:,\s*|$)")
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}", re.DOTALL)
#: Java's form of a group with a name.
_NAMED_GROUP: Final = re.compile(r"(?<!\\)\(\?<(?![=!])")


class _Rule(NamedTuple):
    """``pattern`` None: DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        found = self.pattern.sub(self._replaced, name)
        return found.lower() if self.case == "L" else found.upper() if self.case == "U" else found

    def _replaced(self, match: re.Match[str]) -> str:
        """Return the replacement of a match, with the groups that it names."""
        count = match.re.groups

        def one(reference: re.Match[str]) -> str:
            escaped, digits, name = reference.groups()
            if escaped is not None:
                return escaped
            if name is not None:
                return match[name] or ""
            # As Java: as many digits as there are groups for; a number without a group is text.
            used = len(digits)
            while used > 1 and int(digits[:used]) > count:
                used -= 1
            if int(digits[:used]) > count:
                return f"${digits}"
            return (match[int(digits[:used])] or "") + digits[used:]

        return _REFERENCE.sub(one, self.replacement)


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
            rules.append(_Rule(None, "", ""))
        elif pattern is not None:
            rules.append(_rule(pattern, replacement, case))
        place = match.end()
    return rules


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    try:
        compiled = re.compile(_NAMED_GROUP.sub("(?P<", pattern))
    except (re.error, OverflowError) as problem:
        raise ConfigError(f"the pattern {pattern!r} cannot be used: {problem}") from None
    for escaped, _, name in _REFERENCE.findall(replacement):
        if not escaped and name and name not in compiled.groupindex:
            raise ConfigError(f"the pattern {pattern!r} has no group {name}")
    return _Rule(compiled, replacement, case)


DEFAULT_RULES: Final = PrincipalRules("DEFAULT")
