"""Reads Cython sources far enough to check how they use mutexes.

A source is cut into functions by its indentation. The rules, each a function that returns what breaks it:

1. Mutexes and conditions are those of ``ctrlchan/_c``.
2. A mutex is locked by code that does not hold the GIL.
3. It is unlocked before the code takes the GIL again.
4. A function whose comment requires a mutex calls ``require``, which debug builds check.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

#: Of pthread: what the room of mutexes stands for.
_NATIVE: Final = re.compile(r"\bpthread_(mutex|cond|rwlock|spin)_\w+")
_HEADER: Final = re.compile(
    r"\s*(cdef|cpdef|def|async def)\s+(?!(class|extern|enum|struct|union)\b)[^=(]*?\b(?P<name>\w+)\(.*:$"
)
_CALL: Final = re.compile(r"(?P<dot>\.)?\b(?P<name>[A-Za-z_]\w*)\(")
#: They begin and end the time for which a mutex is held.
LOCKING: Final = {"lock", "lock_partition", "lock_online", "lock_writable", "pthread_mutex_lock"}
UNLOCKING: Final = {"unlock", "unlock_partition", "pthread_mutex_unlock"}
#: They do nothing but lock or unlock for their callers.
_FOR_CALLERS: Final = LOCKING | UNLOCKING
_WAITING: Final = {"wait", "condition_wait"}
_REQUIRES: Final = re.compile(r"\b(requires|needs)\b[^.]*\bmutex\b", re.IGNORECASE)


@dataclass
class Line:
    """A line without its comment; ``end``: the number of its last part. ``without_gil``: how it runs."""

    number: int
    end: int
    text: str
    without_gil: bool = False


@dataclass
class Function:
    """A function or method of a Cython source."""

    path: Path
    name: str
    number: int
    is_method: bool
    is_nogil: bool
    #: The last line of the header.
    header_end: int
    comment: str = ""
    lines: list[Line] = field(default_factory=list)

    def calls(self) -> Iterator[tuple[Line, str, bool]]:
        """Yield line, name and whether a dot stands before it, for each call."""
        for line in self.lines:
            for found in _CALL.finditer(line.text):
                yield line, found["name"], bool(found["dot"])


def functions_of(path: Path, text: str) -> list[Function]:
    """Return the functions of a source. Nested ones belong to the outer one."""
    functions: list[Function] = []
    current: tuple[int, Function] | None = None
    for line in _logical_lines(_without_strings(text)):
        depth = len(line.text) - len(line.text.lstrip())
        if current is not None and depth > current[0]:
            current[1].lines.append(line)
            continue
        current = None
        header = _HEADER.match(line.text)
        if header:
            nogil = bool(re.search(r"\bnogil\s*:$", line.text))
            current = depth, Function(path, header["name"], line.number, depth > 0, nogil, line.end)
            functions.append(current[1])
    for function in functions:
        _mark(function)
        function.comment = _docstring(text, function)
    return functions


def _logical_lines(text: str) -> Iterator[Line]:
    """Yield the lines that are not empty; one with open brackets goes on until they are closed."""
    waiting = ""
    begin = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not waiting:
            begin = number
        waiting = f"{waiting} {line.strip()}" if waiting else line.rstrip()
        if all(waiting.count(left) <= waiting.count(right) for left, right in ("()", "[]", "{}")):
            if waiting.strip():
                yield Line(begin, number, waiting.rstrip())
            waiting = ""


def _mark(function: Function) -> None:
    """Find which lines run without the GIL."""
    blocks: list[tuple[int, bool]] = [(-1, function.is_nogil)]
    for line in function.lines:
        depth = len(line.text) - len(line.text.lstrip())
        while depth <= blocks[-1][0]:
            blocks.pop()
        line.without_gil = blocks[-1][1]
        found = re.match(r"\s*with (nogil|gil)\b.*:$", line.text.rstrip())
        if found:
            blocks.append((depth, found[1] == "nogil"))


def _docstring(text: str, function: Function) -> str:
    """Return the text between the quotes that follow the header."""
    rest = "\n".join(text.splitlines()[function.header_end :])
    found = re.match(r'\s*"""(.*?)"""', rest, re.DOTALL)
    return found[1] if found else ""


def _without_strings(text: str) -> str:
    """Return the source without comments and the contents of strings; the lines stay."""

    def blank(found: re.Match[str]) -> str:
        return "\n" * found[0].count("\n")

    text = re.sub(r'"""(?:.|\n)*?"""', blank, text)
    text = re.sub(r'"[^"\n]*"', '""', text)
    return re.sub(r"#[^\n]*", "", text)


def read(root: Path) -> dict[Path, str]:
    """Return the texts of all Cython sources below a folder, by path."""
    return {
        path: path.read_text()
        for pattern in ("*.pyx", "*.pxi", "*.pxd", "*.h")
        for path in sorted(root.rglob(pattern))
    }


def foreign_mutexes(sources: dict[Path, str]) -> list[str]:
    """Rule 1."""
    return [
        f"{path}, line {text.count(chr(10), 0, found.start()) + 1}: {found[0]}"
        for path, text in sources.items()
        if path.parent.name != "_c"
        for found in _NATIVE.finditer(text)
    ]


def _all_functions(sources: dict[Path, str]) -> list[Function]:
    return [
        function
        for path, text in sources.items()
        if path.suffix in (".pyx", ".pxi", ".pxd")
        for function in functions_of(path, text)
    ]


def waiting_functions(functions: Iterable[Function]) -> tuple[set[str], set[str]]:
    """Return the names of the functions, and of the methods, that lock a mutex themselves or through others.

    Only those without the GIL are followed: with it, the call before is what breaks the rule.
    """
    names: set[str] = LOCKING | _WAITING
    methods: set[str] = {"lock_online", "lock_writable"}
    nogil = [function for function in functions if function.is_nogil]
    before = -1
    while before != len(names) + len(methods):
        before = len(names) + len(methods)
        for function in nogil:
            if any(
                line.without_gil and name in (methods if dotted else names)
                for line, name, dotted in function.calls()
            ):
                (methods if function.is_method else names).add(function.name)
    return names, methods


def locked_with_gil(sources: dict[Path, str]) -> list[str]:
    """Rule 2: calls that lock a mutex, where the GIL is held."""
    functions = _all_functions(sources)
    names, methods = waiting_functions(functions)
    # Methods of Python code may have the names of others that lock.
    of_python = {(one.path, one.name) for one in functions if one.is_method and not one.is_nogil}
    return [
        f"{function.path}, line {line.number}: {function.name} calls {name} with the GIL"
        for function in functions
        for line, name, dotted in function.calls()
        if not line.without_gil and name in (methods if dotted else names)
        if not dotted or (function.path, name) not in of_python
    ]


def held_with_gil(sources: dict[Path, str]) -> list[str]:
    """Rule 3: stretches of code without the GIL that end with a mutex locked, or begin with one."""
    found = []
    for function in _all_functions(sources):
        if function.name in _FOR_CALLERS:
            continue
        for lines in _stretches(function):
            called = [call["name"] for line in lines for call in _CALL.finditer(line.text)]
            if (not LOCKING.isdisjoint(called)) != (not UNLOCKING.isdisjoint(called)):
                found.append(
                    f"{function.path}, line {lines[0].number}: {function.name} locks and does not unlock, "
                    "or the reverse, before it has the GIL"
                )
    return found


def _stretches(function: Function) -> Iterator[list[Line]]:
    """Yield the lines that follow each other with, or without, the GIL."""
    stretch: list[Line] = []
    for line in function.lines:
        if stretch and stretch[-1].without_gil != line.without_gil:
            yield stretch
            stretch = []
        stretch.append(line)
    if stretch:
        yield stretch


def unchecked_requirements(sources: dict[Path, str]) -> list[str]:
    """Rule 4."""
    return [
        f"{function.path}, line {function.number}: {function.name} requires a mutex and does not check it"
        for function in _all_functions(sources)
        if _REQUIRES.search(function.comment)
        and not any(name in ("require", "require_mutex") for _, name, _ in function.calls())
    ]
