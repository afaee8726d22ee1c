"""Names of Kerberos principals, and the rules that make users' names of them.

::

    <service>[/<host>]@<realm>                                             a name
    RULE:[<n>:<format>](<pattern>)s/<pattern>/<replacement>/g/L            a rule; or DEFAULT

``sasl.kerberos.principal.to.local.rules`` has the rules. One of ``n`` counts for names of n parts before the
realm. Its format makes a text of them: ``$0`` is the realm, ``$1`` and ``$2`` are the parts. If the whole
text matches the first pattern, the first place (with ``g`` each) where the second one matches is replaced.
``L`` and ``U`` want small and capital letters. ``DEFAULT`` is the first part of a name of the default realm.
The first rule that counts makes the name. Patterns are regular expressions of Java.
Source: ``KerberosName``, ``KerberosRule`` and ``KerberosShortNamer`` of Kafka 3.9.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from ctrlchan.errors import ConfigError
from ctrlchan.security.java_patterns import Replacement, compiled

__all__ = ["DEFAULT_KERBEROS_RULES", "KerberosName", "KerberosRules", "NoKerberosRule", "parse_kerberos_name"]

_NAME: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE: Final = re.compile(
    r"RULE:\[(?P<parts>\d*):(?P<format>[^\]]*)\]"
    r"(?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<pattern>[^/]*)/(?P<replacement>[^/]*)/(?P<all>g)?)?"
    r"/?(?P<case>[LU])?"
)
_PARAMETER: Final = re.compile(r"\$(\d*)")
#: A user's name has none of these.
_NOT_SIMPLE: Final = re.compile(r"[/@]")


class NoKerberosRule(Exception):
    """The rules make no user's name of the name of a principal. The text says why."""


class KerberosName(NamedTuple):
    """``host``, ``realm``: None where the name has none."""

    service: str
    host: str | None
    realm: str | None

    def __str__(self) -> str:
        host = "" if self.host is None else f"/{self.host}"
        return f"{self.service}{host}" + ("" if self.realm is None else f"@{self.realm}")


def parse_kerberos_name(text: str) -> KerberosName:
    """Return the parts of a principal's name. Raises ValueError for one with more parts than two."""
    match = _NAME.fullmatch(text)
    # Libraries write a slash and such within a part behind a backslash: no user shall have such a name.
    if "\\" in text or (match is None and "@" in text):
        raise ValueError("it is not <name>@<realm> or <name>/<host>@<realm>")
    return KerberosName(text, None, None) if match is None else KerberosName(*match.groups())


class _Rule(NamedTuple):
    """``pattern`` and ``replacement``: None without a replacement; ``most``: of them, 0 for all."""

    text: str
    parts: int
    format: str
    match: re.Pattern[str] | None
    pattern: re.Pattern[str] | None
    replacement: Replacement | None
    most: int
    case: str | None

    def apply(self, parameters: list[str]) -> str | None:
        """Return the user's name, or None if the rule does not count. ``parameters``: realm, parts."""
        if len(parameters) != self.parts + 1:
            return None
        found = _PARAMETER.sub(lambda match: parameters[int(match[1])], self.format)
        if self.match is not None and self.match.fullmatch(found) is None:
            return None
        if self.pattern is not None and self.replacement is not None:
            found = self.pattern.sub(self.replacement, found, count=self.most)
        return found.lower() if self.case == "L" else found.upper() if self.case == "U" else found


class KerberosRules:
    """The rules of a setting. Raises ConfigError for a text that is no rule."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts: Final = tuple(texts)
        # None: DEFAULT.
        self._rules: Final = tuple(None if text == "DEFAULT" else _parse(text) for text in self.texts)

    def user_of(self, name: KerberosName, default_realm: str) -> str:
        """Return the user's name for a principal. Raises NoKerberosRule."""
        if name.realm is None and name.host is None:
            return name.service
        parameters = [name.realm or "", name.service] + ([] if name.host is None else [name.host])
        for rule in self._rules:
            if rule is not None:
                user = rule.apply(parameters)
            else:
                user = name.service if default_realm and name.realm == default_realm else None
            if user is None:
                continue
            if not user or _NOT_SIMPLE.search(user):
                text = "DEFAULT" if rule is None else rule.text
                raise NoKerberosRule(f"{text} makes {user!r} of it, which is no name of a user")
            return user
        raise NoKerberosRule(
            f"none of {', '.join(self.texts)} counts; the default realm is {default_realm!r}"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KerberosRules) and other.texts == self.texts

    def __hash__(self) -> int:
        return hash(self.texts)

    def __repr__(self) -> str:
        return f"KerberosRules({self.texts!r})"


def _parse(text: str) -> _Rule:
    match = _RULE.fullmatch(text)
    if match is None or not match["parts"]:
        raise ConfigError(
            f"{text!r} is neither DEFAULT nor RULE:[n:format](pattern)s/pattern/replacement/g/L"
        )
    parts = int(match["parts"])
    for number in _PARAMETER.findall(match["format"]):
        if not number or int(number) > parts:
            raise ConfigError(f"{text!r}: ${number} is none of $0 to ${parts}")
    pattern = replacement = None
    if match["pattern"] is not None:
        pattern = compiled(match["pattern"])
        replacement = Replacement(pattern, match["replacement"])
    return _Rule(
        text,
        parts,
        match["format"],
        None if match["match"] is None else compiled(match["match"]),
        pattern,
        replacement,
        0 if match["all"] else 1,
        match["case"],
    )


DEFAULT_KERBEROS_RULES: Final = KerberosRules(["DEFAULT"])
