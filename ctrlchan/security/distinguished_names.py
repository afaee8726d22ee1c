"""Names in certificates (X.500), as Java prints them: ``X500Principal.getName()``, which is RFC 2253.

The last part of a name comes first. Nine attributes have names, all others their object identifier and a
value in hexadecimal. Source: ``sun.security.x509.X500Name``, ``RDN`` and ``AVA`` (JDK 17).
"""

from __future__ import annotations

import unicodedata
from typing import Final

from ctrlchan.security.der import MalformedName, element, elements, only

__all__ = ["is_same_name", "java_name"]

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
#: Tags: UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString. Java takes the bytes of
#: all of them for UTF-8.
_TEXTS: Final = (0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E)
#: The first two of them, which Java compares as texts.
_CANONICAL_TEXTS: Final = (0x0C, 0x13)
_SEQUENCE, _SET, _OBJECT_IDENTIFIER = 0x30, 0x31, 0x06
_ESCAPED: Final = ',=+<>#;"\\'
_BLANKS: Final = " \r"


def java_name(der: bytes) -> str:
    """Return a name (DER of an X.501 Name) as Java prints it. Raises MalformedName."""
    parts = [
        "+".join(_attribute(attribute) for attribute in elements(part, _SEQUENCE))
        for part in elements(only(der, _SEQUENCE), _SET)
    ]
    return ",".join(reversed(parts))


def is_same_name(one: bytes, other: bytes) -> bool:
    """Return whether two names are the same for Java: blanks and letter case do not count.

    Source: ``X500Principal.equals``. Raises MalformedName.
    """
    return _canonical(one) == _canonical(other) or java_name(one).lower() == java_name(other).lower()


def _canonical(der: bytes) -> list[list[str]]:
    return [
        sorted(_attribute(attribute, is_canonical=True) for attribute in elements(part, _SEQUENCE))
        for part in elements(only(der, _SEQUENCE), _SET)
    ]


def _attribute(der: bytes, *, is_canonical: bool = False) -> str:
    tag, identifier, rest = element(der)
    if tag != _OBJECT_IDENTIFIER:
        raise MalformedName("an attribute has no object identifier")
    number = _dotted(identifier)
    keyword = _KEYWORDS.get(number, number)
    tag, value, after = element(rest)
    if after:
        raise MalformedName("an attribute has more than one value")
    if tag in (_CANONICAL_TEXTS if is_canonical else _TEXTS) and keyword != number:
        text = value.decode("utf-8", "replace")
        if is_canonical:
            text = " ".join(unicodedata.normalize("NFKD", text.lower()).split())
        return f"{keyword}={_escaped(text)}"
    return f"{keyword}=#{rest.hex()}"


def _escaped(text: str) -> str:
    inner = "".join(f"\\{one}" if one in _ESCAPED else "\\00" if one == "\0" else one for one in text)
    begin = len(inner) - len(inner.lstrip(_BLANKS))
    end = len(inner.rstrip(_BLANKS))
    return "".join(one if begin <= place < end else f"\\{one}" for place, one in enumerate(inner))


def _dotted(data: bytes) -> str:
    """Return an object identifier as numbers with points between them."""
    numbers: list[int] = []
    number = 0
    for byte in data:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers or data[-1] & 0x80:
        raise MalformedName("an object identifier is cut off")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
