"""Parts of error messages about text that somebody else wrote, and numbers in such text."""

from __future__ import annotations

from typing import Final

__all__ = ["parse_number", "printable", "quoted", "shortened"]

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
