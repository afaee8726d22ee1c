"""What the Cython rooms share is declared in ``ctrlchan/_c`` and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

import ctrlchan
from ctrlchan.errors import ErrorCode
from tests.unit.locks.cython_sources import read

PACKAGE: Final = Path(ctrlchan.__file__).parent
KAFKA: Final = {code.name.upper(): code.value for code in KioErrorCode}
_CODE: Final = re.compile(r"^\s+([A-Z_]+) = (-?\d+)(?=,?$)", re.MULTILINE)


def error_codes(text: str) -> dict[str, int]:
    """Return the members of enums in a Cython source that have the name of one of Kafka's error codes."""
    return {name: int(code) for name, code in _CODE.findall(text) if name in KAFKA}


def elsewhere(pattern: str) -> list[str]:
    """Return where a source of a room other than ``_c`` has what the pattern describes."""
    return [
        f"{path.relative_to(PACKAGE)}: {found[0].strip()}"
        for path, text in read(PACKAGE).items()
        if path.parent.name != "_c"
        for found in re.finditer(pattern, text)
    ]


def test_error_codes_are_those_of_kafka() -> None:
    text = (PACKAGE / "_c" / "error_codes.pxd").read_text()
    declared = {name: int(code) for name, code in _CODE.findall(text)}
    assert len(declared) > 20
    assert declared.items() <= KAFKA.items()
    assert declared.items() >= {(code.name, code.value) for code in ErrorCode if code.name in declared}


def test_error_codes_are_declared_once() -> None:
    assert error_codes("cdef enum:\n    # Error codes\n    NONE = 0\n    ALL = -1\n") == {"NONE": 0}
    found = {
        path.relative_to(PACKAGE).as_posix(): list(error_codes(text))
        for path, text in read(PACKAGE).items()
        if path.suffix != ".h" and error_codes(text)
    }
    assert list(found) == ["_c/error_codes.pxd"]


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(r"\b__(atomic|sync)_\w+|\bstdatomic\b", id="atomics"),
        pytest.param(r"\bclock_gettime\w*|\bgettimeofday\b", id="clocks"),
        pytest.param(r"\b__builtin_bswap\w+|\bhtobe\d+|\bbe\d+toh\b|<< 8 \|", id="byte order"),
        pytest.param(r"\b_mm_crc32\w+|\b__crc32c\w+", id="CRC-32C"),
        pytest.param(r'cdef extern from "[^"]*_c/\w+\.h"', id="declarations"),
    ],
)
def test_is_found_in_the_shared_room_alone(pattern: str) -> None:
    assert elsewhere(pattern) == []
