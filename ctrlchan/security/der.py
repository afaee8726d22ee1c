"""Reads DER, the encoding of certificates: elements of a tag, a size and their content."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["MalformedName", "element", "elements", "only"]


class MalformedName(ValueError):
    """The bytes are no name."""


def element(der: bytes) -> tuple[int, bytes, bytes]:
    """Return the tag of the first element, what is in it, and the bytes behind it. Raises MalformedName."""
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


def elements(der: bytes, tag: int) -> Iterator[bytes]:
    """Yield what is in each of the elements, which must have this tag. Raises MalformedName."""
    while der:
        found, content, der = element(der)
        if found != tag:
            raise MalformedName(f"an element with tag {found:#x}, not {tag:#x}")
        yield content


def only(der: bytes, tag: int) -> bytes:
    """Return what is in the one element that there is, which must have this tag. Raises MalformedName."""
    found = list(elements(der, tag))
    if len(found) != 1:
        raise MalformedName(f"{len(found)} names")
    return found[0]
