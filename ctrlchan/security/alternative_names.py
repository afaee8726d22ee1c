"""The names of hosts in a certificate: its extension ``subjectAltName`` (RFC 5280)."""

from __future__ import annotations

import ipaddress
from typing import Final

from ctrlchan.security.der import element, only

__all__ = ["alternative_names", "shown_name"]

_SEQUENCE: Final = 0x30
_MAIL, _DNS, _URI, _ADDRESS = 0x81, 0x82, 0x86, 0x87
_TEXTS: Final = {_MAIL: "email", _DNS: "DNS", _URI: "URI"}


def alternative_names(der: bytes) -> frozenset[tuple[int, bytes]]:
    """Return the names, as tag and content, in the DER of the extension; none for no bytes.

    Raises MalformedName.
    """
    names = []
    rest = only(der, _SEQUENCE) if der else b""
    while rest:
        tag, content, rest = element(rest)
        names.append((tag, content))
    return frozenset(names)


def shown_name(name: tuple[int, bytes]) -> str:
    """Return a name for a message."""
    tag, content = name
    if tag in _TEXTS:
        return f"{_TEXTS[tag]}:{content.decode('ascii', 'replace')}"
    if tag == _ADDRESS and len(content) in (4, 16):
        return f"IP:{ipaddress.ip_address(content)}"
    return f"#{tag:02x}:{content.hex()}"
