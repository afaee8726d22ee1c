"""What a certificate in DER says of itself, as far as listeners need it (RFC 5280)."""

from __future__ import annotations

import base64
import binascii
import calendar
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from ctrlchan.security.der import MalformedName, element, only

__all__ = ["Certificate", "certificates_in", "read_certificate"]

_SEQUENCE: Final = 0x30
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_SHORT_TIME: Final = 0x17
_OCTETS: Final = 0x04
#: The OID of subjectAltName, 2.5.29.17.
_ALTERNATIVE_NAMES: Final = b"\x55\x1d\x11"
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"
_TIME: Final = re.compile(rb"\d{14}Z")


class Certificate(NamedTuple):
    """``subject``, ``alternative_names``: DER; the latter may be empty. ``expires``: seconds since 1970."""

    subject: bytes
    alternative_names: bytes
    expires: int


def read_certificate(der: bytes) -> Certificate:
    """Return what the certificate says. Raises MalformedName."""
    _, content, _ = element(only(der, _SEQUENCE))
    if content.startswith(bytes([_VERSION])):
        _, _, content = element(content)
    # Serial number, algorithm of the signature, who has signed
    for _ in range(3):
        _, _, content = element(content)
    _, validity, content = element(content)
    _, _, end = element(validity)
    _, _, rest = element(content)
    return Certificate(content[: len(content) - len(rest)], _alternative_names(rest), _seconds(end))


def certificates_in(pem: str) -> Iterator[bytes]:
    """Yield the certificates of a text as DER. Raises MalformedName for one that is cut off or no Base64."""
    for part in pem.split(_BEGIN)[1:]:
        body, end, _ = part.partition(_END)
        if not end:
            raise MalformedName("it has no end")
        try:
            yield base64.b64decode("".join(body.split()), validate=True)
        except binascii.Error:
            raise MalformedName("it is no Base64") from None


def _alternative_names(rest: bytes) -> bytes:
    """Return the extension subjectAltName among what follows the subject."""
    while rest:
        tag, content, rest = element(rest)
        if tag == _EXTENSIONS:
            extensions = only(content, _SEQUENCE)
            while extensions:
                _, extension, extensions = element(extensions)
                _, name, extension = element(extension)
                if name == _ALTERNATIVE_NAMES:
                    # Before the value there may be whether the extension is critical.
                    tag, value, extension = element(extension)
                    return value if tag == _OCTETS else only(extension, _OCTETS)
    return b""


def _seconds(der: bytes) -> int:
    tag, text, _ = element(der)
    if tag == _SHORT_TIME:
        # Two digits of the year: 1950 to 2049
        text = (b"19" if text[:1] >= b"5" else b"20") + text
    if not _TIME.fullmatch(text):
        raise MalformedName("it has no time in UTC at which it expires")
    numbers = [int(text[:4]), *(int(text[i : i + 2]) for i in range(4, 14, 2))]
    try:
        return calendar.timegm(tuple(numbers))
    except ValueError:
        raise MalformedName("it expires in a month that there is not") from None
