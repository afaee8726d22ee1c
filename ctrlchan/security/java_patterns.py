"""Java's regular expressions and replacements, with Python's ``re``.

Patterns of both are the same but for rare forms; one that Python does not have is an error.
Source: ``java.util.regex.Pattern``, ``java.util.regex.Matcher.appendReplacement``.
"""

from __future__ import annotations

import re
from typing import Final

from ctrlchan.errors import ConfigError

__all__ = ["Replacement", "compiled"]

_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}", re.DOTALL)
#: Java's form of a group with a name.
_NAMED_GROUP: Final = re.compile(r"(?<!\\)\(\?<(?![=!])")


def compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern of Java. Raises ConfigError for one that Python does not have."""
    try:
        return re.compile(_NAMED_GROUP.sub("(?P<", pattern))
    except (re.error, OverflowError) as problem:
        raise ConfigError(f"the pattern {pattern!r} cannot be used: {problem}") from None


class Replacement:
    """What takes the place of a match of `pattern`: a text that names groups as ``$1`` or ``${name}``.

    Call it with a match. Raises ConfigError for a group that the pattern does not have.
    """

    def __init__(self, pattern: re.Pattern[str], text: str) -> None:
        for escaped, _, name in _REFERENCE.findall(text):
            if not escaped and name and name not in pattern.groupindex:
                raise ConfigError(f"the pattern {pattern.pattern!r} has no group {name}")
        self._text = text

    def __call__(self, match: re.Match[str]) -> str:
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

        return _REFERENCE.sub(one, self._text)
