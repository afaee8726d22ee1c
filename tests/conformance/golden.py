"""The annotated bytes in ``golden/``: each message at the ends of its versions and at the first flexible one.

A file ``<Message>-v<version>.txt`` is a title, the message in JSON form, a blank line, and the bytes: one
field a line, hexadecimal, then Kafka's name of the field, then a comment.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LINE = re.compile(r"((?:[0-9a-f]{2})+(?: (?:[0-9a-f]{2})+)*) {2,}(\w+)(?: {1,}.*)?")


@dataclass(frozen=True)
class Golden:
    """One file. ``fields``: the offset at which a field (an array's count, an element) begins -> its name."""

    name: str
    version: int
    json: Any
    data: bytes
    fields: dict[int, str]

    def __str__(self) -> str:
        return f"{self.name}-v{self.version}"


def _load(path: Path) -> Golden:
    name, _, version = path.stem.rpartition("-v")
    head, _, listing = path.read_text(encoding="utf-8").partition("\n\n")
    _, _, value = head.partition("\n")
    data = b""
    fields = {}
    for line in listing.splitlines():
        found = _LINE.fullmatch(line)
        if found is None:
            raise ValueError(f"{path.name}: cannot read {line!r}")
        fields[len(data)] = found[2]
        data += bytes.fromhex(found[1])
    return Golden(name, int(version), json.loads(value), data, fields)


GOLDEN = [_load(path) for path in sorted(Path(__file__).with_name("golden").glob("*.txt"))]
