"""Names in certificates (X.500), as Java prints them: ``X500Principal.getName()``, which is RFC 2253.

The last part of a name comes first. Nine attributes have names, all others their object identifier and a
value in hexadecimal. Source: ``sun.security.x509.X500Name``, ``RDN`` and ``AVA`` (JDK 17).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

__all__ = ["MalformedName", "java_name"]

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
_SEQUENCE, _SET, _OBJECT_IDENTIFIER = 0x30, 0x31, 0x06
_ESCAPED: Final = ',=+<>#;"\\'
_BLANKS: Final = " \r"


class MalformedName(ValueError):
    """The bytes are no name."""


def java_name(der: bytes) -> str:
    """Return a name (DER of an X.501 Name) as Java prints it. Raises MalformedName."""
    parts = [
        "+".join(_attribute(attribute) for attribute in _elements(part, _SEQUENCE))
        for part in _elements(_only(der, _SEQUENCE), _SET)
    ]
    return ",".join(reversed(parts))


def _attribute(der: bytes) -> str:
    tag, identifier, rest = _element(der)
    if tag != _OBJECT_IDENTIFIER:
        raise MalformedName("an attribute has no object identifier")
    number = _dotted(identifier)
    keyword = _KEYWORDS.get(number, number)
    tag, value, after = _element(rest)
    if after:
        raise MalformedName("an attribute has more than one value")
    if tag in _TEXTS and keyword != number:
        return f"{keyword}={_escaped(value.decode('utf-8', 'replace'))}"
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


def _elements(der: bytes, tag: int) -> Iterator[bytes]:
    """Yield what is in each of the elements, which must have this tag."""
    while der:
        found, content, der = _element(der)
        if found != tag:
            raise MalformedName(f"an element with tag {found:#x}, not {tag:#x}")
        yield content


def _only(der: bytes, tag: int) -> bytes:
    found = list(_elements(der, tag))
    if len(found) != 1:
        raise MalformedName(f"{len(found)} names")
    return found[0]


def _element(der: bytes) -> tuple[int, bytes, bytes]:
    """Return the tag of the first element, what is in it, and the bytes behind it."""
    if len(der) < 2:
        raise MalformedName("it is cut off")
    size, begin = der[1], 2
    if size & 0x80:
        begin = 2 + (size & 0x7F)
        if not 2 < begin <= 6:
            raise MalformedName("an element has no size")
        size = int.from_bytes(der[2:begin], "big")
    if begin + size > len(der):
        raise MalformedName("it is cut off")
    return der[0], der[begin : begin + size], der[begin + size :]
