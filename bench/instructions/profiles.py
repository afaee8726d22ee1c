"""Callgrind's output: instructions of each function, without those of the functions that it calls.

What callgrind writes with ``OPTIONS`` is read: names in full, one cost, no lines. Format: valgrind's manual,
"Callgrind Format Specification".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["OPTIONS", "Profile", "parse", "readable"]

#: Only calls within ``marks.counted`` count.
OPTIONS: Final = (
    "--instr-atstart=no",
    "--collect-atstart=no",
    "--compress-strings=no",
    "--compress-pos=no",
    "--dump-line=no",
)
_LABEL: Final = "desc: Trigger: Client Request: "
#: What a compiler appends to the name of a function's copy, and callgrind to that of a recursive call.
_SUFFIX: Final = re.compile(r"(\.(constprop|isra|part|cold|lto_priv)(\.\d+)?)+$|'\d+$")
#: Cython's names: kind, then package, module and class, each with its length before it.
_CYTHON: Final = re.compile(r"__pyx_(f|pf|pw|tp_[a-z_]+)_(?=\d)")
_NUMBER: Final = re.compile(r"\d+")


class Profile(NamedTuple):
    """Instructions by function, of the calls before the dump ``label``."""

    label: str
    functions: Counter[str]


def parse(lines: Iterable[str]) -> Profile:
    """Return what one dump says. Raises ValueError where the sum is not callgrind's, as for other text."""
    label, file, function, total = "", "", "", -1
    found: Counter[str] = Counter()
    is_call = False
    for line in lines:
        if line.startswith("ob="):
            file = Path(line[3:].strip()).name
        elif line.startswith("fn="):
            name = line[3:].strip()
            # Of a library without names of its functions callgrind has their addresses.
            function = f"in {file}" if name.startswith("0x") else readable(name)
        elif line.startswith("calls="):
            # The next line has the instructions within the call, which are the called function's own.
            is_call = True
        elif line[:1].isdigit():
            if not is_call:
                found[function] += int(line.split()[1])
            is_call = False
        elif line.startswith(_LABEL):
            label = line.removeprefix(_LABEL).strip()
        elif line.startswith(("summary:", "totals:")):
            total = int(line.split()[1])
    if found.total() != total:
        raise ValueError(
            f"not an output of callgrind: the functions have {found.total()} of {total} instructions"
        )
    return Profile(label, found)


def readable(symbol: str) -> str:
    """Return the name of a function as its source has it; of Cython's with package, module and class."""
    name = _SUFFIX.sub("", symbol)
    begin = _CYTHON.match(name)
    if begin is None:
        return name
    parts, rest = [], name[begin.end() :]
    while number := _NUMBER.match(rest):
        size, rest = int(number[0]), rest[number.end() :]
        if len(rest) < size or rest[size : size + 1] not in ("", "_"):
            # The number of a Python function, which is no length.
            break
        parts.append(rest[:size])
        rest = rest[size + 1 :]
    return ".".join([*parts, rest] if rest else parts)
