"""Parts of error messages about text that somebody else wrote, and numbers in such text."""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_STRING", "parse_number", "printable", "quoted", "shortened", "why_unsendable"]

#: Bytes of UTF-8 that a string of Kafka's requests may have: its length is an int16.
MAX_STRING: Final = 2**15 - 1
#: Characters of a value that an error message repeats.
_QUOTED: Final = 60
_MAX_INT64: Final = 2**63 - 1


def printable(text: str) -> str:
    """Return the text with everything that is not printable (control characters, line ends) as an escape."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape", "surrogatepass").decode() for one in text
    )


def quoted(text: str) -> str:
    """Return the first 60 characters of the text in quotes, as an error message repeats a value."""
    return f"'{shortened(text)}'"


def shortened(text: str) -> str:
    """Return the first 60 characters of the text, printable, and a mark where there are more."""
    return printable(text if len(text) <= _QUOTED else text[:_QUOTED]) + "…" * (len(text) > _QUOTED)


def why_unsendable(text: str) -> str | None:
    """Return the reason why no request can carry this text as a string, None when one can."""
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        return "has half of a surrogate pair, which is no character"
    if size > MAX_STRING:
        return f"has {size} bytes, more than the {MAX_STRING} of a string in a request"
    return None


def parse_number(name: str, text: str) -> int:
    """Return the number that ``text`` writes in decimal digits without a sign.

    Raises MalformedError, calling the number ``name``, for any other text and for more than an int64 holds.
    """
    # Imported here: commands use this module before there is data, and the errors bring NumPy.
    from ctrlchan.errors import MalformedError

    if not (text.isascii() and text.isdigit()):
        raise MalformedError(f"{name} is {quoted(text)}, not a number")
    if (len(text) > 19 and len(text.lstrip("0")) > 19) or (value := int(text)) > _MAX_INT64:
        raise MalformedError(f"{name} is {quoted(text)}, which int32 does not hold")
    return value
