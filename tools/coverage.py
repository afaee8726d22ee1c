"""Counts which lines of the Cython sources have run: ``python tools/coverage.py`` in a build with gcov.

``make coverage`` makes such a build in a copy (``CTRLCHAN_COVERAGE=1``), runs the tests on it and calls this.
gcov also counts what runs without the GIL, which Cython's own tracing does not see. Prints a table of rooms
and files, and writes the lines that never ran to ``never_run.txt``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

REPORT: Final = Path("never_run.txt")
#: The comment that Cython writes before the C of each line.
_SOURCE_LINE: Final = re.compile(r'\s*/\* "(ctrlchan/[^"]+\.p(?:yx|xi|xd))":(\d+)$')

#: Times that each line of each source has run.
Counts = defaultdict[str, dict[int, int]]


def main() -> int:
    counts: Counts = defaultdict(dict)
    for data in sorted(Path("build").rglob("*.gcda")):
        for part in _gcov(data)["files"]:
            if part["file"].endswith(".c"):
                _add(
                    counts, Path(part["file"]), {line["line_number"]: line["count"] for line in part["lines"]}
                )
    if not counts:
        sys.exit("error: nothing was counted; was the build made with CTRLCHAN_COVERAGE=1?")
    rooms: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(counts):
        rooms[str(Path(name).parent)].append(name)
    for room, names in rooms.items():
        print(f"{_share([counts[name] for name in names])}  {room}/")
        for name in names:
            print(f"{_share([counts[name]])}    {Path(name).name}")
    REPORT.write_text("".join(_never_run(name, counts[name]) for name in sorted(counts)))
    print(f"lines that never ran: {REPORT.absolute()}")
    return 0


def _gcov(data: Path) -> Any:
    """Return what gcov says of one object, as its JSON."""
    command = ["gcov", "--json-format", "--stdout", str(data)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _add(counts: Counts, source: Path, lines: dict[int, int]) -> None:
    """Add the counts of the lines of a C file to those of the Cython lines that they were made of."""
    place: tuple[str, int] | None = None
    for number, text in enumerate(source.read_text().splitlines(), 1):
        found = _SOURCE_LINE.match(text)
        if found:
            place = found[1], int(found[2])
        elif place is not None and number in lines:
            file, at = place
            counts[file][at] = max(counts[file].get(at, 0), lines[number])


def _share(files: list[dict[int, int]]) -> str:
    """Return the lines that have run, all lines, and the share as text."""
    total = sum(map(len, files))
    run = sum(count > 0 for lines in files for count in lines.values())
    return f"{run:6,} of {total:6,} {run / max(1, total):7.1%}"


def _never_run(name: str, lines: dict[int, int]) -> str:
    """Return the lines of a source that never ran, with their numbers."""
    source = Path(name).read_text().splitlines()
    return "".join(
        f"{name}:{number}: {source[number - 1].strip()}\n" for number in sorted(lines) if not lines[number]
    )


if __name__ == "__main__":
    sys.exit(main())
